"""Regions of products whose left operand has its rows scaled by a reduction of the same rows, such as an RMS norm.

A factor of a row commutes with the contraction: x r @ w is (x @ w) r, also where x r was rounded for the tensor
core (GRAPH.md, 'What a compiler may change'). So the operand is the tensor as it lies in memory, the row's
reduction is computed beside the products from the same K-blocks, and the factor is applied after the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.assemble import assemble_tiles
from wsopt.frontend.chain import Chain, read_values
from wsopt.frontend.expand import Term
from wsopt.frontend.factors import move_factors
from wsopt.frontend.loop_axes import LoopAxes
from wsopt.frontend.padding import pad_stream
from wsopt.frontend.product_axes import check_input, matmul_nodes, product_axes
from wsopt.frontend.roles import check_equal
from wsopt.frontend.row_axes import one_axis
from wsopt.frontend.types import Region
from wsopt.frontend.values import REDUCTIONS, Flow, Rewriter, Value, reachable
from wsopt.graph.needed import live_nodes
from wsopt.graph.types import DType, Graph, Node
from wsopt.tensors.views import Role

_OPERANDS = (DType.F16, DType.BF16)


def scaled_products(graph: Graph) -> tuple[str, ...]:
    """The matmuls whose left operand is computed, and from reductions, but from no other product."""
    live = live_nodes(graph)
    reduced: set[str] = set()
    found = []
    for node in live:
        if node.op.startswith("reduce_") or node.op.endswith("_norm") or reduced & set(node.tensors):
            reduced.add(node.name)
        if node.op == "matmul" and node.inputs[0] in reduced:
            found.append(node.name)
    return tuple(found)


def _check_operands(axes: LoopAxes, node: Node) -> None:
    dtype = axes.graph.type_of(node.tensors[0]).dtype
    if dtype not in _OPERANDS:
        raise LoweringError(
            f"node {node.name}: operands of {dtype.value} are not lowered where their rows are reduced; "
            f"{remedies.operand_type(_OPERANDS)}"
        )
    check_input(axes, node, 1)


def scaled_axes(graph: Graph) -> LoopAxes:
    """The axes of products of scaled rows, with their roles. Raises LoweringError where one would need two."""
    axes = product_axes(graph)
    for node in matmul_nodes(axes):
        _check_operands(axes, node)
    check_equal(axes, matmul_nodes(axes))
    _join_bound(axes)
    return axes


def _join_bound(axes: LoopAxes) -> None:
    """Unify axes that only a reduction sees with the streamed axis."""
    stream = next(axis for axis, role in axes.roles.items() if role is Role.STREAM)
    for node in axes.live:
        if node.op.startswith("reduce_"):
            for atom in axes.atoms(axes.use(node, 0), node.attr("axis", int)):
                if atom not in axes.roles and one_axis(axes, [stream, atom]):
                    axes.joined.union(stream, atom)
    joined = axes.joined[stream]
    axes.extents[joined] = axes.extents[stream]
    axes.roles.pop(stream)
    axes.roles[joined] = Role.STREAM


@dataclass(slots=True)
class _Operands(Rewriter):
    """Rewrites every product as one of a tensor as it lies in memory, with its factors after it."""

    chain: Chain = field(kw_only=True)

    def visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive == "contract":
            return self.copy(value, (self._operand(value, args[0]),))
        return self.copy(value, args)

    def _operand(self, product: Value, term: Term) -> Term:
        pool = self.pool
        kept = term
        if isinstance(term, str) and pool[term].primitive.startswith("round_"):
            kept = pool[term].args[0]
        if not isinstance(kept, str) or pool[kept].primitive != "source":
            raise LoweringError(self._refusal(product, kept))
        graph, raw = self.chain.axes.graph, self.chain.raw[pool[kept].label[0]]
        wanted = graph.type_of(_matmul(graph, product).tensors[0]).dtype
        if raw.dtype is not wanted:
            raise LoweringError(
                f"node {product.node}: operand 0 of the matmul is {raw.tensor}, which is {raw.dtype.value}; the "
                f"product takes {wanted.value}, so declare it as that, and cast it before the call"
            )
        return kept

    def _refusal(self, product: Value, term: Term) -> str:
        graph, node = self.chain.axes.graph, _matmul(self.chain.axes.graph, product)
        producer = graph.producer(node.tensors[0])
        assert producer is not None, "what is an input is a source"
        why = (
            "operands have to be inputs of the graph (or transposes of them), their rows scaled at most: "
            f"{remedies.computed_operand(graph, producer.name)}"
        )
        varying = self._varying(term)
        if varying:
            why = (
                f"{varying} varies along the contracted axis, and cannot leave the product as a factor of a row "
                "does; multiply it into the other operand before the call"
            )
        return f"node {node.name}: operand 0 of the matmul is computed by {producer.op} node {producer.name}; {why}"

    def _varying(self, term: Term) -> str:
        """The tensor that multiplies an operand along the contracted axis, for a refusal; empty if there is none."""
        args = self.pool.match(term, "mul") if isinstance(term, str) else None
        for other in args or ():
            value = self.pool[other] if isinstance(other, str) else None
            if value and value.primitive == "source" and value.spans == frozenset({Role.STREAM}):
                return self.chain.raw[value.label[0]].tensor
        return ""


def _matmul(graph: Graph, product: Value) -> Node:
    node = graph.producer(product.label[0])
    assert node is not None, "a product is a node's"
    return node


def _check_reductions(chain: Chain, flow: Flow) -> None:
    """Refuse what a consumer cannot reduce from its operand's K-blocks alone."""
    pool = flow.pool
    sinks = [name for name, value in flow.live() if value.primitive in REDUCTIONS]
    operands = {value.args[0] for _, value in flow.live() if value.primitive == "contract"}
    for name in sinks:
        reads = {read: pool[read] for read in pool.values if read in reachable(pool, pool[name].args)}
        for value in reads.values():
            if value.primitive in REDUCTIONS or value.primitive == "contract":
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
                    f"it reads {chain.raw[value.label[0]].tensor}"
                )


def scaled_region(graph: Graph) -> Region:
    """The region of products of scaled rows. Raises LoweringError, naming node and reason."""
    axes = scaled_axes(graph)
    matmuls = tuple(node.name for node in matmul_nodes(axes))
    chain = read_values(axes, matmuls, Role.STREAM)
    flow = _Operands(move_factors(chain.flow), chain=chain).run()
    flow, _, _ = pad_stream(flow, axes.extent(Role.STREAM), {})
    _check_reductions(chain, flow)
    return assemble_tiles(chain, flow)
