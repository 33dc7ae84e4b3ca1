"""Axes whose extents change, made one where nothing tells them apart: batches times tokens are rows of a product."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from wsopt.graph.extents import Extent
from wsopt.graph.infer import OpFault
from wsopt.graph.ops import OPS, AttrKind
from wsopt.graph.types import AttrValue, Graph, Input, Node, TensorType
from wsopt.torch.untaken import Untaken
from wsopt.torch.values import Shape
from wsopt.torch.writer import NUMBERS


def joined(graph: Graph, names: frozenset[str]) -> Graph:
    """The graph with one axis wherever these symbols are the extents of axes beside each other, in one order.

    Raises Untaken where an operation goes along one of them, or where its operands have them in different ways.
    """
    run = next((one for item in graph.inputs for one in _runs(item.type.shape, names)), None)
    if run is None:
        raise Untaken("they are no axes beside each other")
    types: dict[str, TensorType] = {}
    inputs, nodes = list[Input](), list[Node]()
    for item in graph.inputs:
        axes = _Axes(item.type.shape, run)
        types[item.name] = TensorType(axes.joined, item.type.dtype)
        strides = item.strides if len(axes.joined) == item.type.rank else None
        inputs.append(replace(item, type=types[item.name], strides=strides))
    for node in graph.nodes:
        source = graph.type_of(node.tensors[0]).shape if node.tensors else node.type.shape
        axes, result = _Axes(source, run), _Axes(node.type.shape, run)
        attrs = {name: _attr(node, name, value, axes, result) for name, value in node.attrs}
        operands = tuple(types[x] if isinstance(x, str) else NUMBERS[type(x)] for x in node.inputs)
        types[node.name] = _inferred(node, operands, attrs, result.joined)
        nodes.append(replace(node, attrs=tuple(sorted(attrs.items())), type=types[node.name]))
    return replace(graph, inputs=tuple(inputs), nodes=tuple(nodes))


def _runs(shape: Shape, names: frozenset[str]) -> Iterator[Shape]:
    """The extents beside each other in a shape that are these symbols, each once."""
    count = len(names)
    for axis in range(len(shape) - count + 1):
        part = shape[axis : axis + count]
        if {str(one) for one in part if isinstance(one, Extent)} == names:
            yield part


@dataclass(frozen=True, slots=True)
class _Axes:
    """The axes of a shape, and those that come of them when each `run` of extents is one."""

    shape: Shape
    run: Shape

    @property
    def starts(self) -> tuple[int, ...]:
        """Where runs begin."""
        count = len(self.run)
        return tuple(n for n in range(len(self.shape) - count + 1) if self.shape[n : n + count] == self.run)

    @property
    def joined(self) -> Shape:
        """The shape with each run as one extent."""
        starts, inside = self.starts, self.inside
        whole = {axis: math.prod(self.run) for axis in starts}
        return tuple(
            whole.get(n, extent) for n, extent in enumerate(self.shape) if n in whole or n not in inside
        )

    @property
    def inside(self) -> frozenset[int]:
        """The axes that are a part of a run."""
        return frozenset(start + place for start in self.starts for place in range(len(self.run)))

    @property
    def places(self) -> Mapping[int, int]:
        """The axes that are left, and where they are then; of a run its first."""
        left = [n for n in range(len(self.shape)) if n in self.starts or n not in self.inside]
        return {axis: place for place, axis in enumerate(left)}


def _attr(node: Node, name: str, value: AttrValue, axes: _Axes, result: _Axes) -> AttrValue:
    """An attribute as it is for joined axes of a node's first operand and of its result."""
    spec = OPS[node.op].attr(name)
    kind = None if spec is None else spec.kind
    if kind is AttrKind.SHAPE:
        return result.joined
    if kind is AttrKind.AXIS and isinstance(value, int):
        if value in axes.inside:
            raise Untaken(f"{node.op} goes along one of them")
        return axes.places[value]
    if kind is AttrKind.PERM and isinstance(value, tuple):
        return tuple(axes.places[axis] for axis in value if axis in axes.places)
    if kind is AttrKind.COUNTS and isinstance(value, tuple):
        if any(value[axis] for axis in axes.inside):
            raise Untaken(f"{node.op} goes along one of them")
        return tuple(count for axis, count in enumerate(value) if axis in axes.places)
    return value


def _inferred(
    node: Node, operands: tuple[TensorType, ...], attrs: Mapping[str, AttrValue], shape: Shape
) -> TensorType:
    """The type of a node's result. Untaken where it is not of the shape that joined axes have to give."""
    try:
        found, _ = OPS[node.op].infer(operands, attrs)
    except OpFault as fault:
        raise Untaken(f"{node.op} tells them apart") from fault
    if found != TensorType(shape, node.type.dtype):
        raise Untaken(f"{node.op} tells them apart")
    return found
