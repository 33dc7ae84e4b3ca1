"""Exponentials that are divided by their row's sum: the division moves into the exponent.

A second pass over rows that no SM holds computes exponentials 2^(x - m) anew, with the row's maximum m. Divided by
their sum they are 2^(x - (m + log2(sum))): one addition a row in place of one multiplication an element. The
logarithm's rounding error is relative, some 2^-18 of the result, so this is done only where the result is rounded to
16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from wsopt.frontend.values import Rewriter, Term, Value

_ROUNDINGS = ("round_bf16", "round_f16")


@dataclass(slots=True)
class ShiftedExponents(Rewriter):
    """Moves the reciprocal of a row's sum of exponentials into the exponents of elements that are rounded."""

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive in _ROUNDINGS:
            args = tuple(self._shifted(arg, value.node) or arg for arg in args)
        return self.copy(value, args)

    def _shifted(self, term: Term, node: str) -> Term | None:
        """For 2^(x - m) * (1 / sum) the term 2^(x - (m + log2(sum))), where m is a row's; None for any other term."""
        pool, make = self.pool, partial(self.pool.apply, node)
        element, inverse = pool.match(term, "mul") or (0.0, 0.0)
        match pool.match(element, "exp2"), pool.match(inverse, "div"):
            case (exponent,), (1.0, total) if self._is_sum(total):
                match pool.match(exponent, "sub"):
                    case scaled, largest if not pool.streams(largest):
                        return make("exp2", make("sub", scaled, make("add", largest, make("log2", total))))
        return None

    def _is_sum(self, term: Term) -> bool:
        """Whether a row's value is a sum of exponentials, or 1 where that is zero: it has a logarithm."""
        pool = self.pool
        match pool.match(term, "where"), pool.match(term, "reduce_sum"):
            case (_, 1.0, chosen), _:
                return self._is_sum(chosen)
            case _, (summed, *_):
                return pool.match(summed, "exp2") is not None
        return False
