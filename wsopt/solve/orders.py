"""The order of a schedule's operations, and the constraints that ask for another order or for a published one.

A partition's thread meets its operations in an order, each of some iteration before or after the others':
that, and who does what, is what is emitted. Starts alone are not: a schedule whose operations are moved without
passing each other is the same program.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import combinations

from wsopt.program.program import OpKind, TileOp
from wsopt.schedule.types import Schedule
from wsopt.solve.variables import Model


def ask_for_another(m: Model, schedule: Schedule) -> None:
    """Rule out this schedule's order, and nothing else.

    With d = floor((start(b) - start(a)) / II) for every two operations of a partition, the d's say the order in full:
    some start(b) - start(a) is below d * II or not below (d + 1) * II.
    """
    ids = {str(one): one for one in m.start}
    different = []
    for partition in schedule.partitions:
        own = [placed for placed in schedule.placed if placed.partition == partition.name]
        for a, b in combinations(own, 2):
            d = ((b.stage - a.stage) * schedule.ii + b.cycle - a.cycle) // schedule.ii
            apart, name = m.start[ids[b.op]] - m.start[ids[a.op]], f"another[{a.op},{b.op}]"
            earlier, later = m.cp.new_bool_var(f"{name}<{d}"), m.cp.new_bool_var(f"{name}>{d}")
            m.cp.add(apart <= d * m.ii - 1).only_enforce_if(earlier)
            m.cp.add(apart >= (d + 1) * m.ii).only_enforce_if(later)
            different += [earlier, later]
    m.cp.add_bool_or(different)


class Overlap(StrEnum):
    """Demand on the order of a consumer's K-blocks: forms that experts have published. The search takes what is best.

    Two consumers hide the softmax of a K-block under the next K-block's first product, which each issues before it;
    three treat K-block after K-block, and the tensor core is filled by the others.
    """

    ANY = "any"
    NEXT_FIRST = "next product first"
    NONE = "K-block by K-block"


def ask_for(m: Model, overlap: Overlap) -> None:
    """Constrain the model to an overlap. Where a loop computes nothing from products there is none to ask for."""
    if overlap is Overlap.ANY:
        return
    for product, value in _first_products(m):
        if overlap is Overlap.NEXT_FIRST:
            m.cp.add(m.start[product.id] + m.ii <= m.start[value.id])
            continue
        for other in m.program.loop:
            if other.consumer == product.consumer and other is not product:
                ends = other.latency if other.kind is OpKind.MMA else other.issue
                m.cp.add(m.start[product.id] + m.ii >= m.start[other.id] + m.t(ends))


def _first_products(m: Model) -> Iterator[tuple[TileOp, TileOp]]:
    """Products that need no value of their K-block, each with a value that is computed from it."""
    ops = {op.id: op for op in m.program.loop}
    edges = [(ops[e.source], ops[e.target]) for e in m.program.edges if e.distance == 0]
    later = {target.id for source, target in edges if source.kind is OpKind.ELEMENTWISE}
    for source, target in edges:
        first = source.kind is OpKind.MMA and source.id not in later
        if first and target.kind is OpKind.ELEMENTWISE:
            yield source, target
