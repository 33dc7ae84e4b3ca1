"""One initiation interval as the schedule has it: units and roles as rows, operations as bars, channels as arrows."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.pages.drawn import Arrow, Bar, Picture, Row
from wsopt.program.ids import OpId
from wsopt.program.program import TileOp
from wsopt.program.units import UNITS
from wsopt.schedule.verified import VerifiedSchedule


def rows_of(verified: VerifiedSchedule) -> dict[str, Row]:
    """The rows of a schedule's pictures by the name of the unit or partition: units that are held, then partitions
    that have operations of the loop.
    """
    held = {unit for op in verified.program.loop for unit, _ in op.held}
    units = {name: Row(entry.words, "unit") for name, entry in UNITS.items() if name in held}
    placed = {one.partition for one in verified.schedule.placed}
    names = [one.name for one in verified.schedule.partitions if one.name in placed]
    return {**units, **{name: Row(name, "role") for name in names}}


def interval_picture(verified: VerifiedSchedule) -> Picture:
    """One initiation interval of the steady state, by the schedule's own numbers."""
    rows, ii = rows_of(verified), float(verified.schedule.ii)
    numbers = {name: number for number, name in enumerate(rows)}
    bars = [bar for op in verified.program.loop for bar in _bars(verified, op, numbers)]
    return Picture(
        tuple(rows.values()), tuple(bars), tuple(_arrows(verified, numbers)), (), ii, (0.0, ii)
    )  # fmt: skip


def _bars(verified: VerifiedSchedule, op: TileOp, numbers: dict[str, int]) -> Iterator[Bar]:
    """An operation on every unit that it holds and on its partition, in two bars where it passes the end."""
    placed, ii = verified.schedule.place(op.id), verified.schedule.ii
    issue = [(placed.partition, op.issue)] if op.issue else []
    for name, cycles in (*op.held, *issue):
        end = placed.cycle + cycles
        here = min(end, ii)
        yield Bar(numbers[name], placed.cycle, here, str(op.id), placed.stage, goes=end > ii)
        if end > ii:
            yield Bar(numbers[name], 0, min(end - ii, ii), str(op.id), placed.stage, comes=True)


def _arrows(verified: VerifiedSchedule, numbers: dict[str, int]) -> Iterator[Arrow]:
    """What crosses from one partition to another: results through dependences, and slots that come back."""
    schedule, ii = verified.schedule, verified.schedule.ii
    for source, target, later in channels(verified):
        one, other = schedule.place(source), schedule.place(target)
        result = schedule.start(source) + _until(verified, source)
        slack = schedule.start(target) + later * ii - result
        yield Arrow(
            str(source), str(target), numbers[one.partition], result % ii, numbers[other.partition], other.cycle,
            one.stage, slack,
        )  # fmt: skip


def _until(verified: VerifiedSchedule, source: OpId) -> int:
    """Cycles from an operation's start until those who wait for it see its result."""
    op = verified.program.op(source)
    returns = any(source in plan.releases for plan in verified.program.rings)
    return op.latency + (op.issue if returns else 0)


def channels(verified: VerifiedSchedule) -> Iterator[tuple[OpId, OpId, int]]:
    """Pairs of operations of different partitions, the first of which the second waits for, so many iterations
    later: dependences, and for each ring the returns of slots to the loads that fill them again.
    """
    schedule, program = verified.schedule, verified.program
    partition = {one.op: one.partition for one in schedule.placed}
    for edge in program.edges:
        if partition[str(edge.source)] != partition[str(edge.target)]:
            yield edge.source, edge.target, edge.distance
    for plan in program.rings:
        for release in plan.releases:
            later, k_block = divmod(release.k_block + schedule.depth(plan.name), program.structure.copies)
            loads = [load for load in plan.loads if load.k_block == k_block]
            first = min(loads, key=lambda load: (schedule.start(load), load))
            if partition[str(release)] != partition[str(first)]:
                yield release, first, later
