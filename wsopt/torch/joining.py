"""Axes whose extents change, made one where nothing tells them apart: batches times tokens are rows of a product."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from wsopt.graph.extents import Extent
from wsopt.graph.infer import OpFault
from wsopt.graph.ops import OPS, AttrKind
from wsopt.graph.types import AttrValue, Graph, Input, Node, TensorType
from wsopt.torch.untaken import Untaken
from wsopt.torch.values import Shape
from wsopt.torch.writer import NUMBERS


def runs(graph: Graph) -> tuple[Shape, ...]:
    """The extents beside each other in a graph that change and are nothing but a product, the most of them first."""
    shapes = [*(one.type.shape for one in graph.inputs), *(one.type.shape for one in graph.nodes)]
    found = dict.fromkeys(run for shape in shapes for run in _runs(shape))
    return tuple(sorted(found, key=len, reverse=True))


def joined(graph: Graph, run: Shape) -> Graph:
    """The graph with one axis wherever these are the extents of axes beside each other.

    Raises Untaken where an operation goes along one of them, or where its operands have them in different ways.
    """
    types: dict[str, TensorType] = {}
    known: dict[Shape, _Axes] = {}

    def axes_of(shape: Shape) -> _Axes:
        return known.setdefault(shape, _Axes(shape, run))

    inputs, nodes = list[Input](), list[Node]()
    for item in graph.inputs:
        axes = axes_of(item.type.shape)
        types[item.name] = TensorType(axes.joined, item.type.dtype)
        strides = item.strides if len(axes.joined) == item.type.rank else None
        inputs.append(replace(item, type=types[item.name], strides=strides))
    for node in graph.nodes:
        source = graph.type_of(node.tensors[0]).shape if node.tensors else node.type.shape
        axes, result = axes_of(source), axes_of(node.type.shape)
        attrs = {name: _attr(node, name, value, axes, result) for name, value in node.attrs}
        operands = tuple(types[x] if isinstance(x, str) else NUMBERS[type(x)] for x in node.inputs)
        types[node.name] = _inferred(node, operands, attrs, result.joined)
        nodes.append(replace(node, attrs=tuple(sorted(attrs.items())), type=types[node.name]))
    return replace(graph, inputs=tuple(inputs), nodes=tuple(nodes))


def _runs(shape: Shape) -> Iterator[Shape]:
    """All extents beside each other in a shape that change and are nothing but a product."""
    for first, last in itertools.combinations(range(len(shape)), 2):
        part = shape[first : last + 1]
        if all(isinstance(one, Extent) and [times for _, times in one.terms] == [1] for one in part):
            yield part


@dataclass(frozen=True)
class _Axes:
    """The axes of a shape, and those that come of them when each `run` of extents is one."""

    shape: Shape
    run: Shape

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where runs begin. Untaken where one begins within another, as of extents that are alike."""
        count = len(self.run)
        found = [n for n in range(len(self.shape) - count + 1) if self.shape[n : n + count] == self.run]
        if any(behind - first < count for first, behind in itertools.pairwise(found)):
            raise Untaken("which axes they are is not told by their extents")
        return tuple(found)

    @cached_property
    def joined(self) -> Shape:
        """The shape with each run as one extent."""
        starts, inside = self.starts, self.inside
        whole = {axis: math.prod(self.run) for axis in starts}
        return tuple(
            whole.get(n, extent) for n, extent in enumerate(self.shape) if n in whole or n not in inside
        )

    @cached_property
    def inside(self) -> frozenset[int]:
        """The axes that are a part of a run."""
        return frozenset(start + place for start in self.starts for place in range(len(self.run)))

    @cached_property
    def places(self) -> Mapping[int, int]:
        """The axes that are left, and where they are then; of a run its first."""
        left = [n for n in range(len(self.shape)) if n in self.starts or n not in self.inside]
        return {axis: place for place, axis in enumerate(left)}


def joined_order(order: Sequence[int], shape: Shape, found: Shape) -> tuple[int, ...]:
    """The order of a tensor's dimensions, whose extents are this shape in it, where some of them are one of those
    `found`. Untaken where those are not beside each other in another order.
    """
    groups = _grouped(order, shape, found)
    if groups is None or any(
        behind - dim != 1 for group in groups for dim, behind in itertools.pairwise(group)
    ):
        raise Untaken("axes that lie beside each other in memory alone")
    firsts = [group[0] for group in groups]
    return tuple(sorted(firsts).index(first) for first in firsts)


def joined_perm(order: Sequence[int], shape: Shape, found: Shape) -> tuple[int, ...] | None:
    """An order of dimensions of these extents as one of those `found`, of which some are several of them; None where
    those are not, or do not stay beside each other.
    """
    groups = _grouped(range(len(shape)), shape, found)
    if groups is None:
        return None
    perm = sorted(range(len(groups)), key=lambda place: order.index(groups[place][0]))
    return tuple(perm) if [dim for place in perm for dim in groups[place]] == list(order) else None


def _grouped(dims: Sequence[int], shape: Shape, found: Shape) -> list[list[int]] | None:
    """The dimensions of these extents that are each of those `found`; None where one of those ends within another."""
    groups, ahead = list[list[int]](), list(zip(dims, shape, strict=True))
    for extent in found:
        group, whole = list[int](), 1
        while whole != extent or not group:
            if not ahead:
                return None
            dim, further = ahead.pop(0)
            group.append(dim)
            whole *= further
        if whole != extent:
            return None
        groups.append(group)
    return None if ahead else groups


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
        for start in axes.starts:
            own = tuple(range(start, start + len(axes.run)))
            if value[value.index(start) :][: len(own)] != own:
                raise Untaken(f"{node.op} parts them")
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
