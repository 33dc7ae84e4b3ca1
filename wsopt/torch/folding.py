"""Integers and truth values of an FX graph that depend on no input, found when it is compiled.

Masks are often made of positions that a library computes with operations that our graphs do not have, such as running
sums of differences, from nothing but lengths. What comes of them is mostly one number, or an index along a dimension,
times a number, plus another: then it is said that way. Where lengths are numbers it is computed, and looked at; where
they change from call to call it is told by rules (`say_affine.py`).
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, field

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from wsopt.torch.affine import Affine
from wsopt.torch.contents import affine_of, said_affine
from wsopt.torch.say_affine import RULES
from wsopt.torch.symbols import Symbols
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer

_MOST_BYTES = 1 << 27
"""A tensor of more bytes is not computed for this."""
SMALL = (torch.uint8, torch.uint16, torch.int8, torch.int16)
"""Types of integers that i32 stands for while they are known, as they do not wrap around then."""
_TYPES = (torch.int64, torch.int32, torch.bool, *SMALL)


@dataclass(slots=True)
class Folded:
    """What is known of nodes that depend on no input, found when it is first wanted: their contents, on the CPU, and
    them as affine functions of their indices, which extents that change, of these symbols, may have.
    """

    symbols: Symbols = field(default_factory=Symbols)
    known: dict[fx.Node, torch.Tensor | None] = field(default_factory=dict)
    affine: dict[fx.Node, Affine | None] = field(default_factory=dict)

    def value(self, w: Writer, node: fx.Node) -> Value | None:
        """What a node holds, as a number or as indices; None where it depends on an input or is something else."""
        found = self._affine(node)
        if found is None:
            return None
        before = set(w.nodes)
        try:
            return said_affine(w, found, truth=node.meta["val"].dtype is torch.bool)
        except Untaken:
            w.forget(set(w.nodes) - before)
            return None

    def _affine(self, node: fx.Node) -> Affine | None:
        """A node as an affine function of its indices; None where it is none."""
        if node not in self.affine:
            try:
                self.affine[node] = self._found(node)
            except Untaken:
                self.affine[node] = None
        return self.affine[node]

    def _found(self, node: fx.Node) -> Affine | None:
        """By contents where these can be computed, else by the rule of the operation. Raises Untaken."""
        if not _is_folded(node):
            return None
        if _is_computed(node):
            # Where a graph is being compiled tensors are fake ones.
            with _disable_current_modes(), torch.no_grad():
                contents = self._contents(node)
                if contents is not None:
                    wide = contents.to(torch.int32) if contents.dtype in SMALL else contents
                    return affine_of(wide.numpy())
        return self._by_rule(node)

    def _by_rule(self, node: fx.Node) -> Affine | None:
        rule = RULES.get(node.target)
        if rule is None:
            return None
        shape = self.symbols.shape(node.meta["val"])
        try:
            args, kwargs = fx.map_arg((node.args, node.kwargs), self._operand)
            inspect.signature(rule).bind(shape, *args, **kwargs)
        except TypeError as reason:
            raise Untaken(str(reason)) from reason
        found = rule(shape, *args, **kwargs)
        least, most = _holds(node.meta["val"].dtype)
        return found if least <= found.ends[0] and found.ends[1] <= most else None

    def _operand(self, node: fx.Node) -> Affine | int:
        """An argument that is a node: integers that are known, or an extent. Untaken for any other."""
        val = node.meta.get("val")
        if isinstance(val, int | torch.SymInt):
            return self.symbols.extent(val)
        found = self._affine(node)
        if found is None:
            raise Untaken(f"{node.name} is not known")
        return found

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
        try:
            found = node.target(*args, **here)
        except NotImplementedError:  # by which torch says that a CPU has no such operation on this type
            return None
        return found if isinstance(found, torch.Tensor) else None


def _is_folded(node: fx.Node) -> bool:
    """Whether a node is an operation of ATen without chance, and gives integers or truth values."""
    val, target = node.meta.get("val"), node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    if not isinstance(val, torch.Tensor) or val.dtype not in _TYPES:
        return False
    if target.namespace not in ("aten", "prims") or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    return not target._schema.is_mutable


def _is_computed(node: fx.Node) -> bool:
    """Whether what a node gives is as long at every call, and not too much to be computed."""
    if not _is_folded(node):
        return False
    val = node.meta["val"]
    if not all(isinstance(extent, int) for extent in val.shape):
        return False
    return bool(math.prod(val.shape) * val.element_size() <= _MOST_BYTES)


def _holds(dtype: torch.dtype) -> tuple[int, int]:
    """The least and the largest that a type holds."""
    if dtype is torch.bool:
        return 0, 1
    limits = torch.iinfo(dtype)
    return int(limits.min), int(limits.max)
