"""Products of two narrow numbers that are rounded to their type: one instruction computes both.

`round(q * s)` is one rounding of an exact product where q and s are exact in the type that it is rounded to, for f32
holds the product of any two numbers of 16 bits. So the arithmetic of quantized elements stays in 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsopt.frontend.values import Rewriter, Term, Value
from wsopt.graph.types import DType
from wsopt.primitives import Family, family_of

_WHOLE = {DType.BF16: 2**8, DType.F16: 2**11}
"""The number up to which a type has every whole number, by the digits of its fraction."""

_RANGES = {DType.I8: (-128, 127), DType.I4: (-8, 7)}
_MOST = 15
"""The largest number of four bits."""


@dataclass(slots=True)
class NarrowProducts(Rewriter):
    """Puts a product in a narrow type in the place of a rounded one, where that has the same bits."""

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if family_of(value.primitive) is Family.ROUNDING and value.dtype in _WHOLE:
            product = self.pool.match(args[0], "mul") if self.pool.is_f32(args[0]) else None
            terms = [self._exact(term, value.dtype) for term in product or ()]
            if terms and None not in terms:
                found = tuple(term for term in terms if term is not None)
                return self.pool.make("mul", found, value.dtype, value.node)
            difference = self._exact(args[0], value.dtype) if self.pool.match(args[0], "sub") else None
            if difference is not None:
                return difference
        return self.copy(value, args)

    def _exact(self, term: Term, dtype: DType) -> Term | None:
        """The same number in a narrow type; None if that is not known to have it."""
        if not isinstance(term, str):
            return term if self._whole(term, dtype) else None
        value = self.pool[term]
        if value.primitive == "source":
            own = self.draft.raw[value.label[0]].dtype
            return term if own is dtype or own in _RANGES else None
        if value.primitive == "sub" and self._whole(term, dtype):
            first, second = (self._exact(operand, dtype) for operand in value.args)
            if first is not None and second is not None:
                return self.pool.make("sub", (first, second), dtype, value.node)
        return None

    def _whole(self, term: Term, dtype: DType) -> bool:
        """Whether a term is a whole number that a type is sure to have."""
        found = self._range(term)
        return found is not None and max(-found[0], found[1]) <= _WHOLE[dtype]

    def _range(self, term: Term) -> tuple[int, int] | None:
        """The least and the largest of a term's values, if these are whole numbers."""
        if not isinstance(term, str):
            return (int(term), int(term)) if float(term).is_integer() else None
        value = self.pool[term]
        if value.primitive == "source":
            raw = self.draft.raw[value.label[0]]
            return _RANGES.get(raw.dtype) if raw.zero is None else (-raw.zero, _MOST - raw.zero)
        if value.primitive == "sub":
            ranges = [self._range(operand) for operand in value.args]
            if ranges[0] and ranges[1]:
                (low, high), (least, most) = ranges[0], ranges[1]
                return low - most, high - least
        return None
