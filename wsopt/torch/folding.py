"""Integers and truth values of an FX graph that depend on no input, computed when it is compiled.

Masks are often made of positions that a library computes with operations that our graphs do not have, such as running
sums of differences, from nothing but lengths. What comes of them is mostly one number, or an index along a dimension,
times a number, plus another: then it is said that way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer, number

_MOST_BYTES = 1 << 27
"""A tensor of more bytes is not computed for this."""
_TYPES = (torch.int64, torch.int32, torch.bool)


@dataclass(slots=True)
class Folded:
    """The contents of nodes that depend on no input, on the CPU, each computed when it is first wanted."""

    known: dict[fx.Node, torch.Tensor | None] = field(default_factory=dict)

    def value(self, w: Writer, node: fx.Node) -> Value | None:
        """What a node holds, as a number or as indices; None where it depends on an input or is something else."""
        with (
            _disable_current_modes(),
            torch.no_grad(),
        ):  # where a graph is being compiled tensors are fake ones
            found = self._contents(node)
            if found is None:
                return None
            try:
                return _said(w, found)
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


def _said(w: Writer, found: torch.Tensor) -> Value:
    """A tensor as a number, or as a sum of indices times numbers. Raises Untaken for any other."""
    shape = tuple(found.shape)
    if found.numel() == 0:
        raise Untaken("no elements")
    first = found.flatten()[0].item()
    if found.dtype is torch.bool:
        if not bool((found == first).all()):
            raise Untaken("truth values that differ")
        return number(bool(first), shape)
    steps = [_step(found, axis) for axis in range(len(shape))]
    told = torch.full(shape, first)
    for axis, step in _moving(steps):
        along = torch.arange(shape[axis]) * step
        told = told + along.reshape([-1 if other == axis else 1 for other in range(len(shape))])
    if not torch.equal(told, found.long()):
        raise Untaken("integers that are no indices")
    sums = [_scaled(w, w.index(shape, axis), step) for axis, step in _moving(steps)]
    if not sums:
        return number(first, shape)
    total = sums[0]
    for one in sums[1:]:
        total = w.elementwise("add", total, one)
    return total if first == 0 else w.elementwise("add", total, number(first))


def _moving(steps: list[int]) -> Iterator[tuple[int, int]]:
    return ((axis, step) for axis, step in enumerate(steps) if step)


def _step(found: torch.Tensor, axis: int) -> int:
    """By how much the first elements along a dimension differ."""
    if found.shape[axis] == 1:
        return 0
    line = found.movedim(axis, 0).reshape(found.shape[axis], -1)[:, 0]
    return int(line[1].item()) - int(line[0].item())


def _scaled(w: Writer, index: Value, step: int) -> Value:
    return index if step == 1 else w.elementwise("mul", index, number(step))
