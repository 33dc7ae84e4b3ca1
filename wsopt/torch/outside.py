"""Calls with extents beyond those that kernels are made for: the whole graph goes the usual way then."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx
from torch._guards import TracingContext

from wsopt.graph.extents import Monomial
from wsopt.torch.changing import Changing
from wsopt.torch.late import Compile, compiled_late
from wsopt.torch.later import copied
from wsopt.torch.symbols import symbols_of

Compiled = Callable[..., Any]


@dataclass(slots=True)
class Limits:
    """The ranges of all pieces of a graph from Dynamo: of each product of torch's symbols the largest least and the
    least largest extent.
    """

    ends: dict[Monomial, tuple[int, int]] = field(default_factory=dict)

    def note(self, pieces: Iterable[Changing | None]) -> None:
        """Keep within what these are made for."""
        for one in pieces:
            for product, ends in zip(one.symbols, one.ends, strict=True) if one is not None else ():
                least, most = self.ends.get(product, ends)
                self.ends[product] = max(least, ends[0]), min(most, ends[1])

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether all pieces are made for a call where the symbols have these values; those of none are let be."""
        for product, (least, most) in self.ends.items():
            if (
                values.keys() >= {*product}
                and not least <= math.prod(map(values.__getitem__, product)) <= most
            ):
                return False
        return True


class Within:
    """A compiled graph that is called within limits. Beyond them the graph without pieces is, compiled by `usual`
    when that first comes, or as it is where compiling it then would want conditions of the extents.
    """

    def __init__(self, compiled: Compiled, module: fx.GraphModule, limits: Limits, usual: Compile) -> None:
        inputs = {node: place for place, node in enumerate(module.graph.find_nodes(op="placeholder"))}
        known = symbols_of(module.graph).known
        self._told = [(name, inputs[one.source], one.axis) for name, one in known.items()]
        self._compiled, self._limits, self._module, self._usual = compiled, limits, module, usual
        self._beyond: Compiled | None = None
        self._context, self._lock = TracingContext.try_get(), threading.Lock()

    def __call__(self, *args: Any) -> Any:
        """What the graph computes."""
        values = {
            name: args[place] if axis is None else args[place].shape[axis] for name, place, axis in self._told
        }
        return self._compiled(*args) if self._limits.holds(values) else self._outside(args)(*args)

    def _outside(self, args: Sequence[Any]) -> Compiled:
        with self._lock:
            if self._beyond is None:
                late = compiled_late(self._usual, copied(self._module), args, self._context)
                self._beyond = late or self._module
            return self._beyond


def has_changing(graph: fx.Graph) -> bool:
    """Whether a graph from Dynamo has inputs that tell an extent which changes from call to call."""
    return bool(symbols_of(graph).known)
