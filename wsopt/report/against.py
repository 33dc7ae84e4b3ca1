"""Two builds of one graph compared: a table of their parts, and sentences that say why one is faster in the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from wsopt.program.conditions import said
from wsopt.program.program import Iteration
from wsopt.report.facts import (
    Part,
    ii_limits,
    places,
    register_facts,
    structure_fields,
    tensor_cycles,
    tile_epilogue,
    tiles_in_words,
    time_parts,
)
from wsopt.report.layout import (
    WIDTH,
    clean,
    counted,
    difference,
    joined,
    microseconds,
    percent,
    table,
    wrapped,
)
from wsopt.report.outcome import binds, hidden
from wsopt.report.sentences import differences, sentences
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.verified import VerifiedSchedule

_NOTHING = 5e-5
"""A smaller share of the time than reports show."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two builds, by the `name` that sentences give it."""

    name: str
    verified: VerifiedSchedule
    certificate: Certificate

    @property
    def us(self) -> float:
        """Its predicted time, in microseconds."""
        return self.verified.schedule.prediction.microseconds

    @property
    def iterations(self) -> float:
        """Iterations of the busiest SM."""
        program = self.verified.program
        if program.shares is not None:
            return program.shares.k_iterations
        waves = self.verified.schedule.prediction.waves
        return program.work.k_iterations if program.work is not None else waves * program.passes

    @property
    def pace(self) -> float:
        """Cycles an iteration on the average: II, longer for waits on units and slots, shorter in a tail wave."""
        return self.verified.schedule.prediction.main / self.iterations

    @property
    def products(self) -> float:
        """Cycles for which the products of the busiest SM hold its tensor core."""
        return tensor_cycles(self.verified, self.iterations)


@dataclass(frozen=True, slots=True)
class Row:
    """One part of both builds as text, with the difference of the second to the first where it is a number."""

    part: str
    ours: str
    theirs: str
    more: str


# --- the table ------------------------------------------------------------------------------------------


def rows(ours: Side, theirs: Side) -> tuple[Row, ...]:
    """All parts of both builds, in the order of the report: structure, roles, rings, II, time, budgets."""
    return (
        *_each(ours, theirs, _structure),
        *_each(ours, theirs, _roles),
        *_numbers(ours, theirs, _loop, "{:,.0f}"),
        *_numbers(ours, theirs, _cycles, "{:,.0f}"),
        *_numbers(ours, theirs, _times, "{:,.2f}"),
        *_numbers(ours, theirs, _budgets, "{:,.0f}"),
    )


def _structure(side: Side) -> dict[str, str]:
    s, buffers = side.verified.schedule.structure, side.verified.schedule.buffers
    fields = {name.replace("_", " "): said(value) for name, value in structure_fields(s).items()}
    return {
        "machine": side.verified.machine.name,
        "tile": f"{s.tile_rows}x{s.columns}x{s.depth}",
        **fields,
        "staging buffers": str(buffers.staging),
        "input buffers": str(buffers.inputs),
        "inputs by loader": said(buffers.inputs_by_loader),
    }


def _roles(side: Side) -> dict[str, str]:
    """Warps and registers of each role, and how many there are of it."""
    found: dict[str, list[str]] = {}
    for one in side.verified.schedule.partitions:
        found.setdefault(one.role.value, []).append(f"{one.warps} warps, {one.registers} registers")
    return {f"role {role}": f"{len(every)} x {every[0]}" for role, every in found.items()}


def _each(ours: Side, theirs: Side, told: Callable[[Side], dict[str, str]]) -> Iterator[Row]:
    """The parts that are words: those in which the builds differ."""
    one, other = told(ours), told(theirs)
    for name in {**one, **other}:
        mine, its = one.get(name, "none"), other.get(name, "none")
        if mine != its:
            yield Row(name, mine, its, "")


def _loop(side: Side) -> dict[str, float]:
    schedule = side.verified.schedule
    rings = {f"slots of {name}": float(depth) for name, depth in schedule.rings}
    return {
        **rings,
        "II, cycles": schedule.ii,
        "cycles an iteration, on the average": side.pace,
        "iterations of the busiest SM": side.iterations,
    }


def _cycles(side: Side) -> dict[str, float]:
    parts = {f"cycles: {part.name}": part.amount for part in _parts(side)}
    return {**parts, "cycles: on the SMs": side.verified.schedule.prediction.cycles}


def _parts(side: Side) -> list[Part]:
    """The parts of the time. Further waves start in the epilogue's, whose words tell of that where there are any."""
    return [Part(part.name.partition(",")[0], part.amount) for part in time_parts(side.verified)]


def _times(side: Side) -> dict[str, float]:
    p = side.verified.schedule.prediction
    return {
        "us: on the SMs": p.sm_us,
        "us: floor of device memory": p.dram_us,
        "us: floor of L2": p.l2_us,
        "us: predicted": p.microseconds,
    }


def _budgets(side: Side) -> dict[str, float]:
    facts = register_facts(side.verified, side.certificate.margin)
    tight = max((one for one in facts if one.parts), key=lambda one: one.needs / one.partition.registers)
    return {
        "registers a thread, needed": tight.needs,
        "registers a thread, had": tight.partition.registers,
        "shared memory, bytes": side.verified.schedule.shared_memory_bytes,
    }


def _numbers(ours: Side, theirs: Side, told: Callable[[Side], dict[str, float]], style: str) -> Iterator[Row]:
    """The parts that are numbers, all of them."""
    one, other = told(ours), told(theirs)
    for name in {**one, **other}:
        mine, its = one.get(name, 0.0), other.get(name, 0.0)
        more = style.replace(":", ":+").format(its - mine)
        same = not any(digit in more for digit in "123456789")
        yield Row(name, style.format(mine), style.format(its), "same" if same else more)


# --- in words -------------------------------------------------------------------------------------------


def reasons(ours: Side, theirs: Side) -> tuple[str, ...]:
    """Sentences on the second build against the first: how much slower or faster it is predicted, in which parts of
    the time, and why.
    """
    return (
        _proof(theirs),
        _total(ours, theirs),
        *_where(ours, theirs),
        *_main(ours, theirs),
        *_epilogue(ours, theirs),
        *_waves(ours, theirs),
    )


def _proof(side: Side) -> str:
    c = side.certificate
    of = counted(c.considered, "structure")
    if c.status == "optimal" and c.rank == 1:
        return f"Proved: {side.name} is the best of {of}."
    return f"Not proved: {side.name} is one of {of}, gap {percent(c.gap, 2)}."


def _total(ours: Side, theirs: Side) -> str:
    more = theirs.us - ours.us
    if abs(more) < _NOTHING * ours.us:
        return f"It is predicted as fast as {ours.name}, {microseconds(ours.us)} us."
    how = "slower" if more > 0 else "faster"
    return (
        f"It is predicted {difference(abs(more))} us ({percent(abs(more) / ours.us, 2)}) {how} than {ours.name}: "
        f"{microseconds(theirs.us)} us against {microseconds(ours.us)} us."
    )


def _where(ours: Side, theirs: Side) -> Iterator[str]:
    """Which parts of the time differ, the largest difference first; and what bounds a kernel that the SMs do not."""
    pairs = zip(_parts(ours), _parts(theirs), strict=True)
    more = sorted(((b.amount - a.amount, a.name) for a, b in pairs), key=lambda one: -abs(one[0]))
    told = [f"{_more(cycles)} in {_of(name)}" for cycles, name in more if round(cycles)]
    total = sum(cycles for cycles, _ in more)
    if told:
        yield f"On the SMs it takes {_more(total) if round(total) else 'as many cycles'}: {joined(told)}."
    bounds = theirs.verified.schedule.prediction.bound_by, ours.verified.schedule.prediction.bound_by
    if set(bounds) != {"the SMs"}:
        yield f"Its time is bound by {bounds[0]}, that of {ours.name} by {bounds[1]}."


def _of(name: str) -> str:
    return "what the power limit adds" if name == "power limit" else f"the {name}"


def _more(cycles: float) -> str:
    return f"{abs(cycles):,.0f} cycles {'more' if cycles > 0 else 'fewer'}"


def _main(ours: Side, theirs: Side) -> Iterator[str]:
    """What the main loops are made of: cycles of products, the share of the loop that they are, and what binds II."""
    if theirs.verified.program.iteration is not Iteration.TILE:
        one, other = (side.verified.schedule.prediction.main for side in (ours, theirs))
        yield (
            f"The products of the busiest SM hold the tensor core for {theirs.products:,.0f} cycles, "
            f"{percent(theirs.products / other)} of its main loop; in {ours.name} for {ours.products:,.0f} cycles, "
            f"{percent(ours.products / one)}."
        )
    for side, whose in ((theirs, "Its loop"), (ours, f"The loop of {ours.name}")):
        ii = side.verified.schedule.ii
        waits = f" With its waits an iteration takes {side.pace:,.0f}." if side.pace > ii + 1 else ""
        yield f"{whose}: {binds(ii_limits(side.verified), ii)}{waits}"


def _epilogue(ours: Side, theirs: Side) -> Iterator[str]:
    """A tile's epilogue, where the builds differ in it."""
    told = [(tile_epilogue(side.verified), hidden(side.verified)) for side in (theirs, ours)]
    if told[0] != told[1]:
        (its, how), (mine, ours_how) = told
        yield f"A tile's epilogue takes {its:,} cycles, {how}; in {ours.name} {mine:,} cycles, {ours_how}."


def _waves(ours: Side, theirs: Side) -> Iterator[str]:
    """How many tiles the SMs have and how full their waves are, where the builds differ in it."""
    told = [_filled(side) for side in (theirs, ours)]
    if told[0] != told[1]:
        yield f"It has {told[0]}; {ours.name} has {told[1]}."


def _filled(side: Side) -> str:
    tiles, waves = side.verified.program.tiles, side.verified.schedule.prediction.waves
    used = tiles / places(side.verified)
    told = tiles_in_words(side.verified.program)
    if side.verified.program.structure.shares:
        return told
    return f"{told} in {counted(waves, 'wave')}, whose places are {percent(used)} used"


# --- both -----------------------------------------------------------------------------------------------


def against_text(ours: Side, theirs: Side) -> str:
    """Both builds side by side: sentences, the table, and what the second one does; ends in a newline."""
    title = f"{clean(ours.verified.schedule.name)}: {ours.name} against {theirs.name}"
    lines = [title, "=" * len(title), ""]
    lines += [line for text in reasons(ours, theirs) for line in wrapped(text)]
    cells = [(row.part, row.ours, row.theirs, row.more) for row in rows(ours, theirs)]
    lines += ["", *table(("part", "this build", "the other", "difference"), cells, "<>>>", WIDTH)]
    head = f"What {theirs.name} does"
    lines += ["", head, "-" * len(head)]
    lines += [line for text in sentences(theirs.verified) for line in wrapped(text)]
    return "\n".join(lines).rstrip() + "\n"


def against_data(ours: Side, theirs: Side) -> dict[str, Any]:
    """The comparison as plain data for JSON: times in microseconds, parts as both builds' reports write them."""
    return {
        "name": ours.verified.schedule.name,
        "ours": _data(ours),
        "against": _data(theirs),
        "slower_us": theirs.us - ours.us,
        "reasons": list(reasons(ours, theirs)),
        "structure": differences(ours.verified.schedule.structure, theirs.verified.schedule.structure),
        "parts": [
            {"part": row.part, "ours": row.ours, "against": row.theirs, "more": row.more}
            for row in rows(ours, theirs)
        ],
    }


def _data(side: Side) -> dict[str, Any]:
    return {
        "conditions": side.certificate.conditions,
        "status": side.certificate.status,
        "predicted_us": side.us,
        "ii_cycles": side.verified.schedule.ii,
        "does": list(sentences(side.verified)),
    }
