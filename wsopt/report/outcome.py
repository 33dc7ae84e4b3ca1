"""Sections on the result: predicted time by its parts, the limits that bind, and the certificate."""

from __future__ import annotations

from collections.abc import Sequence

from wsopt.perf.paths import memory_us
from wsopt.program.limits import MOST_SLOTS
from wsopt.program.program import Iteration
from wsopt.program.types import Sharing, Structure
from wsopt.report.facts import (
    Part,
    ii_limits,
    kernel_limits,
    places,
    register_facts,
    tensor_cycles,
    tile_epilogue,
    tiles_in_words,
    time_parts,
)
from wsopt.report.layout import counted, difference, joined, microseconds, percent, shares, table, wrapped
from wsopt.report.walls import wall_sentences
from wsopt.schedule import memory
from wsopt.schedule.certificate import Certificate, Rejected, RunnerUp
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.targets import target_of

_NO_DIFFERENCE_US = 5e-4


def time_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """The predicted time by its parts, the memory floors, the launch, the total, and the roofline bound."""
    p, machine = verified.schedule.prediction, verified.machine
    parts = time_parts(verified)
    rows = [
        (part.name, f"{part.amount:,.0f}", microseconds(machine.seconds(part.amount) * 1e6), f"{share} %")
        for part, share in zip(parts, shares([part.amount for part in parts]), strict=True)
    ]
    rows.append(("on the SMs", f"{p.cycles:,.0f}", microseconds(p.sm_us), "100.0 %"))
    return [
        *table(("part", "cycles", "us", "share"), rows, "<>>>", width),
        "",
        *table(("", "us", ""), _bounds(verified), "<><", width),
    ]


def _bounds(verified: VerifiedSchedule) -> list[tuple[str, str, str]]:
    """Floors, launch, total and roofline, each with what it comes from."""
    p, machine, program = verified.schedule.prediction, verified.machine, verified.program
    rate = program.whole.needed_flops / p.microseconds / 1e6
    reached = percent(p.roofline_us / p.microseconds)
    return [
        ("floor of device memory", microseconds(p.dram_us), f"{program.dram_bytes:,} bytes"),
        ("floor of L2", microseconds(p.l2_us), "all that the SMs load and store"),
        ("launch", microseconds(machine.kernel_launch_us), ""),
        ("predicted", microseconds(p.microseconds), f"{rate:,.1f} TFLOP/s"),
        ("roofline bound", microseconds(p.roofline_us), f"by {_roof(verified)}; {reached} of it reached"),
    ]


def _roof(verified: VerifiedSchedule) -> str:
    """Cause of the roofline bound in words: the compulsory bytes, or else arithmetic."""
    program = verified.program
    nbytes_us = memory_us(program, program.whole.needed_bytes, verified.machine)
    return "the compulsory bytes" if nbytes_us >= verified.schedule.prediction.roofline_us else "arithmetic"


def binding_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """Section on limits: of the initiation interval, of the whole kernel, and what the tail wave leaves idle."""
    schedule = verified.schedule
    limits, kernel = ii_limits(verified), kernel_limits(verified)
    rows = [(part.name, f"{part.amount:,.0f}", percent(part.amount / schedule.ii, 0)) for part in limits]
    floors = ", ".join(f"{part.name} {microseconds(part.amount)} us" for part in kernel)
    lines = [
        *wrapped(f"The loop: {binds(limits, schedule.ii)}", width),
        "",
        *table(("limit of II", "cycles", "of II"), rows, "<>>", width),
        "",
        *wrapped(f"The kernel: bound by {schedule.prediction.bound_by} ({floors}).", width),
        *(line for text in wall_sentences(verified) for line in wrapped(text, width)),
    ]
    sentences = (
        _tensor_share(verified),
        _epilogues(verified),
        _quantization(verified),
        _budgets(verified, certificate.margin),
    )
    return lines + [line for sentence in sentences for line in wrapped(sentence, width)]


def binds(limits: tuple[Part, ...], ii: int) -> str:
    """Which limits II meets exactly, or that none alone gives it."""
    met = [part.name for part in limits if part.amount >= ii]
    if met:
        return f"{joined(met)} {'binds' if len(met) == 1 else 'bind'}; II is its least, {ii:,} cycles."
    nearest = limits[0]
    return (
        f"no limit alone gives an II of {ii:,} cycles; the nearest is {nearest.name} with "
        f"{nearest.amount:,.0f}, the rest is how operations fit together."
    )


def _tensor_share(verified: VerifiedSchedule) -> str:
    p = verified.schedule.prediction
    if verified.program.iteration is Iteration.TILE:
        reached = verified.program.dram_bytes / p.microseconds / 1e3
        return f"Device memory: {reached:,.0f} GB/s read and written."
    shares = verified.program.shares
    iterations = p.waves * verified.program.k_iterations if shares is None else shares.k_iterations
    held = tensor_cycles(verified, iterations)
    return f"Tensor core: held for {held:,} of {p.cycles:,.0f} cycles, {percent(held / p.cycles)}."


def _epilogues(verified: VerifiedSchedule) -> str:
    if verified.program.iteration is Iteration.TILE:
        return f"Epilogue: none; {hidden(verified)}."
    return f"Epilogue: {tile_epilogue(verified):,} cycles a tile, {hidden(verified)}."


def hidden(verified: VerifiedSchedule) -> str:
    """What an epilogue runs under, if it is hidden under anything."""
    if verified.program.iteration is Iteration.TILE:
        return "every tile of rows is stored in the loop"
    if verified.program.structure.sharing is Sharing.PING_PONG:
        return "under the loop of another consumer"
    if verified.schedule.buffers.sums > 1:
        return "under the products of the next one"
    if verified.program.structure.loops_an_sm > 1:
        return "while the SM's other blocks may be in their loops"
    return "all consumers at once, the tensor core idle"


def _quantization(verified: VerifiedSchedule) -> str:
    tiles, sms = verified.program.tiles, verified.machine.sm_count
    waves, room = verified.schedule.prediction.waves, places(verified)
    if verified.program.structure.shares:
        return f"Waves: none; {tiles_in_words(verified.program)}."
    return (
        f"Waves: {tiles_in_words(verified.program)} in {counted(waves, 'wave')} of {sms} SMs, "
        f"{room:,} places, {percent(tiles / room)} used."
    )


def _budgets(verified: VerifiedSchedule, margin: int) -> str:
    """Registers of the tightest partition, shared memory, and whether another slot would fit."""
    schedule, limit = verified.schedule, memory.shared_capacity(verified.program.structure, verified.machine)
    held = [one for one in register_facts(verified, margin) if one.parts]
    tight = max(held, key=lambda one: one.needs / one.partition.registers)
    deeper = any(
        schedule.depth(plan.name) < MOST_SLOTS
        and schedule.shared_memory_bytes + plan.slot_bytes + 2 * memory.BARRIER_BYTES <= limit
        for plan in verified.program.rings
    )
    told = "a deeper ring fits" if deeper else "no deeper ring fits"
    return (
        f"Budgets: {tight.needs} of {tight.partition.registers} registers needed on {tight.partition.name}; "
        f"{schedule.shared_memory_bytes:,} of {limit:,} bytes of shared memory, {told}."
    )


def certificate_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """The counts of the search, its gap, and the winner beside those that lost, with the reason of each."""
    c = certificate
    budgets = ", ".join(f"{name} {count:,}" for name, count in c.infeasible) or "none"
    counts = (
        f"{counted(c.considered, 'structure')} considered: {c.pruned:,} dropped by bound; "
        f"{sum(count for _, count in c.infeasible):,} infeasible ({budgets}); {c.solved:,} solved; "
        f"{c.unfinished:,} left open."
    )
    asked = (
        f"Conditions: {c.conditions}. What follows is of schedules that meet them." if c.conditions else ""
    )
    bound = f"Status: {c.status}. Bound {microseconds(c.bound_us)} us, gap {percent(c.gap, 2)}."
    header = ("tile", "consumer", "subtiles", "group", "blocks", "us", "")
    best_us = verified.schedule.prediction.microseconds
    place = "the winner" if c.rank == 1 else f"this one, number {c.rank}"
    won = f"{place} (II {verified.schedule.ii:,})"
    rows = [_candidate(verified.schedule.structure, best_us, won)]
    rows += [_candidate(one.structure, one.microseconds, lost(one, best_us)) for one in c.runners_up]
    if c.rank > 1:
        least = microseconds(c.rank_bound_us)
        bound += f" All schedules but the {c.rank - 1} before it take {least} us at least."
    told = [line for text in (asked, counts, bound, *_validity(verified)) for line in wrapped(text, width)]
    shown = [*told, "", *table(header, rows, "<<>><><", width)]
    return [*shown, *_rejected_lines(c.rejected, width)]


def _validity(verified: VerifiedSchedule) -> tuple[str, ...]:
    """What the times are worth, where no prediction of such kernels was ever held against a measurement."""
    machine = verified.machine
    if target_of(machine).validated:
        return ()
    return (
        f"Predicted only: all times are the model's, and no kernel for {machine.architecture} was measured; of the "
        f"machine's figures {counted(len(machine.assumed()), 'is', 'are')} scaled from another card or estimated.",
    )


def _rejected_lines(rejected: Sequence[Rejected], width: int) -> list[str]:
    """Lines on schedules that were solved and then rejected by the compiler, or because lines of their kernels never
    ran in the simulation.
    """
    if not rejected:
        return []
    lines = ["", "Solved, and rejected by the compiler or the simulation:"]
    for one in rejected:
        why = one.why.partition(";")[0]
        told = f"{one.structure.describe()}: {microseconds(one.microseconds)} us by the model; {why}"
        lines += wrapped(told, width)
    return lines


def _candidate(s: Structure, time_us: float, reason: str) -> tuple[str, ...]:
    """A line of the table: the structure in short, its time or bound, and how it ended."""
    return (
        f"{s.tile_rows}x{s.columns}x{s.depth}",
        f"{s.consumers}x{s.consumer_warps}",
        str(s.subtiles),
        str(s.group),
        _blocks(s),
        microseconds(time_us),
        reason,
    )


def _blocks(s: Structure) -> str:
    """How blocks take tiles, and what is unusual about their tiles."""
    words = ["persistent" if s.persistent else "one tile"]
    words += ["ping-pong"] if s.sharing is Sharing.PING_PONG else []
    words += [] if s.early_release else ["whole"]
    words += [f"{s.copies} a pass"] if s.copies > 1 else []
    words += ["swapped"] if s.swap else []
    words += [f"split {s.splits} ways"] if s.splits > 1 else []
    words += ["atomics"] if s.atomics else []
    words += ["equal shares"] if s.shares else []
    words += ["pairs"] if s.paired else []
    words += ["scaled sums"] if s.scaled_sums else []
    return ", ".join(words)


def lost(runner: RunnerUp, best_us: float) -> str:
    """Why a structure lost against a winner of `best_us` microseconds, or was not taken though it is faster."""
    behind = runner.microseconds - best_us
    if runner.ii is None:
        near = behind < _NO_DIFFERENCE_US
        return "its bound is no better" if near else f"its bound is {difference(behind)} us above the winner"
    if behind < -_NO_DIFFERENCE_US:
        return f"solved: {difference(-behind)} us faster by the model (II {runner.ii:,})"
    if behind < _NO_DIFFERENCE_US:
        return f"solved: as fast, after the winner in order (II {runner.ii:,})"
    return f"solved: {difference(behind)} us slower (II {runner.ii:,})"
