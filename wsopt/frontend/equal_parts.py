"""Joined tensors whose parts differ in length, written with parts of one length.

A kernel stores joined parts that all have its tile's columns. Where only a part of each head is turned by its
position, and the rest is stored as it is, the parts have 64 and 64 elements, of which the first are joined of 32 and
32 again, or 128, 32 and 32: as four and as six parts of 32 they are one kernel's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from wsopt.frontend.derived import derived
from wsopt.frontend.kinds import is_matmul, is_pointwise, reduces_rows
from wsopt.frontend.names import free_name, names_of
from wsopt.graph.types import Graph, Node, TensorType

_MOST, _LEAST = 8, 16
"""Parts that `concat` joins at most, and elements of one at least: of shorter ones rows are stored in pieces of less
than a sector of L2, and a cut writes them as choices between parts as long as the whole.
"""


def with_equal_parts(graph: Graph) -> Graph:
    """The graph with joined tensors of elements alone in parts of one length; itself where they are already."""
    if any(is_matmul(node) or reduces_rows(node) for node in graph.nodes):
        return graph
    wanted = {node.name: each for node in graph.nodes if (each := _each(graph, node))}
    if not wanted:
        return graph
    taken = names_of(graph)
    nodes = (
        one
        for node in graph.nodes
        for one in (_parted(graph, node, wanted[node.name], taken) if node.name in wanted else (node,))
    )
    return replace(graph, nodes=tuple(nodes))


def _each(graph: Graph, node: Node) -> int:
    """How long each of the parts is of which a joined tensor can be made; 0 if it is as it is, or cannot be."""
    if node.op != "concat":
        return 0
    axis = node.attr("axis", int)
    own = [graph.type_of(name).shape[axis] for name in node.tensors]
    back = axis - node.type.rank
    each = math.gcd(*_lengths(graph, node, back))
    same = all(length == each for length in own)
    return 0 if same or each < _LEAST or sum(own) > _MOST * each else each


def _lengths(graph: Graph, joined: Node, back: int) -> Iterator[int]:
    """The lengths of what is joined along an axis, counted from the end: of the parts of a tensor, and of whatever
    elements of those are computed of.
    """
    left, seen = [joined], set[str]()
    while left:
        node = left.pop()
        seen.add(node.name)
        if node.op == "concat" and node.attr("axis", int) - node.type.rank == back:
            yield from (graph.type_of(one).shape[back] for one in node.tensors)
        made = (graph.producer(one) for one in node.tensors)
        left += [
            one for one in made if one and one.name not in seen and (is_pointwise(one) or one.op == "concat")
        ]


def _parted(graph: Graph, node: Node, each: int, taken: set[str]) -> Iterator[Node]:
    """The nodes of a joined tensor with parts of this length, the last of which has its name."""
    axis, parts, types = node.attr("axis", int), list[str](), dict[str, TensorType]()
    for name in node.tensors:
        length = graph.type_of(name).shape[axis]
        if length == each:
            parts.append(name)
            continue
        for start in range(0, length, each):
            given = {"axis": axis, "start": start, "stop": start + each}
            part = derived(free_name(f"{name}_part", taken), "slice", (name,), graph.type_of, given)
            types[part.name] = part.type
            parts.append(part.name)
            yield part
    yield derived(
        node.name, "concat", tuple(parts), lambda one: types.get(one) or graph.type_of(one), {"axis": axis}
    )
