"""Calls of pieces whose extents change: each extent has a launch of its own, made when it first comes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from wsopt.graph.extents import value_at
from wsopt.graph.types import Graph, row_major_strides
from wsopt.runtime.direct import Launch
from wsopt.torch.changing import NAME, Changing
from wsopt.torch.inductor import Layout, Layouts
from wsopt.torch.laying import all_laid, torch_dtype

_KEPT = 256
"""Extents of which launches are kept ready at once."""


class Calls:
    """Computes a piece whose extents change. `launch_at` gives what computes it where the dimension is a number, as a
    graph of numbers.
    """

    def __init__(self, changing: Changing, launch_at: Callable[[int, Graph], Launch]) -> None:
        self._changing, self._launch_at = changing, launch_at
        told, inputs = changing.told, changing.graph.generic.inputs
        self._place = next(place for place, item in enumerate(inputs) if item.name == told.tensor)
        self._axis, self._factor, self._rest = told.axis, told.factor, told.rest
        self._ready: dict[int, tuple[Graph, Launch]] = {}
        self._lock = threading.Lock()

    def __call__(self, *tensors: torch.Tensor) -> None:
        """Compute the outputs, given after the inputs, into their memory. Inputs lie as the graph declares them."""
        self._at(tensors)[1](*tensors)

    def laid(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Inputs as the graph declares them at their extent."""
        return all_laid(inputs, self._at(inputs)[0])

    def layouts(self, shapes: Iterable[Sequence[Any]]) -> tuple[Layout, ...]:
        """How the outputs lie for inputs of these shapes, of numbers or of what stands for numbers."""
        extent = self._extent(next(itertools.islice(shapes, self._place, None)))
        graph = self._changing.graph.generic
        found = []
        for type_ in map(graph.type_of, graph.outputs):
            shape = tuple(value_at(one, {NAME: extent}) for one in type_.shape)
            found.append((shape, row_major_strides(shape), torch_dtype(type_.dtype)))
        return tuple(found)

    def _extent(self, shape: Sequence[Any]) -> Any:
        """The dimension, by the shape of the input that tells it."""
        found = shape[self._axis]
        found = found - self._rest if self._rest else found
        return found if self._factor == 1 else found // self._factor

    def _at(self, tensors: Sequence[torch.Tensor]) -> tuple[Graph, Launch]:
        """The graph of numbers for these tensors, and its launch."""
        extent = self._extent(tensors[self._place].shape)
        found = self._ready.get(extent)
        if found is None:
            graph = self._changing.at(extent)
            found = graph, self._launch_at(extent, graph)
            with self._lock:
                while len(self._ready) >= _KEPT:
                    del self._ready[next(iter(self._ready))]
                self._ready[extent] = found
        return found


def fixed(layouts: tuple[Layout, ...]) -> Layouts:
    """Layouts that are the same at every call."""
    return lambda _shapes: layouts
