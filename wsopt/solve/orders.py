"""The order of a schedule's operations, and the constraints that ask for another order or for an overlap.

A partition's thread meets its operations in an order, each of some iteration before or after the others':
that, and who does what, is what is emitted. Starts alone are not: a schedule whose operations are moved without
passing each other is the same program.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from wsopt.program.conditions import Overlap
from wsopt.program.program import OpKind
from wsopt.schedule.types import PlacedOp, Schedule
from wsopt.solve.variables import Model

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


def ask_for_another(m: Model, schedule: Schedule) -> None:
    """Rule out this schedule's order, and nothing else.

    With d = floor((start(b) - start(a)) / II) for every two operations of a partition, the d's say the order in full:
    some start(b) - start(a) is below d * II or not below (d + 1) * II.
    """
    ids = {str(one): one for one in m.start}
    different = []
    for a, b in _pairs(schedule):
        d = ((b.stage - a.stage) * schedule.ii + b.cycle - a.cycle) // schedule.ii
        apart, name = m.start[ids[b.op]] - m.start[ids[a.op]], f"another[{a.op},{b.op}]"
        earlier, later = m.cp.new_bool_var(f"{name}<{d}"), m.cp.new_bool_var(f"{name}>{d}")
        m.cp.add(apart <= d * m.ii - 1).only_enforce_if(earlier)
        m.cp.add(apart >= (d + 1) * m.ii).only_enforce_if(later)
        different += [earlier, later]
    m.cp.add_bool_or(different)


def overlap(m: Model) -> None:
    """The overlap that the program's conditions ask for: the next K-block's first product is issued before what reads
    this one's begins, or when all that a consumer does for this one has ended.
    """
    asked = m.program.conditions.overlap
    if asked is Overlap.ANY:
        return
    for product, reader in m.program.first_products:
        if asked is Overlap.NEXT_FIRST:
            m.cp.add(m.start[product.id] + m.ii <= m.start[reader.id])
            continue
        for other in m.program.loop:
            if other.consumer == product.consumer and other is not product:
                ends = other.latency if other.kind is OpKind.MMA else other.issue
                m.cp.add(m.start[product.id] + m.ii >= m.start[other.id] + m.t(ends))
