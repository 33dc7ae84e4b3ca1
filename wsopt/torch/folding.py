"""Integers and truth values of an FX graph that depend on no input, computed when it is compiled.

Masks are often made of positions that a library computes with operations that our graphs do not have, such as running
sums of differences, from nothing but lengths. What comes of them is mostly one number, or an index along a dimension,
times a number, plus another: then it is said that way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from wsopt.torch.contents import said_indices
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer

_MOST_BYTES = 1 << 27
"""A tensor of more bytes is not computed for this."""
_TYPES = (torch.int64, torch.int32, torch.bool)


@dataclass(slots=True)
class Folded:
    """The contents of nodes that depend on no input, on the CPU, each computed when it is first wanted."""

    known: dict[fx.Node, torch.Tensor | None] = field(default_factory=dict)

    def value(self, w: Writer, node: fx.Node) -> Value | None:
        """What a node holds, as a number or as indices; None where it depends on an input or is something else."""
        if not _is_computed(node):
            return None
        with (
            _disable_current_modes(),
            torch.no_grad(),
        ):  # where a graph is being compiled tensors are fake ones
            found = self._contents(node)
            if found is None:
                return None
            try:
                return said_indices(w, found.numpy())
            except Untaken:
                return None

    def _contents(self, node: fx.Node) -> torch.Tensor | None:
        """The contents of a node and, first, of all that it is computed from."""
        order = [node]
        for one in order:
            if one not in self.known and _is_computed(one):
                order += [source for source in one.all_input_nodes if source not in self.known]
        for one in reversed(order):
            if one not in self.known:
                self.known[one] = self._computed(one)
        return self.known[node]

    def _computed(self, node: fx.Node) -> torch.Tensor | None:
        sources = node.all_input_nodes
        if not _is_computed(node) or any(self.known.get(one) is None for one in sources):
            return None
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.known.__getitem__)
        here = {**kwargs, **({"device": torch.device("cpu")} if "device" in kwargs else {})}
        found = node.target(*args, **here)
        return found if isinstance(found, torch.Tensor) else None


def _is_computed(node: fx.Node) -> bool:
    """Whether a node is an operation of ATen without chance, and gives integers or truth values, not too many."""
    val, target = node.meta.get("val"), node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    if not isinstance(val, torch.Tensor) or val.dtype not in _TYPES:
        return False
    if not all(isinstance(extent, int) for extent in val.shape):
        return False
    if target.namespace not in ("aten", "prims") or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    return not target._schema.is_mutable and math.prod(val.shape) * val.element_size() <= _MOST_BYTES
