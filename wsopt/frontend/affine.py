"""Conditions on indices as affine bounds, and what follows from bounds for whole rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from wsopt.frontend.expand import Term
from wsopt.frontend.values import Pool
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
        case (("add" | "sub"), (x, y)):
            first, second = affine(pool, x), affine(pool, y)
            if first is None or second is None:
                return None
            return first.plus(second.times(1 if value.primitive == "add" else -1))
        case "mul", (x, y):
            first, second = affine(pool, x), affine(pool, y)
            if first is None or second is None:
                return None
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
    if inside is not None:
        below, above = affine(pool, inside[0]), affine(pool, high)
        if below is None or above is None:
            return None
        return tuple(_bound(above.plus(below.times(sign)).plus(_Affine(constant=slack))) for sign in (-1, 1))
    below, above = affine(pool, low), affine(pool, high)
    if below is None or above is None:
        return None
    return (_bound(above.plus(below.times(-1)).plus(_Affine(constant=slack))),)


def bounds_of(pool: Pool, condition: Term) -> tuple[Bound, ...] | None:
    """Bounds that are equal to a comparison when all hold; None for a comparison of other values than indices.

    Only bounds whose coefficients are -1, 0 and 1 are given: those that K-blocks are split by.
    """
    if not isinstance(condition, str):
        return None
    match pool[condition].primitive, pool[condition].args:
        case "less_equal", (x, y):
            found = _at_most(pool, x, y, 0)
        case "less", (x, y):
            found = _at_most(pool, x, y, -1)
        case "greater_equal", (x, y):
            found = _at_most(pool, y, x, 0)
        case "greater", (x, y):
            found = _at_most(pool, y, x, -1)
        case "equal", (x, y):
            low, high = _at_most(pool, x, y, 0), _at_most(pool, y, x, 0)
            found = None if low is None or high is None else low + high
        case _:
            return None
    if found is None or any(abs(b.row) > 1 or abs(b.stream) > 1 for b in found):
        return None
    return found


def conjuncts(pool: Pool, condition: Term) -> tuple[Term, ...]:
    """The conjuncts of a condition."""
    args = pool.match(condition, "logical_and")
    return (condition,) if args is None else tuple(c for a in args for c in conjuncts(pool, a))


def condition_bounds(pool: Pool, condition: Term) -> Bounds:
    """The bounds that a condition implies."""
    return frozenset(b for c in conjuncts(pool, condition) for b in bounds_of(pool, c) or ())


def every_row_counts(bounds: Iterable[Bound], rows: int, stream: int) -> bool:
    """Whether every row has an element of the streamed axis inside all bounds.

    The range of j that is left is at its shortest at the first or the last row: it is a concave function.
    """
    for row in (0, rows - 1):
        low, high = 0, stream - 1
        for b in bounds:
            edge = b.row * row + b.constant
            if b.stream == 0 and edge < 0:
                return False
            low = max(low, -edge) if b.stream > 0 else low
            high = min(high, edge) if b.stream < 0 else high
        if low > high:
            return False
    return True


def end_is_masked(bounds: Iterable[Bound], rows: int, stream: int) -> bool:
    """Whether bounds leave every row without elements beyond the end of the streamed axis."""
    last = max(rows - 1, 0)
    return any(b.stream < 0 and max(b.constant, b.row * last + b.constant) < stream for b in bounds)
