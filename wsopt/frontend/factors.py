"""Factors that are constant along the streamed axis, moved past the sums and products over it.

What is divided by a sum that is complete only after the loop is divided after the loop instead, also where a
cast stands between (GRAPH.md, 'What a compiler may change').
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wsopt.frontend.values import Draft, Rewriter, Term, Value
from wsopt.graph.types import DType
from wsopt.primitives import Family, family_of


@dataclass(frozen=True, slots=True)
class Split:
    """A value as `rest` times the terms of `over`, divided by those of `under`; none varies along the stream."""

    rest: Term
    over: tuple[Term, ...] = ()
    under: tuple[Term, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether no factor is constant along the stream."""
        return not self.over and not self.under


@dataclass(slots=True)
class _FactorMover(Rewriter):
    """Rewrites every sum and product over the stream; `splits` are of the new values."""

    splits: dict[str, Split] = field(default_factory=dict)

    def visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive in ("contract", "reduce_sum"):
            split = self._split(args[0])
            return self._apply(self.copy(value, (split.rest,)), split, value.node)
        made = self.copy(value, args)
        if isinstance(made, str) and self.pool.streams(made) and made not in self.splits:
            self.splits[made] = self._find(made)
        return made

    def _split(self, term: Term) -> Split:
        if isinstance(term, str) and term not in self.splits and self.pool.streams(term):
            self.splits[term] = self._find(term)
        return self.splits.get(term, Split(term)) if isinstance(term, str) else Split(term)

    def _find(self, name: str) -> Split:
        """The factors of a value that varies along the stream."""
        value = self.pool[name]
        match value.primitive, value.args:
            case "mul", (x, k):
                return self._times(name, x, k)
            case "div", (x, k) if not self.pool.streams(k):
                split = self._split(x)
                return Split(split.rest, split.over, (*split.under, k))
            case "where", (condition, x, 0) if value.dtype is DType.F32:
                split = self._split(x)
                rest = self.pool.make("where", (condition, split.rest, 0.0), value.dtype, value.node)
                return Split(rest, split.over, tuple(self._nonzero(k, value) for k in split.under))
            case _ if family_of(value.primitive) is Family.ROUNDING:
                return self._rounded(value)
            case _:
                return Split(name)

    def _nonzero(self, k: Term, value: Value) -> Term:
        """A divisor with one for zero: a choice may be there to put zeros for the nan of an empty row."""
        if not self.pool.needs(k) or self.pool.match(k, "where"):
            return k
        nothing = self.pool.apply(value.node, "equal", k, 0.0)
        return self.pool.apply(value.node, "where", nothing, 1.0, k)

    def _times(self, name: str, x: Term, k: Term) -> Split:
        if self.pool[name].dtype is not DType.F32:
            return Split(name)
        for a, b in ((x, k), (k, x)):
            if not self.pool.streams(a):
                split = self._split(b)
                return Split(split.rest, (*split.over, a), split.under)
        first, second = self._split(x), self._split(k)
        if first.whole and second.whole:
            return Split(name)
        rest = self.pool.make("mul", (first.rest, second.rest), DType.F32, self.pool.node(name))
        return Split(rest, first.over + second.over, first.under + second.under)

    def _rounded(self, value: Value) -> Split:
        """Factors of a rounded value. Through a type of short range only factors known at the loop's end move."""
        split = self._split(value.args[0])

        def stays(k: Term) -> bool:
            return value.dtype is not DType.BF16 and not self.pool.needs(k)

        rest = split.rest
        for primitive, terms in (("mul", split.over), ("div", split.under)):
            for k in filter(stays, terms):
                rest = self.pool.make(primitive, (rest, k), DType.F32, value.node)
        over, under = (tuple(k for k in terms if not stays(k)) for terms in (split.over, split.under))
        return Split(self.pool.make(value.primitive, (rest,), value.dtype, value.node), over, under)

    def _apply(self, total: Term, split: Split, node: str) -> Term:
        """A sum of the rest, times the factors: one multiplication an element, the rest a row."""
        factor, under = self._product(split.over, node), self._product(split.under, node)
        if under != 1.0:
            factor = self.pool.apply(node, "div", factor, under)
        return total if factor == 1.0 else self.pool.apply(node, "mul", total, factor)

    def _product(self, terms: tuple[Term, ...], node: str) -> Term:
        found: Term = 1.0
        for k in terms:
            found = k if found == 1.0 else self.pool.apply(node, "mul", found, k)
        return found


def move_factors(draft: Draft) -> Draft:
    """An equal draft in which every factor that is constant along the stream stands after the sums over it."""
    return _FactorMover(draft).run()


@dataclass(slots=True)
class _Reciprocals(Rewriter):
    """Divides once a row instead of once an element."""

    def visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive == "div" and self.pool.streams(args[0]) and not self.pool.streams(args[1]):
            inverse = self.pool.apply(value.node, "div", 1.0, args[1])
            return self.pool.apply(value.node, "mul", args[0], inverse)
        return self.copy(value, args)


def divide_by_rows(draft: Draft) -> Draft:
    """An equal draft with divisions by a row's value as multiplications with its reciprocal."""
    return _Reciprocals(draft).run()
