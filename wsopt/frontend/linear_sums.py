"""Sums along long rows of x - c, with c a row's value, as the sum of x less a multiple of c.

A loss of smoothed labels sums up x - c with the logarithm c of the row's sum of exponentials. While a row that no SM
holds is read part by part, c is not known yet; but it is the same for all elements, so it may be subtracted from
their sum, times the number of elements, or times the sum of their weights. That only takes sums in another order.

A difference to a mean stays as it is: the variance of numbers far from zero would lose its digits. A c that depends
on the row's maximum is as large as the row's elements, and loses none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from wsopt.frontend.values import Rewriter, Term, Value
from wsopt.tensors.views import Role

_Shares = tuple[tuple[Term, Term], ...]
"""Pairs of a factor and a row's value, such as (-1.0, c): an element has the sum of their products in it."""

_Linear = tuple[Term, _Shares]
"""An element x - c as its two parts: x, which is known while the row is read, and the shares of values of the row."""


@dataclass(slots=True)
class LinearSums(Rewriter):
    """Takes values that a row's reductions complete out of sums over the row, where elements are linear in them;
    `known` has what was found of old values.
    """

    known: dict[Term, _Linear | None] = field(default_factory=dict)

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive != "reduce_sum" or not value.needs:
            return self.copy(value, args)
        apart = self._apart(value.args[0], value.node)
        if apart is None:
            return self.copy(value, args)
        make, (found, shares) = partial(self.pool.apply, value.node), apart
        total = make("reduce_sum", found) if self.pool.streams(found) else self._often(found, value.node)
        for share, shift in shares:
            total = make("add", total, self._shared(share, shift, value.node))
        return total

    def _shared(self, share: Term, shift: Term, node: str) -> Term:
        """What a share adds to the sum: the row's value times the sum of factors; 0 where that sum is 0, also if the
        value is infinite.
        """
        make = partial(self.pool.apply, node)
        if not self.pool.streams(share):
            return make("mul", shift, self._often(share, node))
        weight = make("reduce_sum", share)
        return make("where", make("equal", weight, 0.0), 0.0, make("mul", shift, weight))

    def _often(self, term: Term, node: str) -> Term:
        """The sum over a row whose elements are all the same term: the term times their number."""
        length = float(self.draft.axes.extent(Role.COLUMN))
        return self.pool.apply(node, "mul", term, length) if isinstance(term, str) else term * length

    def _apart(self, old: Term, node: str) -> _Linear | None:
        """An old value in its two parts; None where it is not linear in values of the row, or where one of those does
        not depend on the row's maximum.
        """
        if old not in self.known:
            self.known[old] = self._found(old, node)
        return self.known[old]

    def _found(self, old: Term, node: str) -> _Linear | None:
        pool = self.draft.pool
        needs = pool.needs(old)
        if not needs:
            return self.term(old), ()
        if not pool.streams(old):
            largest = any(pool[name].primitive == "reduce_max" for name in needs)
            return (0.0, ((1.0, self.term(old)),)) if largest else None
        value = pool[str(old)]
        parts = [self._apart(arg, node) for arg in value.args]
        if value.primitive == "mul" and parts.count(None) == 1:  # what its one factor is, other passes say
            parts = [part or (self.term(arg), ()) for arg, part in zip(value.args, parts, strict=True)]
        found = [part for part in parts if part is not None]
        return self._linear(value, found) if len(found) == len(parts) else None

    def _linear(self, value: Value, parts: list[_Linear]) -> _Linear | None:
        """The two parts of a value whose operands have these, by its primitive; None where that is not linear."""
        make = partial(self.pool.apply, value.node)
        match value.primitive, parts:
            case "neg", [(x, shares)]:
                return make("neg", x), self._times(shares, -1.0, value.node)
            case "add", [(x, some), (y, others)]:
                return _sum(make, "add", x, y), some + others
            case "sub", [(x, some), (y, others)]:
                return _sum(make, "sub", x, y), some + self._times(others, -1.0, value.node)
            case "mul", [(x, shares), (y, ())] | [(y, ()), (x, shares)]:
                # nothing but shares: times an infinite factor it would be nan
                return 0.0 if x == 0.0 else make("mul", x, y), self._times(shares, y, value.node)
            case "where", [(condition, ()), (x, some), (y, others)]:
                chosen = tuple((make("where", condition, share, 0.0), shift) for share, shift in some)
                left = tuple((make("where", condition, 0.0, share), shift) for share, shift in others)
                return make("where", condition, x, y), chosen + left
        return None

    def _times(self, shares: _Shares, factor: Term, node: str) -> _Shares:
        """Shares whose factors are multiplied by another factor."""
        return tuple((self._product(share, factor, node), shift) for share, shift in shares)

    def _product(self, share: Term, factor: Term, node: str) -> Term:
        if isinstance(share, str) or isinstance(factor, str):
            return factor if share == 1.0 else self.pool.apply(node, "mul", factor, share)
        return share * factor


def _sum(make: partial[Term], primitive: str, x: Term, y: Term) -> Term:
    """A sum or a difference; the first term alone where the second is zero."""
    return x if y == 0.0 else make(primitive, x, y)
