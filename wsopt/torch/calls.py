"""Calls of pieces whose extents change: extents have a launch of their own, made when they first come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from wsopt.graph.extents import value_at
from wsopt.graph.types import Graph, row_major_strides
from wsopt.runtime.direct import Launch
from wsopt.torch.changing import Changing, Point
from wsopt.torch.inductor import Layout, Layouts
from wsopt.torch.laying import all_laid, torch_dtype

_KEPT = 256
"""Extents of which launches are kept ready at once."""


class Calls:
    """Computes a piece whose extents change. `launch_at` gives what computes it where the dimensions are numbers, as
    a graph of numbers.
    """

    def __init__(self, changing: Changing, launch_at: Callable[[Point, Graph], Launch]) -> None:
        self._changing, self._launch_at = changing, launch_at
        places = {item.name: place for place, item in enumerate(changing.graph.generic.inputs)}
        self._told = tuple((one, places[one.tensor]) for one in changing.graph.told)
        self._names = tuple(dim.name for dim in changing.dims)
        self._ready: dict[Point, tuple[Graph, Launch]] = {}
        self._lock = threading.Lock()

    def __call__(self, *tensors: torch.Tensor) -> None:
        """Compute the outputs, given after the inputs, into their memory. Inputs lie as the graph declares them."""
        self._at(tensors)[1](*tensors)

    def laid(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Inputs as the graph declares them at their extents."""
        return all_laid(inputs, self._at(inputs)[0])

    def layouts(self, shapes: Iterable[Sequence[Any]]) -> tuple[Layout, ...]:
        """How the outputs lie for inputs of these shapes, of numbers or of what stands for numbers."""
        values = self._changing.values(self._extents(tuple(shapes)))
        graph = self._changing.graph.generic
        found = []
        for type_ in map(graph.type_of, graph.outputs):
            shape = tuple(value_at(one, values) for one in type_.shape)
            found.append((shape, row_major_strides(shape), torch_dtype(type_.dtype)))
        return tuple(found)

    def _extents(self, shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        """The dimensions, by the shapes of the inputs that tell them; a factor may hold those told before."""
        values: dict[str, Any] = {}
        for one, place in self._told:
            found = shapes[place][one.axis]
            rest, factor = value_at(one.rest, values), value_at(one.factor, values)
            found = found - rest if one.rest else found
            values[one.dim] = found if one.factor == 1 else found // factor
        return tuple(values[name] for name in self._names)

    def _at(self, tensors: Sequence[torch.Tensor]) -> tuple[Graph, Launch]:
        """The graph of numbers for these tensors, and its launch."""
        extents = self._extents([one.shape for one in tensors])
        found = self._ready.get(extents)
        if found is None:
            graph = self._changing.at(extents)
            found = graph, self._launch_at(extents, graph)
            with self._lock:
                while len(self._ready) >= _KEPT:
                    del self._ready[next(iter(self._ready))]
                self._ready[extents] = found
        return found


def fixed(layouts: tuple[Layout, ...]) -> Layouts:
    """Layouts that are the same at every call."""
    return lambda _shapes: layouts
