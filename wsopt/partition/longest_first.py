"""Reductions of a tensor along several axes, one after the other, written so that the longest axis is reduced first.

The mean of each group of ten channels over an image is the same whether the ten are reduced first or the image's
elements: but rows of ten are short, and what is left of them is a tenth of all, where of the image one element a
channel is left.
"""

from __future__ import annotations

from typing import Any

from wsopt.frontend.several_axes import axes_of, reductions_up_to
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph, Node
from wsopt.lowering.reduced_graph import parse_derived


def with_longest_first(graph: Graph) -> Graph:
    """The graph with each run of reductions alike in the order of their axes' extents, the longest first; itself
    where all are.
    """
    written: dict[str, dict[str, object]] = {}
    for last in reversed(graph.nodes):
        if last.name not in written:
            written |= _in_order(graph, last)
    if not written:
        return graph
    data: dict[str, Any] = graph_to_json(graph)
    for node in data["nodes"]:
        if node["name"] in written:
            node["attrs"] = {**node.get("attrs", {}), **written[node["name"]]}
    return parse_derived(data, graph)


def _in_order(graph: Graph, last: Node) -> dict[str, dict[str, object]]:
    """The attributes of the reductions that end with this one, by name; none where the longest comes first, or the
    same axis twice.
    """
    chain = reductions_up_to(graph, last)
    if len(chain) < 2:
        return {}
    axes, shape = axes_of(graph, chain), graph.type_of(chain[0].tensors[0]).shape
    kept = {axis: node.attr("keepdims", bool) for axis, node in zip(axes, chain, strict=True)}
    order = sorted(axes, key=lambda axis: -shape[axis])
    if order == axes or len(kept) < len(axes):
        return {}
    left, found = list(range(len(shape))), dict[str, dict[str, object]]()
    for node, axis in zip(chain, order, strict=True):
        found[node.name] = {"axis": left.index(axis), "keepdims": kept[axis]}
        if not kept[axis]:
            left.remove(axis)
    return found
