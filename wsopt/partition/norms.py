"""Layer norms of rows that no SM holds, written out as what they are made of.

A variance is computed from differences to a mean, which has to be complete before, so that one kernel computes a
layer norm only of rows that it holds. Written out, means, variances and normed elements may be a kernel each.
"""

from __future__ import annotations

from typing import Any

from wsopt.frontend.names import free_name, names_of
from wsopt.graph.serialize import graph_to_json, scalar_to_json
from wsopt.graph.types import Graph, Input, Node, Operand
from wsopt.lowering.reduced_graph import parse_derived
from wsopt.machine.types import Machine
from wsopt.partition.accept import refusal_of


def with_norms(graph: Graph, machine: Machine) -> Graph:
    """The graph with each layer norm written out of which no kernel can be made; itself without any."""
    wanted = {
        node.name: node
        for node in graph.nodes
        if node.op == "layer_norm" and refusal_of(_alone(graph, node), machine)
    }
    if not wanted:
        return graph
    taken, data = names_of(graph), graph_to_json(graph)
    kept = [written for written in data["nodes"] if written["name"] not in wanted]
    data["nodes"] = kept + [one for node in wanted.values() for one in _written(node, taken)]
    return parse_derived(data, graph)


def _alone(graph: Graph, node: Node) -> Graph:
    """A graph of one node whose operands are inputs."""
    inputs = tuple(Input(name, graph.type_of(name)) for name in dict.fromkeys(node.tensors))
    return Graph(graph.name, "", inputs, (node,), (node.name,), graph.deterministic)


def _written(node: Node, taken: set[str]) -> list[dict[str, Any]]:
    """The nodes that stand for a layer norm, the last of which has its name; `taken` are the names that there are."""
    nodes: list[dict[str, Any]] = []

    def write(what: str, op: str, *inputs: Operand, **attrs: object) -> str:
        name = free_name(f"{node.name}_{what}", taken) if what else node.name
        operands = [scalar_to_json(operand) for operand in inputs]
        nodes.append({"name": name, "op": op, "inputs": operands, "attrs": attrs})
        return name

    x, weight, bias = node.inputs
    row: dict[str, object] = {"axis": node.type.rank - 1, "keepdims": True}
    centred = write("centred", "sub", x, write("mean", "reduce_mean", x, **row))
    variance = write("variance", "reduce_mean", write("squares", "mul", centred, centred), **row)
    factor = write("factor", "rsqrt", write("power", "add", variance, node.attr("eps", float)))
    normed = write("normed", "mul", write("scaled", "mul", centred, factor), weight)
    write("", "add", normed, bias)
    return nodes
