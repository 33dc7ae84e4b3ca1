"""Comparisons of affine functions of indices and run-time scalars, as bounds of a loop.

A run-time scalar is an i32 tensor that is one number for a whole tile: a length by batch element, an offset of all
rows. Indices and numbers are small; what a scalar holds is data from outside. Sums with one wrap around in i32 when
the graph is evaluated as it is written, which a bound has to know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.frontend.values import Pool, Term
from wsopt.graph.types import DType
from wsopt.tensors.views import FAR, MOST_TERMS, Bound


@dataclass(frozen=True, slots=True)
class Affine:
    """row * i + stream * j + constant + the sum of coefficients times scalars.

    `added` is how often scalars were added on the way, `largest` the sum of the numbers' magnitudes that were: what
    any partial sum is made of at most. `bare` is a scalar alone.
    """

    row: int = 0
    stream: int = 0
    constant: int = 0
    terms: tuple[tuple[int, str], ...] = ()
    added: int = 0
    largest: int = 0
    bare: bool = False

    def plus(self, other: Affine, times: int = 1) -> Affine:
        """This function and so many times another."""
        found = {name: k for k, name in self.terms}
        for k, name in other.terms:
            found[name] = found.get(name, 0) + times * k
        return Affine(
            self.row + times * other.row,
            self.stream + times * other.stream,
            self.constant + times * other.constant,
            tuple((k, name) for name, k in sorted(found.items()) if k),
            self.added + abs(times) * other.added,
            self.largest + abs(times) * other.largest,
        )


def affine(pool: Pool, term: Term) -> Affine | None:
    """A term as an affine function, with whole numbers, of the row, the streamed index and scalars; None if it is
    none.

    Scalars are not looked for behind a conversion to f32, which rounds them.
    """
    if not isinstance(term, str):
        whole = not isinstance(term, bool) and math.isfinite(term) and term == int(term)
        return Affine(constant=int(term), largest=abs(int(term))) if whole else None
    value = pool[term]
    if value.primitive == "source" and value.dtype is DType.I32 and not value.spans:
        return Affine(terms=((1, value.label[0]),), added=1, bare=True)
    if value.primitive not in ("iota_row", "iota_stream", "round_f32", "neg", "add", "sub", "mul"):
        return None
    parts = [part for part in (affine(pool, a) for a in value.args) if part is not None]
    match value.primitive, parts:
        case "iota_row", _:
            return Affine(row=1)
        case "iota_stream", _:
            return Affine(stream=1)
        case "round_f32", [x] if not x.added:  # whole numbers below 2**24 are f32 numbers
            return x
        case "neg", [x]:
            return Affine().plus(x, -1)
        case (("add" | "sub"), [x, y]):
            return x.plus(y, 1 if value.primitive == "add" else -1)
        case ("mul", [x, y]):
            for factor, other in ((x, y), (y, x)):
                if factor == Affine(constant=factor.constant, largest=factor.largest):
                    return Affine().plus(other, factor.constant)
    return None


_ORDERS = {
    "less_equal": ((0, 1, 0),),
    "less": ((0, 1, -1),),
    "greater_equal": ((1, 0, 0),),
    "greater": ((1, 0, -1),),
    "equal": ((0, 1, 0), (1, 0, 0)),
}
"""Comparisons of whole numbers: which operand is at most which other one plus a number, all of which have to hold."""


def bounds_of(pool: Pool, condition: Term) -> tuple[Bound, ...] | None:
    """Bounds that are equal to a comparison when all hold; None for a comparison of other values than indices.

    Only bounds whose coefficients of indices are -1, 0 and 1 are given: those that K-blocks are split by. With
    scalars also only those that split K-blocks, and whose sums in i32 cannot wrap around but for what scalars hold.
    """
    found: list[Bound] = []
    value = pool[str(condition)]
    for low, high, slack in _ORDERS.get(value.primitive, ()):
        inside = pool.match(value.args[low], "abs")  # a magnitude is below two bounds
        below = affine(pool, inside[0] if inside else value.args[low])
        above = affine(pool, value.args[high])
        if below is None or above is None:
            return None
        # A magnitude is a sum, too: that of the least number is the least number.
        wraps = any(side.added and not side.bare for side in (below, above)) or (inside and below.bare)
        for sign in (-1, 1) if inside else (-1,):
            whole = above.plus(below, sign).plus(Affine(constant=slack))
            if whole.added > MOST_TERMS or (whole.added and whole.largest > FAR // 4):
                return None
            common = 1 if whole.terms else math.gcd(whole.row, whole.stream) or 1
            ends = whole.row // common, whole.stream // common, whole.constant // common
            found.append(Bound(*ends, whole.terms, bool(wraps and whole.terms)))
    if any(abs(bound.row) > 1 or abs(bound.stream) > 1 for bound in found):
        return None
    if any(bound.terms and not bound.stream for bound in found):
        return None
    return tuple(found) or None
