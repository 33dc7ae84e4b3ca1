"""Conditions on indices as affine bounds, and what follows from bounds for whole rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from wsopt.frontend.needed import row_range
from wsopt.frontend.values import Pool, Term
from wsopt.tensors.views import Bound

Bounds = frozenset[Bound]


@dataclass(frozen=True, slots=True)
class _Affine:
    """row * i + stream * j + constant."""

    row: int = 0
    stream: int = 0
    constant: int = 0

    @property
    def fixed(self) -> bool:
        """Whether neither index is in the expression."""
        return self.row == 0 and self.stream == 0

    def times(self, k: int) -> _Affine:
        return _Affine(self.row * k, self.stream * k, self.constant * k)

    def plus(self, other: _Affine) -> _Affine:
        return _Affine(self.row + other.row, self.stream + other.stream, self.constant + other.constant)


def affine(pool: Pool, term: Term) -> _Affine | None:
    """A term as an affine function of the row and the streamed index, with whole numbers; None if it is none."""
    if not isinstance(term, str):
        whole = not isinstance(term, bool) and math.isfinite(term) and term == int(term)
        return _Affine(constant=int(term)) if whole else None
    value = pool[term]
    match value.primitive, value.args:
        case "iota_row", _:
            return _Affine(row=1)
        case "iota_stream", _:
            return _Affine(stream=1)
        case "round_f32", (x,):  # whole numbers below 2**24 are f32 numbers
            return affine(pool, x)
        case "neg", (x,):
            found = affine(pool, x)
            return found and found.times(-1)
        case (("add" | "sub" | "mul"), (x, y)):
            first, second = affine(pool, x), affine(pool, y)
            if first is None or second is None:
                return None
            if value.primitive != "mul":
                return first.plus(second.times(1 if value.primitive == "add" else -1))
            if first.fixed:
                return second.times(first.constant)
            return first.times(second.constant) if second.fixed else None
    return None


def _bound(expression: _Affine) -> Bound:
    """expression >= 0, with the coefficients' common divisor taken out."""
    common = math.gcd(expression.row, expression.stream) or 1
    return Bound(expression.row // common, expression.stream // common, expression.constant // common)


def _at_most(pool: Pool, low: Term, high: Term, slack: int) -> tuple[Bound, ...] | None:
    """low <= high + slack; a magnitude is below two bounds."""
    inside = pool.match(low, "abs")
    below, above = affine(pool, inside[0] if inside else low), affine(pool, high)
    if below is None or above is None:
        return None
    room = above.plus(_Affine(constant=slack))
    return tuple(_bound(room.plus(below.times(sign))) for sign in ((-1, 1) if inside else (-1,)))


def bounds_of(pool: Pool, condition: Term) -> tuple[Bound, ...] | None:
    """Bounds that are equal to a comparison when all hold; None for a comparison of other values than indices.

    Only bounds whose coefficients are -1, 0 and 1 are given: those that K-blocks are split by.
    """
    if not isinstance(condition, str):
        return None
    value = pool[condition]
    found: list[Bound] = []
    for low, high, slack in _ORDERS.get(value.primitive, ()):
        bounds = _at_most(pool, value.args[low], value.args[high], slack)
        if bounds is None or any(abs(b.row) > 1 or abs(b.stream) > 1 for b in bounds):
            return None
        found.extend(bounds)
    return tuple(found) or None


_ORDERS: Mapping[str, tuple[tuple[int, int, int], ...]] = MappingProxyType({
    "less_equal": ((0, 1, 0),),
    "less": ((0, 1, -1),),
    "greater_equal": ((1, 0, 0),),
    "greater": ((1, 0, -1),),
    "equal": ((0, 1, 0), (1, 0, 0)),
})  # fmt: skip
"""Comparisons of whole numbers: which operand is at most which other one plus a number, all of which have to hold."""


def conjuncts(pool: Pool, condition: Term) -> tuple[Term, ...]:
    """The conjuncts of a condition."""
    args = pool.match(condition, "logical_and")
    return (condition,) if args is None else tuple(c for a in args for c in conjuncts(pool, a))


def condition_bounds(pool: Pool, condition: Term) -> Bounds:
    """The bounds that a condition implies."""
    return frozenset(b for c in conjuncts(pool, condition) for b in bounds_of(pool, c) or ())


def every_row_counts(bounds: Collection[Bound], rows: int, stream: int) -> bool:
    """Whether every row has an element of the streamed axis inside all bounds.

    The range of j that is left is at its shortest at the first or the last row: it is a concave function.
    """
    ranges = (row_range(bounds, row, stream) for row in (0, rows - 1))
    return all(begin < end for begin, end in ranges)


def end_is_masked(bounds: Iterable[Bound], rows: int, stream: int) -> bool:
    """Whether bounds leave every row without elements beyond the end of the streamed axis."""
    last = max(rows - 1, 0)
    return any(b.stream < 0 and max(b.constant, b.row * last + b.constant) < stream for b in bounds)
