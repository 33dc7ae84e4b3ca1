"""Where a consumer's pass begins: no product is under way at its end, where the schedule allows that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from wsopt.schedule.types import PlacedOp, Schedule
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tile.program import OpKind, TileProgram


def in_pass(verified: VerifiedSchedule, partition: str) -> tuple[PlacedOp, ...]:
    """A partition's operations in the order in which its thread meets them in a pass, stages counted from there.

    As `Schedule.of`, whose pass begins with the earliest operation; but in a loop that computes values a pass
    begins with the first product that would be under way at its end, if it spans no more stages so: ptxas runs
    products one by one where a loop goes round while one is under way and others follow (its warning C7514).
    """
    schedule, program = verified.schedule, verified.program
    placed = schedule.of(partition)
    if not program.region.body:
        return placed
    starts = {p.op: p.stage * schedule.ii + p.cycle for p in placed}
    turns = sorted(-schedule.ii + starts[product] % schedule.ii for product in _products(program, starts))
    for begin in (0, *turns):
        turned = tuple(_from(one, starts[one.op] - begin, schedule) for one in placed)
        fewest = _last_stage(turned) <= _last_stage(placed)
        if fewest and not any(_goes_round(verified, starts, begin)):
            return tuple(sorted(turned, key=lambda one: (one.cycle, one.op)))
    return placed


def _products(program: TileProgram, starts: Mapping[str, int]) -> Iterator[str]:
    return (op.name for op in program.loop if op.kind is OpKind.MMA and op.name in starts)


def _from(one: PlacedOp, start: int, schedule: Schedule) -> PlacedOp:
    return replace(one, stage=start // schedule.ii, cycle=start % schedule.ii)


def _last_stage(placed: tuple[PlacedOp, ...]) -> int:
    return max((one.stage for one in placed), default=0)


def _goes_round(verified: VerifiedSchedule, starts: Mapping[str, int], begin: int) -> Iterator[bool]:
    """Of every product, whether it is waited for in a later pass than the one that issues it."""
    ii, kinds = verified.schedule.ii, {op.name: op.kind for op in verified.program.loop}
    for product in _products(verified.program, starts):
        waits = [
            starts[edge.target] + edge.distance * ii
            for edge in verified.program.edges
            if edge.source == product and edge.target in starts and kinds[edge.target] is not OpKind.MMA
        ]
        yield (min(waits, default=starts[product]) - begin) // ii > (starts[product] - begin) // ii
