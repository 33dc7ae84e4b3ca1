"""The order of a schedule's operations, and the constraint that asks for another order.

A partition's thread meets its operations in an order, each of some iteration before or after the others':
that, and who does what, is what is emitted. Starts alone are not: a schedule whose operations are moved without
passing each other is the same program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from ortools.sat.python import cp_model

from wsopt.program.ids import OpId
from wsopt.schedule.types import PlacedOp, Schedule

Order = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


def order(schedule: Schedule) -> Order:
    """Each partition's operations in the order in which its thread meets them, with their stages."""
    return tuple(
        (partition.name, tuple((placed.op, placed.stage) for placed in schedule.of(partition.name)))
        for partition in schedule.partitions
    )


def _pairs(schedule: Schedule) -> Iterator[tuple[PlacedOp, PlacedOp]]:
    """Every two operations of one partition."""
    for partition in schedule.partitions:
        yield from combinations((p for p in schedule.placed if p.partition == partition.name), 2)


def ask_for_another(
    cp: cp_model.CpModel,
    ii: cp_model.IntVar,
    start: Mapping[OpId, cp_model.IntVar],
    on: Mapping[tuple[OpId, str], cp_model.IntVar],
    schedule: Schedule,
) -> None:
    """Rule out this schedule's order, and nothing else.

    With d = floor((start(b) - start(a)) / II) for every two operations of a partition, the d's and the
    partitions say the order in full: some operation is elsewhere, or some start(b) - start(a) is below
    d * II or not below (d + 1) * II.
    """
    ids = {str(one): one for one in start}
    different = [~on[ids[placed.op], placed.partition] for placed in schedule.placed]
    for a, b in _pairs(schedule):
        apart = (b.stage - a.stage) * schedule.ii + b.cycle - a.cycle
        d = apart // schedule.ii
        name = f"another[{a.op},{b.op}]"
        earlier, later = cp.new_bool_var(f"{name}<{d}"), cp.new_bool_var(f"{name}>{d}")
        cp.add(start[ids[b.op]] - start[ids[a.op]] <= d * ii - 1).only_enforce_if(earlier)
        cp.add(start[ids[b.op]] - start[ids[a.op]] >= (d + 1) * ii).only_enforce_if(later)
        different += [earlier, later]
    cp.add_bool_or(different)
