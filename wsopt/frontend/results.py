"""Reshapes and transposes of a product's results that its kernel takes: those that move whole rows.

A kernel stores tiles wherever their rows lie, so a result may have its heads first, or side by side behind a batched
product. Columns are neighbours in memory in every result: TMA stores no others.
"""

from __future__ import annotations

from itertools import pairwise

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.kinds import VIEWS, Kind, feeding, input_path, is_matmul, is_pointwise
from wsopt.graph.types import Graph, Node

_LEAST_WIDTH = 64
"""Columns of a part of a product's, at least, that is a tile of its own."""
_LEAST_REDUCED = 128
"""The same where each part is reduced: a tile of fewer columns loses more to its operands than a kernel that reads
the product's result again takes.
"""


def check_elementwise(graph: Graph, kind: Kind) -> None:
    """Refuse what products without reductions have no place for after them."""
    operands = feeding(graph.nodes, (name for one in graph.nodes if is_matmul(one) for name in one.tensors))
    reshaped = _may_be_reshaped(graph) if kind is Kind.PRODUCTS else frozenset()
    for node in graph.nodes:
        known = is_matmul(node) or node.op == "iota" or is_pointwise(node)
        known |= node.op == "dequantize" and node.name in operands
        known |= node.op == "transpose" and node.name in operands
        known |= node.name in reshaped and (node.op == "reshape" or _keeps_columns(node))
        if not known and input_path(graph, node.name) is None:
            remedy = f"; {remedies.VIEW_OF_RESULT.format(node.op)}" if node.op in VIEWS else ""
            raise LoweringError(
                f"node {node.name}: {node.op} is not lowered; a kernel is products over one streamed axis "
                f"and elementwise operations after them{remedy}"
            )


def _may_be_reshaped(graph: Graph) -> frozenset[str]:
    """What is computed of products, if it may be seen in another shape, which parts or merges its axes: a single row
    has no axis of rows, and rows of groups are told by offsets.
    """
    products = [node for node in graph.nodes if is_matmul(node)]
    grouped = any(node.op == "grouped_matmul" for node in products)
    if grouped or min(graph.type_of(node.name).shape[-2] for node in products) == 1:
        return frozenset()
    found = {node.name for node in products}
    for node in graph.nodes:
        if not found.isdisjoint(node.tensors):
            found.add(node.name)
    return frozenset(found)


def _keeps_columns(node: Node) -> bool:
    """Whether a node is a transpose behind which neighbours in memory are neighbours of a row still."""
    if node.op != "transpose":
        return False
    rank, perm = node.type.rank, node.attr("perm", tuple)
    return node.type.shape[-1] > 1 and perm[-1] == rank - 1


def check_width(axes: Axes, node: Node, part: Dim) -> None:
    """Refuse parts of columns that leave most of a product's tile empty: a kernel that turns the result, or reduces
    it, is faster.
    """
    if axes.kind is Kind.REDUCED and axes.extents[part] < _LEAST_REDUCED:
        raise LoweringError(
            f"node {node.name}: its result is reduced in parts of {axes.extents[part]} columns, of which a tile has "
            f"one, and at least {_LEAST_REDUCED} columns; {remedies.computed_before([node.name])}"
        )
    if axes.extents[part] < _LEAST_WIDTH:
        raise LoweringError(
            f"node {node.name}: its result has parts of {axes.extents[part]} columns elsewhere, of which a tile has "
            f"one; {remedies.VIEW_OF_RESULT.format('transpose')}"
        )


def columns_apart(axes: Axes, atoms: tuple[Dim, ...]) -> bool:
    """Whether a product's columns, outer parts first, are reduced in parts, such as the heads of a row, or do not
    follow each other in some result: a kernel has tiles of the innermost part then, and the others are batches.
    """
    if axes.kind is Kind.REDUCED:
        return len(atoms) > 1
    if not axes.kind.plain:
        return False
    for name in axes.graph.outputs:
        own = axes.all_atoms(name)
        if {*atoms} <= {*own} and any(pair not in {*pairwise(own)} for pair in pairwise(atoms)):
            return True
    return False
