"""Reductions along a few places of an axis, written as elementwise operations on the slices that lie there.

The results of a token's experts, and streams of a residual, are added up along an axis of two to eight elements whose
neighbours in memory are of other rows. A kernel of reductions holds such rows whole, in short pieces. Slices of an
input cost nothing, so the sum of them is an elementwise kernel with long rows, or a value of one that reduces these.
So are pairs of neighbours, and small squares of an image, of which a smaller one has the largest elements or means.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from wsopt.frontend.derived import derived
from wsopt.frontend.kinds import feeding, input_path, is_matmul, is_pointwise, producer
from wsopt.frontend.names import free_name, names_of
from wsopt.frontend.slices import with_sliced_inputs
from wsopt.graph.needed import needed
from wsopt.graph.types import DType, Graph, Node, TensorType
from wsopt.tensors.views import PAIR

_TOGETHER = {"reduce_sum": "add", "reduce_mean": "add", "reduce_max": "maximum", "reduce_min": "minimum"}
"""Reductions, and what makes one of those of two parts."""

_MOST, _LEAST_INNER = 8, 64
"""Places along the axis at most, and elements that lie together behind it at least. By the model the sum of 4096 x 8
x 1024 takes 19.4 us so, and 24.9 us held; of 16 it is 35.6 and 36.4 us (predicted for an H200).
"""


def with_short_axes(graph: Graph) -> Graph:
    """The graph with such reductions written out where all that they reduce is computed for them alone, element by
    element; itself where there are none, and beside products.
    """
    squares = _squares(graph)
    found = [node for node in graph.nodes if node in squares or _is_short(graph, node)]
    if not found or any(map(is_matmul, graph.nodes)) or not _are_alone(graph, found):
        return graph
    taken = names_of(graph)
    written = {node.name: tuple(_Writer(graph, node, taken).nodes()) for node in found}
    nodes = tuple(one for node in graph.nodes for one in written.get(node.name, (node,)))
    made = needed(replace(graph, nodes=nodes))
    seen = with_sliced_inputs(made)
    computed = any(node.op == "slice" and input_path(seen, node.name) is None for node in seen.nodes)
    return graph if computed else made


def _is_short(graph: Graph, node: Node) -> bool:
    """Whether a node reduces a few places along an outer axis, behind which enough elements lie together, or pairs of
    neighbours, both of which a copy brings.
    """
    if not _is_few(graph, node):
        return False
    inner = graph.type_of(node.tensors[0]).shape[node.attr("axis", int) :]
    return inner == (PAIR,) or math.prod(inner[1:]) >= _LEAST_INNER


def _squares(graph: Graph) -> list[Node]:
    """Reductions that, two and two, reduce small squares, as of an image for one of half its size: one along an axis,
    and one of what that gave along another. Where neighbours in memory are of one square, they are slices too.
    """
    pairs = ((graph.producer(node.tensors[0]), node) for node in graph.nodes if _is_few(graph, node))
    found = [
        one
        for before, node in pairs
        if before is not None and before.op == node.op and _is_few(graph, before)
        if _places(graph, before) * _places(graph, node) <= _MOST
        for one in (before, node)
    ]
    return list({node.name: node for node in found}.values())


def _is_few(graph: Graph, node: Node) -> bool:
    """Whether a node reduces a few places along an axis, and leaves more than one row of them."""
    if node.op not in _TOGETHER or node.type.dtype is not DType.F32:
        return False
    several = sum(extent > 1 for extent in node.type.shape) > 1  # slices of one row are no kernel's tile
    return several and 1 < _places(graph, node) <= _MOST


def _places(graph: Graph, node: Node) -> int:
    """How many places along its axis a node reduces to one."""
    return graph.type_of(node.tensors[0]).shape[node.attr("axis", int)]


def _are_alone(graph: Graph, found: list[Node]) -> bool:
    """Whether what nodes reduce is computed of inputs, element by element or by others of them, and nothing else
    reads it, nor the inputs along the axis that they reduce: a kernel would have tiles of all places besides those of
    each.
    """
    short = {node.name for node in found}
    inside = short | {name for node in found for name in feeding(graph.nodes, node.tensors)}
    for node in found:
        back = graph.type_of(node.tensors[0]).rank - node.attr("axis", int)
        for name in feeding(graph.nodes, node.tensors) - short:
            of_input = input_path(graph, name) is not None
            if not of_input and (not _is_of_elements(producer(graph, name)) or _is_known(graph, name, back)):
                return False
            shape = graph.type_of(name).shape
            varies = not of_input or (len(shape) >= back and shape[-back] > 1)
            if varies and (name in graph.outputs or any(o.name not in inside for o in graph.consumers(name))):
                return False
    return True


def _is_of_elements(node: Node) -> bool:
    return is_pointwise(node) or node.op == "gather"


def _is_known(graph: Graph, name: str, back: int) -> bool:
    """Whether a tensor has one truth for each place along the axis so far from the last one, which no input decides:
    of a slice it would be the same everywhere, as a number's that is compared with the place.
    """
    type_ = graph.type_of(name)
    along = type_.dtype is DType.BOOL and type_.rank >= back and type_.shape[-back] == type_.size
    return along and all(graph.input(one) is None for one in feeding(graph.nodes, (name,)))


@dataclass(slots=True)
class _Writer:
    """Writes the nodes of a reduction, whose names are not `taken`; the last one has its own."""

    graph: Graph
    node: Node
    taken: set[str]
    made: dict[str, Node] = field(default_factory=dict)

    def nodes(self) -> Iterator[Node]:
        """The slices, what is made of them together, and that in the reduction's shape."""
        node, (source,) = self.node, self.node.tensors
        axis = node.attr("axis", int)
        count = self.graph.type_of(source).shape[axis]
        total = ""
        for place in range(count):
            part = self._write("place", "slice", source, axis=axis, start=place, stop=place + 1)
            total = self._write("together", _TOGETHER[node.op], total, part) if total else part
        if node.op == "reduce_mean":
            total = self._write("mean", "div", total, float(count))
        self.made[node.name] = derived(node.name, "reshape", (total,), self._type, {"shape": node.type.shape})
        yield from self.made.values()

    def _write(self, what: str, op: str, *inputs: str | float, **given: int) -> str:
        name = free_name(f"{self.node.name}_{what}", self.taken)
        self.made[name] = derived(name, op, inputs, self._type, given)
        return name

    def _type(self, name: str) -> TensorType:
        return self.made[name].type if name in self.made else self.graph.type_of(name)
