"""A schedule's overlaps in sentences, which follow from its times and roles alone.

Which product is under way while its warpgroup computes something else, which warpgroups compute while another
fills the tensor core, what is issued before what is waited for, and where the tensor core is left idle.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wsopt.perf.effective_ii import bytes_on_the_way, stream_effective_ii
from wsopt.perf.over_rows import end_cycles, parts_of
from wsopt.program.conditions import said
from wsopt.program.facts import Read
from wsopt.program.over_rows import bundle_parts, carried, part_bytes
from wsopt.program.program import Iteration, OpKind, TileOp, Unit
from wsopt.program.types import Sharing, Structure
from wsopt.report.facts import structure_fields, tile_epilogue, unit_load
from wsopt.report.layout import clean, joined, percent, wrapped
from wsopt.report.parts import split_sums
from wsopt.report.words import operand, reduction_words
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.bound import max_depth
from wsopt.tensors.statements import Reduction, takes_row

_ARITHMETIC = (OpKind.ELEMENTWISE, OpKind.RESCALE, OpKind.ACCUMULATE)


@dataclass(frozen=True, slots=True)
class Under:
    """A product that is under way while its warpgroup does arithmetic: `k_blocks` later ones (before: negative) than
    the arithmetic's, for so many `cycles` of it.
    """

    product: TileOp
    arithmetic: TileOp
    k_blocks: int
    cycles: int


def k_block(offset: int) -> str:
    """A K-block by its distance from K-block j."""
    return "K-block j" if offset == 0 else f"K-block j{offset:+d}"


def unders(verified: VerifiedSchedule, consumer: int) -> tuple[Under, ...]:
    """Every product of a consumer that runs under arithmetic of the same consumer."""
    ii, copies = verified.schedule.ii, verified.program.structure.copies
    found = []
    for product in _own(verified, consumer, (OpKind.MMA,)):
        for other in _own(verified, consumer, _ARITHMETIC):
            begin, end = verified.schedule.start(other.id), verified.schedule.start(other.id) + other.issue
            first = verified.schedule.start(product.id)
            for later in range((begin - first - product.latency) // ii, (end - first) // ii + 1):
                there = first + later * ii
                cycles = min(end, there + product.latency) - max(begin, there)
                if cycles > 0:
                    k_blocks = later * copies + product.copy - other.copy
                    found.append(Under(product, other, k_blocks, cycles))
    return tuple(found)


def _own(verified: VerifiedSchedule, consumer: int, kinds: Sequence[OpKind]) -> list[TileOp]:
    """The operations of a consumer's loop of these kinds, in order of their start."""
    own = (op for op in verified.program.loop if op.consumer == consumer and op.kind in kinds)
    return sorted(own, key=lambda op: (verified.schedule.start(op.id), op.id))


# --- one warpgroup --------------------------------------------------------------------------------------


def _does(verified: VerifiedSchedule, op: TileOp) -> str:
    """Words for an operation of arithmetic, by the graph's names."""
    if op.kind is OpKind.RESCALE:
        return f"the rescaling of {operand(op)}"
    if op.kind is OpKind.ACCUMULATE:
        return f"the adding up of {operand(op)}"
    reductions = (item for item in op.items if isinstance(item, Reduction))
    found = [f"the {reduction_words(i)} of {_node(i.name)}" for i in reductions]
    return joined(found) or f"the arithmetic of {_node(op.items[-1].name) if op.items else operand(op)}"


def _node(name: str) -> str:
    """The graph's node that a value of the loop was made for."""
    return clean(name.partition("$")[0])


def _same_warpgroup(verified: VerifiedSchedule, consumer: int) -> Iterator[str]:
    """A sentence for every product and K-block that runs under arithmetic, and one for those that do not."""
    found = unders(verified, consumer)
    for product in _own(verified, consumer, (OpKind.MMA,)):
        mine = [under for under in found if under.product == product]
        for k_blocks in sorted({under.k_blocks for under in mine}):
            these = [under for under in mine if under.k_blocks == k_blocks]
            words = joined([_does(verified, under.arithmetic) for under in these])
            cycles = sum(under.cycles for under in these)
            yield (
                f"{operand(product)} of {k_block(k_blocks)} runs under {words} of K-block j in the same "
                f"{_kind(verified)} ({cycles:,} of {product.latency:,} cycles)."
            )
    alone = [op for op in _own(verified, consumer, (OpKind.MMA,)) if all(u.product != op for u in found)]
    if alone and _own(verified, consumer, _ARITHMETIC):
        names = joined(list(dict.fromkeys(operand(op) for op in alone)))
        yield f"Nothing of the same {_kind(verified)} runs under {names}: it waits for the result."


def _kind(verified: VerifiedSchedule) -> str:
    """The word for a consumer: a warpgroup if it is one."""
    one = verified.program.structure.consumer_warps == verified.machine.warps_per_warpgroup
    return "warpgroup" if one else "consumer"


def _issued_before(verified: VerifiedSchedule, consumer: int) -> Iterator[str]:
    """Products that are issued again before what reads the last one's result begins."""
    ii, copies = verified.schedule.ii, verified.program.structure.copies
    for product in _own(verified, consumer, (OpKind.MMA,)):
        edges = [edge for edge in verified.program.edges if edge.source == product.id]
        readers = [(verified.schedule.start(e.target) + e.distance * ii, e.target) for e in edges]
        if not readers:
            continue
        begin, name = min(readers)
        later = (begin - verified.schedule.start(product.id)) // ii
        if later > 0:
            op = verified.program.op(name)
            what = _does(verified, op) if op.kind in _ARITHMETIC else "the slot"
            verb = "begins" if op.kind in _ARITHMETIC else "is handed back"
            yield (
                f"{operand(product)} of {k_block(later * copies)} is issued before {what} of K-block j {verb}: "
                f"{later + 1} are in flight."
            )


# --- several warpgroups ---------------------------------------------------------------------------------


def _held(verified: VerifiedSchedule, ops: Sequence[TileOp], cycles: Callable[[TileOp], int]) -> list[bool]:
    """For every cycle of an interval whether one of the operations is at work."""
    ii = verified.schedule.ii
    found = [False] * ii
    for op in ops:
        begin = verified.schedule.start(op.id)
        for cycle in range(begin, begin + min(cycles(op), ii)):
            found[cycle % ii] = True
    return found


def tensor_shares(verified: VerifiedSchedule) -> tuple[float, ...]:
    """How often 0, 1, 2, ... other consumers do arithmetic while one's products hold the tensor core."""
    consumers = sorted({op.consumer for op in verified.program.loop if op.consumer is not None})
    tensor = [_held(verified, _own(verified, c, (OpKind.MMA,)), lambda op: op.busy) for c in consumers]
    busy = [_held(verified, _own(verified, c, _ARITHMETIC), lambda op: op.issue) for c in consumers]
    counts = [0] * len(consumers)
    for mine in consumers:
        for cycle in range(verified.schedule.ii):
            if tensor[mine][cycle]:
                counts[sum(busy[other][cycle] for other in consumers if other != mine)] += 1
    total = sum(counts)
    return tuple(count / total for count in counts) if total else ()


def _together(verified: VerifiedSchedule) -> Iterator[str]:
    """Sentences on how the warpgroups of a block share the work."""
    p, s = verified.program, verified.program.structure
    if s.sharing is Sharing.PING_PONG:
        loop = p.passes * verified.schedule.ii
        epilogue = tile_epilogue(verified)
        where = "runs under" if epilogue <= loop * (s.consumers - 1) else "is longer than"
        others = "the other's loop" if s.consumers == 2 else "the others' loops"
        yield (
            f"{s.consumers} {_kind(verified)}s take whole tiles in ping-pong: the epilogue of one "
            f"({epilogue:,} cycles) {where} {others} ({loop:,.0f} cycles each)."
        )
        return
    if s.consumers > 1:
        yield f"{s.consumers} {_kind(verified)}s, each with rows of its own, {_apart(verified)}."
        shares = tensor_shares(verified)
        if any(op.kind in _ARITHMETIC for op in p.loop) and shares:
            many = "the other is" if s.consumers == 2 else "all others are"
            some = "" if s.consumers == 2 else f", at least one of them {percent(1 - shares[0], 0)}"
            yield (
                f"While one of them fills the tensor core, {many} in arithmetic {percent(shares[-1], 0)} of the "
                f"time{some}."
            )
    if s.loops_an_sm > 1:
        yield (
            f"An SM has {s.loops_an_sm} blocks at a time, each with a ring and a loading warp of its own: while one "
            "waits, the other works."
        )
    yield from split_sums(verified)
    epilogue = tile_epilogue(verified)
    each = f" by each of the SM's {s.loops_an_sm} blocks" if s.loops_an_sm > 1 else ""
    idle = f"and {'not by a block in its' if each else 'idle in the'} epilogue ({epilogue:,} cycles a tile)"
    under = f"and the epilogue ({epilogue:,} cycles a tile) runs under the products of the next tile"
    yield (
        f"The tensor core is held for {unit_load(verified, Unit.TENSOR):,} of {verified.schedule.ii:,} cycles{each}, "
        f"{under if verified.schedule.buffers.sums > 1 else idle}."
    )


def _apart(verified: VerifiedSchedule) -> str:
    """How far the first products of the consumers are from each other."""
    s, ii = verified.program.structure, verified.schedule.ii
    firsts = [
        verified.schedule.start(_own(verified, c, (OpKind.MMA,))[0].id) % ii for c in range(s.consumers)
    ]
    gaps = [(later - first) % ii for first, later in itertools.pairwise(firsts)]
    if not any(gaps):
        return "in step"
    return f"{joined([f'{gap:,}' for gap in dict.fromkeys(gaps)])} cycles after one another"


# --- the section ----------------------------------------------------------------------------------------


def _streamed(verified: VerifiedSchedule) -> tuple[str, ...]:
    """Where rows stream: how busy device memory and the warpgroups are, and how far loads run ahead."""
    s, ii = verified.program.structure, verified.schedule.ii
    work = sum(op.issue for op in verified.program.loop if op.consumer == 0)
    memory = percent(unit_load(verified, Unit.MEMORY) / ii, 0)
    each = "The warpgroup" if s.consumers == 1 else f"Each of {s.consumers} consumers"
    reduces = any(map(takes_row, verified.program.items))
    read = any(op.counts.by_address for op in verified.program.loop if isinstance(op.counts, Read))
    does = [*(["reads"] if read or not s.resident else []), "reduces" if reduces else "computes"]
    does += ["stores"] if verified.program.of(OpKind.TMA_STORE) else []
    if s.resident:
        return (
            f"Device memory is busy for {memory} of the time.",
            f"An SM has {s.occupancy} blocks at a time, each of which {joined(does)} a tile of {s.rows} rows in "
            f"{s.occupancy * work:,} cycles, so that one ends every {work:,} cycles, or every {ii:,} as what they "
            "share allows; "
            + (
                "what a thread has read is in its registers, and no copy runs ahead."
                if read
                else "no tensor has its elements: they are computed of vectors."
            ),
        )
    depth = verified.schedule.depth("ring")
    return (
        f"Device memory is busy for {memory} of the time.",
        f"{each} {joined(does)} {s.rows} of a tile's {s.tile_rows} rows in {work:,} of {ii:,} cycles, "
        f"and waits for the rest; loads run up to {depth} tiles ahead.",
        *_on_the_way(verified, depth),
        *_over_rows(verified),
    )


def _over_rows(verified: VerifiedSchedule) -> Iterator[str]:
    """Who carries reductions over all rows, and what bringing them together takes."""
    program, machine = verified.program, verified.machine
    if not (found := carried(program)):
        return
    names = joined([f"the {reduction_words(one)} of {_node(one.name)}" for one in found])
    parts, bundle = parts_of(program, machine), bundle_parts(program, machine)
    yield (
        f"Consumers carry {names} from tile to tile, in {program.accumulator_registers} registers a thread with row "
        f"values, and leave {parts} parts of {part_bytes(program):,} bytes: up to {bundle} are brought together at a "
        f"time by who arrives last, and then what those came to. Behind the last tile that takes "
        f"{end_cycles(program, machine):,} cycles."
    )


def _on_the_way(verified: VerifiedSchedule, depth: int) -> Iterator[str]:
    """Why the ring of rows has as many slots as it has: what a shorter and the deepest one would take."""
    program, machine = verified.program, verified.machine
    others = sorted({depth - 1, max_depth(program, machine)} - {0, depth})
    effective = [f"{stream_effective_ii(program, machine, slots):,} with {slots}" for slots in others]
    if effective:
        yield (
            f"Up to {bytes_on_the_way(program, depth):,} bytes are on the way to each SM: by that alone a tile takes "
            f"{stream_effective_ii(program, machine, depth):,} cycles, {joined(effective)} slots."
        )


def sentences(verified: VerifiedSchedule) -> tuple[str, ...]:
    """Sentences on a schedule. Consumers that do the same are told of once."""
    if verified.program.iteration is Iteration.TILE:
        return _streamed(verified)
    told: dict[tuple[str, ...], list[int]] = {}
    for consumer in sorted({op.consumer for op in verified.program.loop if op.consumer is not None}):
        own = (*_same_warpgroup(verified, consumer), *_issued_before(verified, consumer))
        told.setdefault(own, []).append(consumer)
    found = list(_together(verified))
    for own, consumers in told.items():
        names = joined([f"{PartitionRole.CONSUMER}{c}" for c in consumers])
        found += [text if len(told) == 1 else f"In {names}: {text}" for text in own]
    return (*found, *_loading(verified))


def _loading(verified: VerifiedSchedule) -> Iterator[str]:
    """Which of two loading warps brings which tensors."""
    brings: dict[str, list[str]] = {}
    for op in verified.program.of(OpKind.TMA_LOAD):
        brings.setdefault(verified.schedule.place(op.id).partition, []).append(operand(op))
    if len(brings) > 1:
        words = (f"{name} brings {joined(list(dict.fromkeys(own)))}" for name, own in sorted(brings.items()))
        yield f"Of {len(brings)} loading warps {joined(list(words))}."


def words_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """The sentences, and what the runner-up would have cost."""
    lines = [line for text in sentences(verified) for line in wrapped(text, width)]
    return lines + [line for text in _runner_up(verified, certificate) for line in wrapped(text, width)]


def _runner_up(verified: VerifiedSchedule, certificate: Certificate) -> Iterator[str]:
    """The best of the other structures: what it costs, or at least, and what it does otherwise."""
    if not certificate.runners_up:
        return
    best = verified.schedule.prediction.microseconds
    runner = certificate.runners_up[0]
    more = runner.microseconds / best - 1
    cost = f"{runner.microseconds:,.2f} us, {percent(abs(more), 2)} {'more' if more >= 0 else 'less'}"
    if runner.ii is None:
        yield f"The runner-up was not solved: by its bound it takes {cost}, at least."
    else:
        yield f"The runner-up would have taken {cost}, with an II of {runner.ii:,} cycles."
    ours, theirs = verified.schedule.structure, runner.structure
    yield (
        f"It has {joined(differences(ours, theirs))}." if theirs != ours else "It differs in its order alone."
    )


def differences(ours: Structure, theirs: Structure) -> list[str]:
    """Fields in which another structure differs from ours, in words."""
    own, others = structure_fields(ours), structure_fields(theirs)
    return [
        f"{name.replace('_', ' ')} {said(others[name])} instead of {said(own[name])}"
        for name in own
        if own[name] != others[name]
    ]


def runner_up_data(verified: VerifiedSchedule, other: VerifiedSchedule | None) -> dict[str, Any]:
    """Winner and runner-up as plain data: times in microseconds, what differs, and what each does."""
    ours, best = verified.schedule, _told(verified)
    if other is None:
        return {"winner": best, "runner_up": None, "differences": []}
    theirs = other.schedule
    changed = differences(ours.structure, theirs.structure)
    changed += [f"II {theirs.ii:,} instead of {ours.ii:,}"] if theirs.ii != ours.ii else []
    return {"winner": best, "runner_up": _told(other), "differences": changed}


def _told(verified: VerifiedSchedule) -> dict[str, Any]:
    time_us = verified.schedule.prediction.microseconds
    return {"predicted_us": time_us, "ii_cycles": verified.schedule.ii, "does": list(sentences(verified))}


def runner_up_text(verified: VerifiedSchedule, other: VerifiedSchedule | None) -> str:
    """`runner_up_data` as text; ends in a newline."""
    found = runner_up_data(verified, other)
    lines: list[str] = []
    for name in ("winner", "runner_up"):
        if found[name] is None:
            lines += ["", "No other structure has a schedule."]
            continue
        head = f"The {name.replace('_', '-')}: {found[name]['predicted_us']:,.2f} us"
        lines += ["", head, "-" * len(head)]
        if name == "runner_up":
            lines += wrapped(f"It has {joined(found['differences']) or 'another order alone'}.")
        lines += [line for text in found[name]["does"] for line in wrapped(text)]
    return "\n".join(lines[1:]) + "\n"
