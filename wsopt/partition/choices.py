"""Tensors of different lengths that are joined, and slices of what is computed, written out for kernels.

A kernel stores tensors side by side where they are equally long. Others it takes as one: each part is seen as long as
the whole, moved to where it begins there, and an index along the axis chooses between them. What a part has outside
of its own place counts nowhere, so a moved input is a slice of the input with zeros around it, which TMA reads for
nothing, and elementwise operations apply to what is moved. A slice of such a result is the same operations on moved
inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wsopt.frontend.kinds import input_path, is_pointwise
from wsopt.frontend.names import free_name
from wsopt.graph.infer import places
from wsopt.graph.needed import needed
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import DType, Graph, Node
from wsopt.lowering.reduced_graph import parse_derived

Shape = tuple[int, ...]

_MOST_AXES = 8
"""Axes of a tensor along which parts are joined, at most."""


@dataclass(frozen=True, slots=True)
class _Window:
    """What is to be seen of an axis, the one that is `back` from the end: `extent` places, of which the one at
    `shift` has the axis's first element.
    """

    back: int
    shift: int
    extent: int


def with_choices(graph: Graph) -> Graph:
    """The graph with parts of different lengths chosen between and slices taken of inputs; itself without any."""
    for _ in range(_MOST_AXES):  # what is moved along one axis may be joined along another
        written = _written(graph)
        if written is graph:
            break
        graph = written
    return graph


def is_written_out(graph: Graph, node: Node) -> bool:
    """Whether no kernel computes a node as it is written: tensors of different lengths are joined."""
    along = node.attr("axis", int) if node.op == "concat" else 0
    return node.op == "concat" and len({graph.type_of(name).shape[along] for name in node.tensors}) > 1


def _written(graph: Graph) -> Graph:
    """The graph with its joined tensors and its slices written out, if it has any; what they move is as it was."""
    writer = _Writer(graph)
    own = {node.name for node in graph.nodes if writer.written(node)}
    if not own:
        return graph
    data = graph_to_json(graph)
    data["nodes"] = [item for item in data["nodes"] if item["name"] not in own] + writer.nodes
    return needed(parse_derived(data, graph))


@dataclass(slots=True)
class _Writer:
    """Writes the nodes that stand for joined tensors and for slices; those that are alike once."""

    graph: Graph
    nodes: list[dict[str, Any]] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    known: dict[object, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tensors = (*(one.name for one in self.graph.inputs), *(node.name for node in self.graph.nodes))
        self.shapes = {name: self.graph.type_of(name).shape for name in tensors}
        self.taken = set(tensors)

    def written(self, node: Node) -> bool:
        """Whether a node stands for others, which are written then: the last one has its name."""
        if node.op == "concat" and node.type.dtype is not DType.BOOL:
            along = node.attr("axis", int)
            if len({self.shapes[name][along] for name in self._parts(node.name, along)}) == 1:
                return False
            window = _Window(node.type.rank - along, 0, node.type.shape[along])
            self._chosen(node, along, window, name=node.name)
            return True
        if node.op == "slice" and self._is_moved(node):
            window = self._of_slice(node)
            self._stands_for(node, self._moved(node.tensors[0], window))
            return True
        return False

    def _is_moved(self, node: Node) -> bool:
        """Whether a slice is one of elements that are computed from inputs."""
        source = node.tensors[0]
        computed = input_path(self.graph, source) is None
        return computed and node.attr("step", int) == 1 and self._is_of_elements(source)

    def _of_slice(self, node: Node) -> _Window:
        along = node.attr("axis", int)
        found = places(dict(node.attrs), self.shapes[node.tensors[0]][along])
        return _Window(node.type.rank - along, -found.start, len(found))

    def _stands_for(self, node: Node, name: str) -> None:
        """Give a node's name to a tensor."""
        self._node(node.name, "reshape", [name], {"shape": list(node.type.shape)}, node.type.shape, own=True)

    # --- tensors moved along an axis ---------------------------------------------------------------------

    def _moved(self, name: str, window: _Window) -> str:
        """A tensor as it is seen through a window. What lies outside of the tensor may be anything."""
        shape = self.shapes[name]
        if len(shape) < window.back or shape[-window.back] == 1:
            return name  # the same everywhere
        if (window.shift, window.extent) == (0, shape[-window.back]):
            return name
        key = name, window
        if key not in self.known:
            self.known[key] = self._moved_anew(name, window)
        return self.known[key]

    def _moved_anew(self, name: str, window: _Window) -> str:
        node, along = self.graph.producer(name), len(self.shapes[name]) - window.back
        shape = self._seen(name, window)
        if node is None or not self._is_of_elements(name):
            return self._shifted(name, window)
        if is_pointwise(node) and node.op != "iota":
            inputs = [self._moved(one, window) if isinstance(one, str) else one for one in node.inputs]
            return self._like(node, inputs, shape)
        match node.op:
            case "iota":
                return self._counted(node, window, shape)
            case "slice" if node.attr("axis", int) == along and node.attr("step", int) == 1:
                begins = self._of_slice(node).shift
                inner = _Window(window.back, window.shift + begins, window.extent)
                return self._moved(node.tensors[0], inner)
            case "slice" if node.attr("axis", int) != along:
                return self._like(node, [self._moved(node.tensors[0], window)], shape)
            case "transpose":
                back = len(shape) - node.attr("perm", tuple)[along]
                inner = _Window(back, window.shift, window.extent)
                return self._like(node, [self._moved(node.tensors[0], inner)], shape)
            case "reshape" if (source := self._before_reshape(node, along)) is not None:
                inner = _Window(source, window.shift, window.extent)
                moved = self._moved(node.tensors[0], inner)
                return self._node(f"{name}_seen", "reshape", [moved], {"shape": list(shape)}, shape)
            case "concat":
                return self._chosen(node, node.attr("axis", int), window)
        return self._shifted(name, window)

    def _before_reshape(self, node: Node, along: int) -> int | None:
        """Which axis, counted from the end, one of a reshape was before it; None if it was none by itself."""
        before, behind = self.shapes[node.tensors[0]], node.type.shape
        outer = math.prod(behind[:along])
        same = (
            at
            for at, extent in enumerate(before)
            if extent == behind[along] and math.prod(before[:at]) == outer
        )
        return next((len(before) - at for at in same), None)

    def _seen(self, name: str, window: _Window) -> Shape:
        """The shape of a tensor as it is seen through a window."""
        shape = list(self.shapes[name])
        shape[-window.back] = window.extent
        return tuple(shape)

    def _shifted(self, name: str, window: _Window) -> str:
        """A tensor with zeros around it, or the part of that which is seen."""
        shape, along = list(self.shapes[name]), len(self.shapes[name]) - window.back
        low, high = max(0, window.shift), max(0, window.extent - window.shift - shape[along])
        if low or high:
            before, behind = (
                [size if dim == along else 0 for dim in range(len(shape))] for size in (low, high)
            )
            shape[along] += low + high
            name = self._node(f"{name}_padded", "pad", [name], {"low": before, "high": behind}, tuple(shape))
        if shape[along] != window.extent:
            start = low - window.shift
            attrs = {"axis": along, "start": start, "stop": start + window.extent}
            name = self._node(f"{name}_part", "slice", [name], attrs, self._seen(name, window))
        return name

    def _counted(self, node: Node, window: _Window, shape: Shape) -> str:
        """An index as it is seen through a window: along another axis it is the same there."""
        attrs = {"shape": list(shape), "axis": node.attr("axis", int)}
        name = self._node(f"{node.name}_seen", "iota", [], attrs, shape)
        if node.attr("axis", int) != len(shape) - window.back or not window.shift:
            return name
        return self._node(f"{name}_from", "sub", [name, window.shift], {}, shape)

    # --- tensors one behind the other --------------------------------------------------------------------

    def _parts(self, name: str, along: int) -> list[str]:
        """The tensors that one is joined of along an axis, those of others that are joined so among them."""
        node = self.graph.producer(name)
        if node is None or node.op != "concat" or node.attr("axis", int) != along:
            return [name]
        return [part for one in node.tensors for part in self._parts(one, along)]

    def _chosen(self, node: Node, along: int, window: _Window, name: str = "") -> str:
        """Joined tensors as they are seen through a window."""
        shape = self._seen(node.name, window)
        if len(shape) - window.back != along:
            inputs = [self._moved(one, window) for one in node.tensors]
            return self._like(node, inputs, shape)
        found, begin = list[tuple[str, int]](), window.shift
        for part in self._parts(node.name, along):
            end = begin + self.shapes[part][along]
            if begin < window.extent and end > 0:
                found.append((self._moved(part, _Window(window.back, begin, window.extent)), end))
            begin = end
        *others, (chosen, _) = found
        index_shape = (window.extent, *(1,) * (window.back - 1))
        for part, end in reversed(others):
            index = self._once("place", "iota", [], {"shape": list(index_shape), "axis": 0}, index_shape)
            inside = self._once("before", "less", [index, end], {}, index_shape)
            chosen = self._node(f"{node.name}_chosen", "where", [inside, part, chosen], {}, shape)
        attrs = {"dtype": node.type.dtype.value}
        return self._node(name or f"{node.name}_joined", "cast", [chosen], attrs, shape, own=bool(name))

    # --- nodes -------------------------------------------------------------------------------------------

    def _is_of_elements(self, name: str) -> bool:
        """Whether a tensor is computed from inputs and indices alone, element by element."""
        node = self.graph.producer(name)
        if node is None:
            return True
        known = is_pointwise(node) or node.op in ("iota", "slice", "transpose", "reshape", "concat")
        if not known:
            return input_path(self.graph, name) is not None
        return all(map(self._is_of_elements, node.tensors))

    def _like(self, node: Node, inputs: Sequence[Any], shape: Shape) -> str:
        """A node of the same operation on other operands."""
        attrs = next(one for one in graph_to_json(self.graph)["nodes"] if one["name"] == node.name).get(
            "attrs", {}
        )
        return self._node(f"{node.name}_seen", node.op, inputs, attrs, shape)

    def _once(self, wish: str, op: str, inputs: Sequence[Any], attrs: dict[str, Any], shape: Shape) -> str:
        key = op, tuple(inputs), shape
        if key not in self.known:
            self.known[key] = self._node(wish, op, inputs, attrs, shape)
        return self.known[key]

    def _node(
        self,
        wish: str,
        op: str,
        inputs: Sequence[Any],
        attrs: dict[str, Any],
        shape: Shape,
        *,
        own: bool = False,
    ) -> str:
        """Write a node, under the name that is wished for or one like it, or under its `own`."""
        name = wish if own else free_name(wish, self.taken)
        self.taken.add(name)
        self.shapes[name] = shape
        self.nodes.append(
            {"name": name, "op": op, "inputs": list(inputs), **({"attrs": attrs} if attrs else {})}
        )
        return name
