"""Factors that are constant along the streamed axis, moved past the sums and products over it.

What is divided by a sum that is complete only after the loop is divided after the loop instead, also where a
cast stands between (GRAPH.md, 'What a compiler may change').

So for products whose left operand has its rows scaled by a reduction of the same rows, such as an RMS norm: x r @ w
is (x @ w) r. The operand is the tensor as it lies in memory, the row's reduction is computed beside the products
from the same K-blocks, and the factor is applied after the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.kinds import producer
from wsopt.frontend.values import REDUCTIONS, SINKS, Draft, Rewriter, Term, Value, reachable
from wsopt.graph.types import DType
from wsopt.primitives import Family, family_of
from wsopt.tensors.views import Role


@dataclass(frozen=True, slots=True)
class Split:
    """A value as `rest` times the terms of `over`, divided by those of `under`; none varies along the stream."""

    rest: Term
    over: tuple[Term, ...] = ()
    under: tuple[Term, ...] = ()


@dataclass(slots=True)
class FactorMover(Rewriter):
    """Puts every factor that is constant along the stream after the sums over it; `splits` are of the new values."""

    splits: dict[str, Split] = field(default_factory=dict)

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive in ("contract", "reduce_sum"):
            split = self._split(args[0])
            return self._apply(self.copy(value, (split.rest,)), split, value.node)
        made = self.copy(value, args)
        self._split(made)
        return made

    def _split(self, term: Term) -> Split:
        if isinstance(term, str) and term not in self.splits and self.pool.streams(term):
            self.splits[term] = self._find(term)
        return self.splits.get(str(term), Split(term))

    def _find(self, name: str) -> Split:
        """The factors of a value that varies along the stream."""
        value = self.pool[name]
        match value.primitive, value.args:
            case "mul", (x, k) if value.dtype is not DType.F32:
                return Split(name)
            case "mul", (x, k) if self._moves(k) or self._moves(x):
                fixed, rest = (k, x) if self._moves(k) else (x, k)
                split = self._split(rest)
                return replace(split, over=(*split.over, fixed))
            case "mul", (x, k):
                first, second = self._split(x), self._split(k)
                over, under = first.over + second.over, first.under + second.under
                if over or under:
                    return Split(self.pool.apply(value.node, "mul", first.rest, second.rest), over, under)
            case "div", (x, k) if self._moves(k):
                split = self._split(x)
                return replace(split, under=(*split.under, k))
            case "where", (condition, x, 0) if value.dtype is DType.F32:
                split = self._split(x)
                rest = self.pool.apply(value.node, "where", condition, split.rest, 0.0)
                return Split(rest, split.over, tuple(self._nonzero(k, value) for k in split.under))
            case primitive, _ if family_of(primitive) is Family.ROUNDING:
                return self._rounded(value)
        return Split(name)

    def _moves(self, k: Term) -> bool:
        """Whether a factor is moved."""
        return not self.pool.streams(k)

    def _nonzero(self, k: Term, value: Value) -> Term:
        """A divisor with one for zero: a choice may be there to put zeros for the nan of an empty row."""
        if not self.pool.needs(k) or self.pool.match(k, "where"):
            return k
        nothing = self.pool.apply(value.node, "equal", k, 0.0)
        return self.pool.apply(value.node, "where", nothing, 1.0, k)

    def _rounded(self, value: Value) -> Split:
        """Factors of a rounded value. Through a type of short range only factors known at the loop's end move."""
        split = self._split(value.args[0])

        def stays(k: Term) -> bool:
            return value.dtype is not DType.BF16 and not self.pool.needs(k)

        rest = split.rest
        for primitive, terms in (("mul", split.over), ("div", split.under)):
            for k in filter(stays, terms):
                rest = self.pool.apply(value.node, primitive, rest, k)
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


@dataclass(slots=True)
class LateFactors(FactorMover):
    """Puts factors that sinks complete after the sums over a row, as they are known there alone. Others stay: a row
    times an input may have no element that is too large, and its squares without it have.
    """

    def _moves(self, k: Term) -> bool:
        return not self.pool.streams(k) and bool(self.pool.needs(k))


@dataclass(slots=True)
class Reciprocals(Rewriter):
    """Divides by a row's value once a row instead of once an element."""

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive == "div" and self.pool.streams(args[0]) and not self.pool.streams(args[1]):
            inverse = self.pool.apply(value.node, "div", 1.0, args[1])
            return self.pool.apply(value.node, "mul", args[0], inverse)
        return self.copy(value, args)


# --- products of rows that are scaled -------------------------------------------------------------------


@dataclass(slots=True)
class BareOperands(Rewriter):
    """Makes every product one of a tensor as it lies in memory. Raises LoweringError, naming the node."""

    def _visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive != "contract":
            return self.copy(value, args)
        pool, graph = self.pool, self.draft.axes.graph
        (term,) = args
        rounded = isinstance(term, str) and family_of(pool[term].primitive) is Family.ROUNDING
        kept = pool[term].args[0] if isinstance(term, str) and rounded else term
        operand = producer(graph, value.node).tensors[0]
        if not isinstance(kept, str) or pool[kept].primitive != "source":
            raise LoweringError(
                f"node {value.node}: operand 0 of the matmul is computed by {producer(graph, operand).op} node "
                f"{operand}; {self._reason(operand, kept)}"
            )
        raw, wanted = self.draft.raw[pool[kept].label[0]], graph.type_of(operand).dtype
        if raw.dtype is not wanted:
            raise LoweringError(
                f"node {value.node}: operand 0 of the matmul is {raw.tensor}, which is {raw.dtype.value}; the "
                f"product takes {wanted.value}, so declare it as that, and cast it before the call"
            )
        return self.copy(value, (kept,))

    def _reason(self, operand: str, term: Term) -> str:
        """Why an operand is not a tensor with scaled rows, and what to do: a factor along its columns, if any."""
        for other in self.pool.match(term, "mul") or ():
            value = self.pool[other] if isinstance(other, str) else None
            if value and value.primitive == "source" and value.spans == frozenset({Role.STREAM}):
                return (
                    f"{self.draft.raw[value.label[0]].tensor} varies along the contracted axis, and cannot leave the "
                    "product as a factor of a row does; multiply it into the other operand before the call"
                )
        return (
            "operands have to be inputs of the graph (or transposes of them), their rows scaled at most: "
            f"{remedies.computed_operand(self.draft.axes.graph, operand)}"
        )


def check_reductions(draft: Draft) -> Draft:
    """Refuse what a consumer cannot reduce from its operand's K-blocks alone."""
    pool, live = draft.pool, draft.live()
    sinks = [name for name, value in live.items() if value.primitive in REDUCTIONS]
    operands = {value.args[0] for value in live.values() if value.primitive == "contract"}
    for name in sinks:
        reads = {read: pool[read] for read in pool.values if read in reachable(pool, pool[name].args)}
        for value in reads.values():
            if value.primitive in SINKS:
                raise LoweringError(
                    f"node {pool[name].node}: it reduces what depends on the reduction of node {value.node} along "
                    "the same axis; that takes a second pass over the axis"
                )
        for read, value in reads.items():
            if value.primitive.startswith(("inside_", "iota_")):
                raise LoweringError(
                    f"node {pool[name].node}: a reduction beside a product counts all elements of a K-block, and "
                    "those beyond the end are zero; sums of what is zero there are lowered"
                )
            if value.primitive == "source" and read not in operands:
                raise LoweringError(
                    f"node {pool[name].node}: a reduction beside a product reads the product's left operand, here "
                    f"it reads {draft.raw[value.label[0]].tensor}"
                )
    return draft
