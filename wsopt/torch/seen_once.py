"""Tensors that a piece's graph sees in several shapes, as one input and reshapes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from wsopt.frontend.kinds import is_matmul
from wsopt.graph.types import Graph, Input, Node
from wsopt.torch.values import Shape


def seen_once(graph: Graph, tensors: Mapping[str, object]) -> Graph:
    """The graph with one input of those that are the same one of `tensors` in several shapes, where one of the shapes
    has all axes of the others: so a kernel reads it once, and knows the axes of its reductions for the same ones.

    Only of inputs that lie densely; and without products, each of whose operands has the shape that suits it.
    """
    if any(map(is_matmul, graph.nodes)):
        return graph
    alike: dict[object, list[Input]] = {}
    for one in graph.inputs:
        if one.name in tensors and one.strides is None:
            alike.setdefault(tensors[one.name], []).append(one)
    views = dict[str, Node]()
    for several in alike.values():
        finest = max(several, key=lambda one: len(_ends(one.type.shape)))
        if all(_ends(one.type.shape) <= _ends(finest.type.shape) for one in several):
            views |= {one.name: _seen(one, finest) for one in several if one is not finest}
    inputs = tuple(one for one in graph.inputs if one.name not in views)
    return replace(graph, inputs=inputs, nodes=(*views.values(), *graph.nodes))


def _ends(shape: Shape) -> set[int]:
    """For each axis the elements in it and in those inside of it."""
    return {math.prod(shape[axis:]) for axis in range(len(shape))}


def _seen(one: Input, finest: Input) -> Node:
    """An input as a reshape of another one of the same tensor."""
    return Node(one.name, "reshape", (finest.name,), (("shape", one.type.shape),), one.type)
