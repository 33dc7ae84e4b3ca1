"""Reductions of whole numbers, which kernels compute in f32: it has every whole number up to 2^24.

How large a sum may be follows from what is summed up: a condition is 0 or 1, and a number of 8 bits has its range.
What an input of i32 holds nobody knows before, and a sum of such numbers is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from wsopt.errors import LoweringError
from wsopt.frontend.places import MOST_PLACES
from wsopt.frontend.values import Pool, Term
from wsopt.graph.types import DType, Node

Range = tuple[int, int]
"""The least and the largest that a whole number may be."""

_OF_TYPE = {DType.BOOL: (0, 1), DType.I8: (-128, 127)}


def in_whole_numbers(pool: Pool, node: Node, x: Term, count: int, reduced: Callable[[Term], Term]) -> Term:
    """What a node makes of whole numbers along an axis, `reduced` in f32 and as i32 again; a sum has `count` of them.

    Raises LoweringError where f32 may not have it exactly.
    """
    found = _range(pool, x)
    if found is None or max(-found[0], found[1]) * count > MOST_PLACES:
        known = (
            "whose size is not known" if found is None else f"that may be {max(-found[0], found[1])} large"
        )
        raise LoweringError(
            f"node {node.name}: {node.op} of {count} whole numbers {known} is not lowered: a kernel adds them up in "
            "f32, exactly up to 2^24; reduce conditions, or numbers of 8 bits, or cast to f32 first"
        )
    total = reduced(pool.apply(node.name, "round_f32", x))
    return pool.make("add", (total, 0), DType.I32, node.name)


def _range(pool: Pool, term: Term) -> Range | None:
    """The least and the largest that a whole number may be; None of one that may be anything."""
    if not isinstance(term, str):
        return (int(term), int(term)) if float(term).is_integer() else None
    value = pool[term]
    if value.primitive == "where":
        return _both(*(_range(pool, one) for one in value.args[1:]))
    if value.primitive in ("add", "sub", "mul") and value.dtype is DType.I32:
        first, second = (_range(pool, one) for one in value.args)
        return None if first is None or second is None else _ENDS[value.primitive](first, second)
    return _OF_TYPE.get(value.dtype)


def _both(*ranges: Range | None) -> Range | None:
    known = [one for one in ranges if one is not None]
    if len(known) < len(ranges):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _products(first: Range, second: Range) -> Range:
    found = [one * other for one in first for other in second]
    return min(found), max(found)


_ENDS: dict[str, Callable[[Range, Range], Range]] = {
    "add": lambda first, second: (first[0] + second[0], first[1] + second[1]),
    "sub": lambda first, second: (first[0] - second[1], first[1] - second[0]),
    "mul": _products,
}
"""The range of what an operation makes of two numbers, by primitive."""
