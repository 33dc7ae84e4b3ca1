"""Places in rows that are reduced: which element is the largest, and the sum up to each."""

from __future__ import annotations

import math
from functools import partial

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.kinds import Kind
from wsopt.frontend.values import Pool, Term
from wsopt.graph.types import DType, Node
from wsopt.tensors.views import Role

MOST_PLACES = 1 << 24
"""Elements of a row up to which f32 has every place."""

_WHOLE = (DType.I32, DType.I8)


def arg_max(pool: Pool, kind: Kind, node: Node, x: Term) -> Term:
    """The least place at which the row's largest is, or what is not a number: as f32, which has them exactly.

    Where reductions run on from part to part, places are kept for as long as the largest stays what it is. Raises
    LoweringError for whole numbers, and for what one pass over a row does not give.
    """
    if isinstance(x, str) and pool[x].dtype in _WHOLE:
        raise LoweringError(
            f"node {node.name}: reduce_argmax of whole numbers is not lowered; cast to f32 first"
        )
    if kind.along is Role.STREAM or (kind.runs_on and pool.needs(x)):
        where = "beside products" if kind.along is Role.STREAM else "of reduced rows that no SM holds"
        raise LoweringError(
            f"node {node.name}: reduce_argmax {where} is not lowered; {remedies.computed_before([node.tensors[0]])}"
        )
    make = partial(pool.apply, node.name)
    either = partial(pool.make, "logical_or", dtype=DType.BOOL, node=node.name)
    along = kind.along
    place = pool.make(f"iota_{along}", (), DType.I32, node.name, ("", 0), frozenset({along}))
    peak = make("reduce_largest", x)
    chosen = either(args=(make("equal", x, peak), make("not_equal", x, x)))
    places = make("where", chosen, make("neg", make("round_f32", place)), -math.inf)
    if not kind.runs_on:
        return make("neg", make("reduce_max", places))
    before = make("before", peak)
    same = either(args=(make("equal", before, peak), make("not_equal", before, before)))
    return make("neg", make("reduce_max", places, same))


def running_sum(pool: Pool, kind: Kind, node: Node, x: Term) -> Term:
    """The sum of each element of a row that a tile holds whole and all before it. Raises LoweringError for others."""
    if kind is Kind.LONG_ROWS:
        raise LoweringError(
            f"node {node.name}: cumsum is lowered of rows that an SM holds whole; {remedies.SUMS_OF_PARTS}"
        )
    if kind is not Kind.ROWS:
        before = remedies.computed_before([node.tensors[0]])
        raise LoweringError(f"node {node.name}: cumsum beside products is not lowered; {before}")
    return pool.apply(node.name, "running_sum", x)
