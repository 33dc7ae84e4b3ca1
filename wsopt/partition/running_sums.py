"""Running sums of rows that no SM holds, written out as those of parts of rows.

A running sum is one of its part, which begins with the sums of the parts before. What the parts come to is summed up
first, by a kernel that reads the rows once; a second one adds up few numbers a row, and a third reads the rows again.
"""

from __future__ import annotations

from functools import partial

from wsopt.graph.types import DType, Graph, Node
from wsopt.machine.types import Machine
from wsopt.partition.accept import refusal_alone
from wsopt.partition.few_rows import held_parts
from wsopt.partition.replaced import Writer, replaced


def with_parts_of_running_sums(graph: Graph, machine: Machine) -> Graph:
    """The graph with each running sum in f32 written out of which no kernel can be made, and whose rows are parts of
    one length; itself without any.
    """
    wanted = {
        node.name: partial(_write, graph, node, parts)
        for node in graph.nodes
        if node.op == "cumsum" and node.type.dtype is DType.F32
        if refusal_alone(graph, node, machine) and (parts := held_parts(graph, node, machine)) > 1
    }
    return replaced(graph, wanted)


def _write(graph: Graph, node: Node, parts: int, write: Writer) -> None:
    """Write the nodes that stand for a running sum."""
    (x,), axis, shape = node.tensors, node.attr("axis", int), node.type.shape
    each = shape[axis] // parts
    cut = write("parts", "reshape", x, shape=[*shape[:axis], parts, each, *shape[axis + 1 :]])
    sums = write("part_sums", "reduce_sum", cut, axis=axis + 1, keepdims=True)
    none = [0] * (len(shape) + 1)
    ahead = [int(dim == axis) for dim in range(len(shape) + 1)]
    moved = write("sums_behind", "pad", sums, low=ahead, high=none)
    own = write("sums_before", "slice", moved, axis=axis, start=0, stop=parts)
    before = write("before", "cumsum", own, axis=axis)
    places = [each if dim == axis + 1 else 1 for dim in range(len(shape) + 1)]
    first = write("first", "equal", write("place", "iota", shape=places, axis=axis + 1), 0)
    begun = write("begun", "add", cut, write("at_first", "where", first, before, 0.0))
    write("", "reshape", write("in_parts", "cumsum", begun, axis=axis + 1), shape=list(shape))
