"""Products of two operands of i8, written as products of the same numbers in bf16, which has all of them.

A sum is of whole numbers, which f32 has exactly up to 2^24, and rounded beyond, as whoever reads it as a fraction
rounds it. One operand is widened in the product's loop, the other one by a kernel before.
"""

from __future__ import annotations

from functools import partial

from wsopt.frontend.kinds import VIEWS, is_pointwise
from wsopt.graph.types import DType, Graph, Node
from wsopt.machine.types import Machine
from wsopt.partition.accept import refusal_alone
from wsopt.partition.common import with_common_nodes
from wsopt.partition.replaced import Writer, replaced

_AS_WELL = (*VIEWS, "add", "sub")
"""Operations that give of fractions what they give of whole numbers, as fractions."""


def with_wide_products(graph: Graph, machine: Machine) -> Graph:
    """The graph with such products written so of which no kernel can be made, where nothing needs sums in i32; itself
    without any.
    """
    wanted = {
        node.name: partial(_write, node)
        for node in graph.nodes
        if node.op == "matmul" and graph.type_of(node.tensors[0]).dtype is DType.I8
        if _is_read_as_fractions(graph, node.name) and refusal_alone(graph, node, machine)
    }
    written = replaced(graph, wanted)
    return with_common_nodes(written) if wanted else graph


def _is_read_as_fractions(graph: Graph, name: str) -> bool:
    """Whether all that reads a tensor of whole numbers computes fractions of them, or of sums with others."""
    if name in graph.outputs:
        return False
    return all(
        _is_read_as_fractions(graph, node.name)
        if node.op in _AS_WELL and not node.type.dtype.is_float
        else is_pointwise(node) and node.type.dtype.is_float
        for node in graph.consumers(name)
    )


def _write(node: Node, write: Writer) -> None:
    """Write the nodes that stand for a product."""
    sides = zip(("left", "right"), node.tensors, strict=True)
    operands = [write(what, "cast", name, dtype=DType.BF16.value) for what, name in sides]
    write("", "matmul", *operands, **{name: value for name, value in node.attrs if value is not None})
