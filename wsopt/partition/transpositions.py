"""Transpositions of many axes, written out as several that each exchange two neighbouring blocks of axes.

A kernel that copies a tensor in another order knows four runs of axes that stay next to each other. The patches of a
batch of images, and windows of one behind heads, have more: `[batch, colour, row, y, column, x]` has six as
`[batch, row, column, colour, y, x]`. An exchange of two blocks has four runs at most, with what stays before and
behind, and each brings the longest block that can go there to its place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from wsopt.frontend.names import free_name, names_of
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph, Node
from wsopt.lowering.reduced_graph import parse_derived

_RUNS = 4
"""Axes with an order of their own that a kernel takes (`frontend/elementwise.py`)."""

Order = tuple[int, ...]


def with_exchanges(graph: Graph) -> Graph:
    """The graph with transpositions of more runs than a kernel takes written as several; itself without any."""
    many = {node.name: node for node in graph.nodes if node.op == "transpose" and _runs(graph, node) > _RUNS}
    if not many:
        return graph
    taken = names_of(graph)
    data = graph_to_json(graph)
    data["nodes"] = [
        written
        for node in data["nodes"]
        for written in (_exchanges(many[node["name"]], taken) if node["name"] in many else [node])
    ]
    return parse_derived(data, graph)


def _runs(graph: Graph, node: Node) -> int:
    """How many runs of axes stay next to each other; axes of one element lie anywhere."""
    shape = graph.type_of(node.tensors[0]).shape
    kept = [axis for axis, extent in enumerate(shape) if extent > 1]
    order = [kept.index(axis) for axis in node.attr("perm", tuple) if axis in kept]
    return len(order) - sum(behind == before + 1 for before, behind in itertools.pairwise(order))


def _exchanges(node: Node, taken: set[str]) -> Iterator[dict[str, Any]]:
    """The nodes that a transposition is made of; the last one has its name."""
    perms = list(exchanges(node.attr("perm", tuple)))
    source = node.tensors[0]
    for number, perm in enumerate(perms):
        name = free_name(f"{node.name}_turned", taken) if number < len(perms) - 1 else node.name
        yield {"name": name, "op": "transpose", "inputs": [source], "attrs": {"perm": list(perm)}}
        source = name


def exchanges(perm: Order) -> Iterator[Order]:
    """Transpositions of two neighbouring blocks each, which one after the other are `perm`."""
    now = tuple(range(len(perm)))
    while now != perm:
        first = next(place for place, (axis, wish) in enumerate(zip(now, perm, strict=True)) if axis != wish)
        at = now.index(perm[first])
        length = next(
            n for n in range(1, len(perm) - at + 1) if now[at : at + n + 1] != perm[first : first + n + 1]
        )
        places = (
            *range(first),
            *range(at, at + length),
            *range(first, at),
            *range(at + length, len(perm)),
        )
        yield places
        now = tuple(now[place] for place in places)
