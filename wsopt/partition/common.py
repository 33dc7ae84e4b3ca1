"""Nodes that compute the same are one. A graph may say a cast or a reshape twice, as one that a program wrote does.

Kernels are found by what reads the same result: two sums of a tensor that is widened for each are apart, and read it
twice.
"""

from __future__ import annotations

from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph, Node, Operand
from wsopt.lowering.reduced_graph import parse_derived


def with_common_nodes(graph: Graph) -> Graph:
    """The graph with the first alone of nodes that compute the same; itself if there are no others. Outputs stay."""
    first, known = dict[object, str](), dict[str, str]()
    for node in graph.nodes:
        same = first.setdefault(_computed(node, known), node.name)
        if same != node.name and node.name not in graph.outputs:
            known[node.name] = same
    if not known:
        return graph
    data = graph_to_json(graph)
    data["nodes"] = [node for node in data["nodes"] if node["name"] not in known]
    for node in data["nodes"]:
        node["inputs"] = [_read(operand, known) for operand in node["inputs"]]
    return parse_derived(data, graph)


def _computed(node: Node, known: dict[str, str]) -> object:
    """What a node computes, whatever its name; scalars by their text, for 0 is not -0 nor a whole number 0.0."""
    inputs = tuple(repr(_read(operand, known)) for operand in node.inputs)
    return node.op, inputs, node.attrs, node.type


def _read(operand: Operand, known: dict[str, str]) -> Operand:
    """What is read instead of an operand."""
    return known.get(operand, operand) if isinstance(operand, str) else operand
