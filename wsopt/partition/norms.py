"""Layer norms of rows that no SM holds, written out as what they are made of.

A variance is computed from differences to a mean, which has to be complete before, so that one kernel computes a
layer norm only of rows that it holds. Written out, means, variances and normed elements may be a kernel each.
"""

from __future__ import annotations

from functools import partial

from wsopt.graph.types import Graph, Node
from wsopt.machine.types import Machine
from wsopt.partition.accept import refusal_alone
from wsopt.partition.replaced import Writer, replaced


def with_norms(graph: Graph, machine: Machine) -> Graph:
    """The graph with each layer norm written out of which no kernel can be made; itself without any."""
    wanted = {
        node.name: partial(_write, node)
        for node in graph.nodes
        if node.op == "layer_norm" and refusal_alone(graph, node, machine)
    }
    return replaced(graph, wanted)


def _write(node: Node, write: Writer) -> None:
    """Write the nodes that stand for a layer norm."""
    x, weight, bias = node.inputs
    row: dict[str, object] = {"axis": node.type.rank - 1, "keepdims": True}
    centred = write("centred", "sub", x, write("mean", "reduce_mean", x, **row))
    variance = write("variance", "reduce_mean", write("squares", "mul", centred, centred), **row)
    factor = write("factor", "rsqrt", write("power", "add", variance, node.attr("eps", float)))
    normed = write("normed", "mul", write("scaled", "mul", centred, factor), weight)
    write("", "add", normed, bias)
