"""Published overlaps of a consumer's K-blocks, as constraints where they are asked for: the forms that experts have
published.

Two consumers hide the softmax of a K-block under the next K-block's first product, which each issues before it; three
treat K-block after K-block, and the tensor core is filled by the others. The search needs neither: it takes what is
best.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from wsopt.program.program import OpKind, TileOp
from wsopt.solve.variables import Model


class Overlap(StrEnum):
    """Demand on a consumer's order."""

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
