"""Products whose left operand has its rows scaled by a reduction of the same rows, such as an RMS norm.

A factor of a row commutes with the contraction: x r @ w is (x @ w) r, also where x r was rounded for the tensor
core (GRAPH.md, 'What a compiler may change'). So the operand is the tensor as it lies in memory, the row's
reduction is computed beside the products from the same K-blocks, and the factor is applied after the loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.kinds import producer
from wsopt.frontend.values import REDUCTIONS, SINKS, Draft, Rewriter, Term, Value, reachable
from wsopt.primitives import Family, family_of
from wsopt.tensors.views import Role


@dataclass(slots=True)
class _Operands(Rewriter):
    """Rewrites every product as one of a tensor as it lies in memory, with its factors after it."""

    def visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive == "contract":
            return self.copy(value, (self._operand(value, args[0]),))
        return self.copy(value, args)

    def _operand(self, product: Value, term: Term) -> Term:
        pool, graph = self.pool, self.draft.axes.graph
        rounded = isinstance(term, str) and family_of(pool[term].primitive) is Family.ROUNDING
        kept = pool[term].args[0] if isinstance(term, str) and rounded else term
        operand = producer(graph, product.node).tensors[0]
        if not isinstance(kept, str) or pool[kept].primitive != "source":
            raise LoweringError(
                f"node {product.node}: operand 0 of the matmul is computed by {producer(graph, operand).op} node "
                f"{operand}; {self._reason(operand, kept)}"
            )
        raw, wanted = self.draft.raw[pool[kept].label[0]], graph.type_of(operand).dtype
        if raw.dtype is not wanted:
            raise LoweringError(
                f"node {product.node}: operand 0 of the matmul is {raw.tensor}, which is {raw.dtype.value}; the "
                f"product takes {wanted.value}, so declare it as that, and cast it before the call"
            )
        return kept

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


def lay_operands_bare(draft: Draft) -> Draft:
    """An equal draft whose products are of tensors as they lie in memory. Raises LoweringError, naming the node."""
    return _Operands(draft).run()
