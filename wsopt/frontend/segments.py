"""Products of rows that run-time offsets cut into segments, each of which has a matrix of its own.

Rows, columns and the streamed axis are those of any product. The matrices have one axis more, and so have the
offsets: a tile lies in one segment, and the kernel finds out in which when it runs.
"""

from __future__ import annotations

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes
from wsopt.frontend.kinds import Kind, input_path, is_grouped, is_matmul
from wsopt.graph.types import Graph
from wsopt.tensors.views import Role

_OFFSETS = 2
"""The operand that says where the rows of segments end."""


def check_segments(graph: Graph, kind: Kind) -> None:
    """Refuse grouped products beside others, of computed operands, and with offsets of their own each."""
    grouped = [node for node in graph.nodes if is_grouped(node)]
    if not grouped:
        return
    first = grouped[0]
    for node in (node for node in graph.nodes if is_matmul(node) and not is_grouped(node)):
        raise LoweringError(
            f"node {node.name}: it multiplies all rows by one matrix, and {first.name} has one for each group; they "
            f"cannot share one loop: {remedies.OWN_GRAPH}"
        )
    if kind is not Kind.PRODUCTS:
        raise LoweringError(
            f"node {first.name}: grouped_matmul is lowered where its operands are inputs of the graph and nothing "
            "reduces its rows; compute operands before, and reductions behind, in graphs of their own"
        )
    for node in grouped:
        if input_path(graph, node.tensors[_OFFSETS]) is None:
            raise LoweringError(
                f"node {node.name}: its offsets are computed by the graph, and a block reads them before its first "
                f"tile; {remedies.computed_before([node.tensors[_OFFSETS]])}"
            )
        if node.tensors[_OFFSETS] != first.tensors[_OFFSETS]:
            raise LoweringError(
                f"node {node.name}: its groups end at {node.tensors[_OFFSETS]}, and those of {first.name} at "
                f"{first.tensors[_OFFSETS]}; a kernel cuts its rows in one way: {remedies.OWN_GRAPH}"
            )


def assign_segments(axes: Axes) -> None:
    """Give the axis of the matrices and of the offsets its role; of several products it is one."""
    grouped = [node for node in axes.graph.nodes if is_grouped(node)]
    found = [(axes.use(node, operand), 0) for node in grouped for operand in (1, _OFFSETS)]
    if not found:
        return
    axes.same.union(*found)
    use, dim = found[0]
    atoms = axes.atoms(use, dim)
    if len(atoms) > 1:
        raise LoweringError(
            f"node {grouped[0].name}: a reshape merges the axis of the groups' matrices; declare the input with the "
            "shape after it"
        )
    axes.roles[atoms[0]] = Role.SEGMENT


def offsets_use(axes: Axes) -> str | None:
    """The use of the offsets by which the rows of all products are cut; None where none are."""
    first = next((node for node in axes.graph.nodes if is_grouped(node)), None)
    return None if first is None else axes.use(first, _OFFSETS)
