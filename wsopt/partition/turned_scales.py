"""Scales of groups of a product's operand, written out as a turned copy that a kernel makes.

A product of f8 reads the scales of a K-block's rows side by side, so they lie with the contracted axis first. Scales
that lie row by row, and are no constants that could be laid out anew before the first launch, are transposed by a
kernel of their own, or by the one that computes them; to the product what it sees of that is a view. Whoever
dequantizes elements sees them through the same two views, so nothing that could be computed before is lost.
"""

from __future__ import annotations

from typing import Any

from wsopt.frontend.kinds import F8, is_matmul, is_pointwise
from wsopt.frontend.names import free_name, names_of
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph, Node
from wsopt.lowering.reduced_graph import parse_derived

_TURN = (1, 0)


def with_turned_scales(graph: Graph) -> Graph:
    """The graph with scales of groups that lie row by row turned, and seen as they were; itself without any."""
    wanted = [node for node in graph.nodes if _reads_rows(graph, node)]
    if not wanted:
        return graph
    taken = names_of(graph)
    data, nodes, seen = graph_to_json(graph), list[dict[str, Any]](), dict[str, str]()
    for scales in dict.fromkeys(node.tensors[1] for node in wanted):
        read = scales
        for wish in (f"{scales}_turned", f"{scales}_rows"):
            name = free_name(wish, taken)
            nodes.append({"name": name, "op": "transpose", "inputs": [read], "attrs": {"perm": [*_TURN]}})
            read = name
        seen[scales] = read
    for written in data["nodes"]:
        if written["name"] in {node.name for node in wanted}:
            written["inputs"][1] = seen[written["inputs"][1]]
    data["nodes"] += nodes
    return parse_derived(data, graph)


def is_turned_copy(graph: Graph, node: Node) -> bool:
    """Whether a node's result is for nothing but scales that lie turned: all that read it turn it back for those."""
    readers = graph.consumers(node.name)
    back = all(_turns(one) and _is_of_scales(graph, one) for one in readers)
    return _turns(node) and bool(readers) and back and node.name not in graph.outputs


def _turns(node: Node) -> bool:
    return node.op == "transpose" and node.attr("perm", tuple) == _TURN


def _is_of_scales(graph: Graph, node: Node) -> bool:
    """Whether a node's result is read as scales alone."""
    readers = graph.consumers(node.name)
    read = all(one.op == "dequantize" and one.tensors[1] == node.name != one.tensors[0] for one in readers)
    return read and bool(readers) and node.name not in graph.outputs


def _reads_rows(graph: Graph, node: Node) -> bool:
    """Whether a node dequantizes an operand of a product, of f8, by scales that lie row by row and vary at a call."""
    if node.op != "dequantize" or len(node.tensors) != 2 or graph.type_of(node.tensors[0]).dtype not in F8:
        return False
    scales = node.tensors[1]
    given, made = graph.input(scales), graph.producer(scales)
    grouped = not dict(node.attrs).get("block") and graph.type_of(scales).rank == len(_TURN)
    varies = given is None or not given.constant
    lies = made is None or made.op != "transpose"
    return grouped and varies and lies and _feeds_product(graph, node)


def _feeds_product(graph: Graph, node: Node) -> bool:
    """Whether a product takes a tensor as an operand, as it is or rounded."""
    readers = graph.consumers(node.name)
    return any(
        is_matmul(reader) or (is_pointwise(reader) and reader.op == "cast" and _feeds_product(graph, reader))
        for reader in readers
    )
