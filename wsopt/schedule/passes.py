"""Chooses where a consumer's pass begins: so that no product is under way at its end, if the schedule allows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wsopt.program.program import OpKind
from wsopt.schedule.types import PlacedOp
from wsopt.schedule.verified import VerifiedSchedule


def in_pass(verified: VerifiedSchedule, partition: str) -> tuple[PlacedOp, ...]:
    """A partition's operations in the order in which its thread meets them in a pass, stages counted from there.

    As `Schedule.of`, whose pass begins with the earliest operation; but in a loop that computes values a pass
    begins with the first product that would be under way at its end, if it spans no more stages so: ptxas runs
    products one by one where a loop goes round while one is under way and others follow (its warning C7514).
    """
    schedule = verified.schedule
    placed = schedule.of(partition)
    if not verified.program.computes_with_products:
        return placed
    ii, starts = schedule.ii, {p.op: p.stage * schedule.ii + p.cycle for p in placed}
    under_way = tuple(_under_way(verified, starts))
    for begin in (0, *sorted(issued % ii - ii for issued, _ in under_way)):
        turned = schedule.of(partition, begin)
        fewest = _last_stage(turned) <= _last_stage(placed)
        if fewest and all((end - begin) // ii == (issued - begin) // ii for issued, end in under_way):
            return turned
    return placed


def _last_stage(placed: tuple[PlacedOp, ...]) -> int:
    return max((one.stage for one in placed), default=0)


def _under_way(verified: VerifiedSchedule, starts: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """When each product of a partition is issued, and when something first waits for it."""
    own = {op.id: starts[str(op.id)] for op in verified.program.loop if str(op.id) in starts}
    for product in (op for op in own if op.kind is OpKind.MMA):
        waits = (
            own[edge.target] + edge.distance * verified.schedule.ii
            for edge in verified.program.edges
            if edge.source == product and edge.target in own and edge.target.kind is not OpKind.MMA
        )
        yield own[product], min(waits, default=own[product])
