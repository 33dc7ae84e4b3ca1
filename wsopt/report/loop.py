"""Sections on the streamed loop: the chart of one II, each role's pass in words, the rings."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.perf.stores import tile_stores
from wsopt.program.program import Iteration, OpKind
from wsopt.program.types import Sharing
from wsopt.program.units import UNITS
from wsopt.report.facts import RingFacts, ring_facts
from wsopt.report.gantt import Bar, Row, chart
from wsopt.report.layout import counted, joined, percent, table, wrapped
from wsopt.report.words import NamedOp, does, named_ops
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.passes import in_pass
from wsopt.schedule.types import Partition, PartitionRole
from wsopt.schedule.verified import VerifiedSchedule

_NOTE = (
    "A bar on a unit is the time that it is held, on a partition the time that issue takes. P1·2 is P1 in "
    "stage 2, counted from its partition's first operation: it works on the iteration two before. A bar that "
    "ends in ▶ goes on at ◀. Figures are cycles; the result is there that long after the start."
)


def chart_rows(verified: VerifiedSchedule) -> tuple[Row, ...]:
    """Units by the cycles that operations hold them, partitions by the cycles that issue takes."""
    ops = named_ops(verified)
    rows = [
        Row(
            entry.words,
            tuple(_bar(one, cycles) for one in ops for held, cycles in one.op.held if held == unit),
        )
        for unit, entry in UNITS.items()
    ]
    for partition in verified.schedule.partitions:
        own = (one for one in ops if one.placed.partition == partition.name and one.op.issue)
        rows.append(Row(partition.name, tuple(_bar(one, one.op.issue) for one in own)))
    return tuple(row for row in rows if row.bars)


def _bar(named: NamedOp, length: int) -> Bar:
    return Bar(named.label, named.placed.cycle, length)


def gantt_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """The chart of one initiation interval with its legend."""
    schedule = verified.schedule
    legend = [(one.key, one.placed.partition, *_figures(one), one.words) for one in named_ops(verified)]
    header = ("key", "partition", "stage", "cycle", "issue", "busy", "result", "operation")
    return [
        f"II = {schedule.ii:,} cycles, {counted(verified.program.k_iterations, 'iteration')} a tile",
        "",
        *chart(chart_rows(verified), schedule.ii, width),
        "",
        *table(header, legend, "<<>>>>><", width),
        "",
        *wrapped(_NOTE, width),
    ]


def _figures(named: NamedOp) -> tuple[str, ...]:
    op, placed = named.op, named.placed
    return tuple(f"{figure:,}" for figure in (named.stage, placed.cycle, op.issue, op.busy, op.latency))


def pipeline_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """Section on each partition: its operations in one pass of the loop, in program order, and around the loop."""
    lines: list[str] = []
    for partition in verified.schedule.partitions:
        lines += wrapped(f"{partition.name}: {_pass(verified, partition)}", width, hang="  ")
    for sentence in _ahead(verified):
        lines += wrapped(sentence, width)
    return lines


def _pass(verified: VerifiedSchedule, partition: Partition) -> str:
    """The program of one partition in words."""
    if partition.role is PartitionRole.STORE_WARP:
        return f"starts the stores of consumer{partition.index}, and tells it when buffers are free."
    named = {one.placed.op: one for one in named_ops(verified)}
    order = [named[placed.op] for placed in in_pass(verified, partition.name)]
    reads = verified.program.tensor_columns and not verified.program.values_apart
    if partition.role is PartitionRole.CONSUMER and reads:
        return f"reads a tile's sums from tensor memory. {_epilogue(verified)}"
    if not order:
        return _same_in_turn(verified)
    text = "; ".join(does(one, verified.program) for one in order) + "."
    last = max(one.stage for one in order)
    if last:
        passes = counted(last, "pass", "passes")
        text += f" {last + 1} stages: {passes} before the steady state, {passes} after it."
    if partition.role is PartitionRole.CONSUMER:
        text += " " + _epilogue(verified)
    return text


def _same_in_turn(verified: VerifiedSchedule) -> str:
    if verified.program.structure.sharing is Sharing.PING_PONG:
        return "the same on the block's next tile, one consumer's epilogue under another's loop."
    return "nothing in the loop."


def _epilogue(verified: VerifiedSchedule) -> str:
    p = verified.program
    if p.structure.resident:
        return "Threads store each output."
    if p.iteration is Iteration.TILE:
        return (
            f"Each output is stored through {counted(verified.schedule.buffers.staging, 'staging buffer')}."
        )
    full = counted(p.structure.subtiles, "subtile")
    buffers = verified.schedule.buffers
    staged = [counted(buffers.staging, "staging buffer")] if buffers.staging else []
    if any(store.buffer.source for store in tile_stores(p, buffers).stores):
        staged.append("the buffers of inputs that were read")
    words = " and ".join(staged)
    if buffers.inputs:
        words += f", inputs through {counted(buffers.inputs, 'buffer')} each"
        words += " that the loading warp fills" if buffers.inputs_by_loader else ""
    stored = " A warp of its own starts the stores." if buffers.store_warp else ""
    return f"After {counted(p.k_iterations, 'iteration')} the epilogue: {full} through {words}.{stored}"


def _ahead(verified: VerifiedSchedule) -> Iterator[str]:
    """How far each loading partition runs ahead of each one with products, first operation to first."""
    program, schedule = verified.program, verified.schedule
    begins = {p.name: _begins(verified, p.name) for p in schedule.partitions}
    loads = {schedule.place(op.id).partition for op in program.loop if op.kind is OpKind.TMA_LOAD}
    work = OpKind.MMA if program.whole.products else OpKind.ELEMENTWISE
    products = {schedule.place(op.id).partition for op in program.loop if op.kind is work}
    for source in sorted(loads):
        ahead: dict[int, list[str]] = {}
        for target in sorted(products):
            ahead.setdefault(begins[target] - begins[source], []).append(target)
        words = [
            f"{cycles:,} cycles ({cycles / schedule.ii:.1f} iterations) ahead of {joined(names)}"
            for cycles, names in ahead.items()
        ]
        yield f"{source} issues its loads {joined(words)}."


def _begins(verified: VerifiedSchedule, partition: str) -> int:
    """Cycle of a partition's first operation; 0 for one without operations in the loop."""
    schedule = verified.schedule
    own = (placed for placed in schedule.placed if placed.partition == partition)
    return min((one.stage * schedule.ii + one.cycle for one in own), default=0)


def ring_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """Every ring: its slots, a slot's lifetime, what the depth covers, and the slack."""
    rings = ring_facts(verified)
    if not rings:
        return ["none: threads read what a block's tile takes"]
    header = ("ring", "slots", "bytes a slot", "bytes", "lifetime", "covers", "slack", "")
    rows = [_ring_row(ring) for ring in rings]
    lines = table(header, rows, "<>>>>>><", width)
    return lines + [line for ring in rings for line in wrapped(_life(verified, ring), width)]


def _ring_row(ring: RingFacts) -> tuple[str, ...]:
    figures = (
        ring.depth,
        ring.slot_bytes,
        ring.depth * ring.slot_bytes,
        ring.lifetime,
        ring.covers,
        ring.slack,
    )
    fit = "tight" if ring.slack == 0 else f"{percent(ring.slack / ring.covers, 0)} of it spare"
    return (ring.name, *(f"{figure:,}" for figure in figures), fit)


def _life(verified: VerifiedSchedule, ring: RingFacts) -> str:
    """A slot's life in words, from the issue of its first load, and what the depth covers."""
    keys = {one.op.id: one.key for one in named_ops(verified)}
    between = verified.schedule.start(ring.last) - verified.schedule.start(ring.first)
    covered = f"{counted(ring.depth, 'slot')} x II of {verified.schedule.ii:,}"
    if verified.program.structure.copies > 1:
        covered = (
            f"{ring.covers:,} until the next of {counted(ring.depth, 'slot')}' K-blocks is loaded into it"
        )
    return (
        f"Lifetime: {between:,} cycles from the issue of {keys[ring.first]} to that of {keys[ring.last]}, "
        f"then {ring.lifetime - between:,} until the loader sees the slot free. "
        f"Covered: {covered}."
    )
