"""Axes of products over one streamed axis, through reshapes and reductions: rows, columns, batches."""

from __future__ import annotations

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import matmul_dims
from wsopt.frontend.loop_axes import LoopAxes, relate_axes
from wsopt.frontend.roles import assign_batches, assign_role
from wsopt.graph.types import Graph, Node
from wsopt.tensors.views import Role


def matmul_nodes(axes: LoopAxes) -> list[Node]:
    """The matmuls of a graph's live part."""
    return [node for node in axes.live if node.op == "matmul"]


def check_input(axes: LoopAxes, node: Node, operand: int) -> None:
    """Raise LoweringError for a matmul's operand that is computed in the graph."""
    if f"{node.name}:{operand}" in axes.paths:
        return
    producer = axes.graph.producer(node.tensors[operand])
    assert producer is not None, "what is no use of an input is computed"
    raise LoweringError(
        f"node {node.name}: operand {operand} of the matmul is computed by {producer.op} node {producer.name}; "
        "it has to be an input of the graph (or a transpose of one): "
        f"{remedies.computed_operand(axes.graph, producer.name)}"
    )


def product_axes(graph: Graph) -> LoopAxes:
    """The axes of a graph's products, with their roles. Raises LoweringError where one would need two."""
    axes = relate_axes(graph)
    matmuls = matmul_nodes(axes)
    _join_streams(axes, matmuls)
    for node in matmuls:
        assign_batches(axes, node)
        assign_role(axes, node, axes.use(node, 1), matmul_dims(node)[1][1], Role.STREAM)
        assign_role(axes, node, node.name, -2, Role.ROW)
        assign_role(axes, node, node.name, -1, Role.COLUMN)
    return axes


def _join_streams(axes: LoopAxes, matmuls: list[Node]) -> None:
    """Products over equally long axes can be streamed together."""
    streams = [axes.atoms(axes.use(n, 1), matmul_dims(n)[1][1]) for n in matmuls]
    if len({tuple(axes.extents[a] for a in atoms) for atoms in streams}) > 1:
        names = ", ".join(node.name for node in matmuls)
        raise LoweringError(f"matmuls {names} do not share their streamed axis; they cannot share one loop")
    for atoms in streams[1:]:
        for one, other in zip(streams[0], atoms, strict=True):
            axes.joined.union(one, other)
    for atom in streams[0]:
        axes.extents[axes.joined[atom]] = axes.extents[atom]
