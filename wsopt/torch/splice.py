"""Puts operators in the place of what they compute in an FX graph. What is around them stays as it is."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import fx

from wsopt.graph.extents import Extent
from wsopt.graph.types import row_major_strides
from wsopt.torch.lower import Lowered
from wsopt.torch.lying import memory_order, strides_as
from wsopt.torch.piece import Bound, Piece
from wsopt.torch.symbols import Symbols
from wsopt.torch.values import Shape

aten = torch.ops.aten


def splice(lowered: Lowered, operators: Sequence[tuple[Piece, Any]]) -> None:
    """Change the FX graph so that each operator computes its piece."""
    graph = lowered.graph
    place = {node: number for number, node in enumerate(graph.nodes)}
    names = {node.name: node for node in graph.nodes}
    now: dict[fx.Node, fx.Node] = {}
    for piece, target in operators:
        last = max((names[name] for name in piece.covered), key=place.__getitem__)
        now |= _put(Maker(graph, last, lowered.symbols), piece, target, now)
    _sort(graph)
    gone = frozenset[str]().union(*(piece.covered for piece, _ in operators))
    for node in reversed(list(graph.nodes)):
        if not node.users and (node.name in gone or lowered.through(node)) and node.op == "call_function":
            graph.erase_node(node)
    graph.lint()


def _put(made: Maker, piece: Piece, target: Any, now: Mapping[fx.Node, fx.Node]) -> dict[fx.Node, fx.Node]:
    """Call an operator, and give its results to who reads those of the piece; the results by the FX nodes that they
    replace. `now` are those of other pieces, which this one reads in their place.
    """
    found = {}
    inputs = [
        _given(made, bound, item.strides, now.get(bound.source, bound.source))
        for bound, item in zip(piece.inputs, piece.graph.inputs, strict=True)
    ]
    call = made.call(target, *inputs)
    # Inductor chooses how what it computes lies in memory, and is asked for what the kernel reads without a copy.
    lies = (
        item.strides or row_major_strides(bound.shape)
        for bound, item in zip(piece.inputs, piece.graph.inputs, strict=True)
    )
    vals = zip((one.meta["val"] for one in inputs), lies, strict=True)
    call.meta["eager_input_vals"] = tuple(made.lying(val, strides) for val, strides in vals), {}
    several = len(piece.outputs) > 1
    for number, (owner, order) in enumerate(zip(piece.outputs, piece.orders, strict=True)):
        result = made.call(operator.getitem, call, number) if several else call
        if owner.meta["val"].dtype is torch.bool:  # which a kernel stores as i8
            result = made.call(aten.ne.Scalar, result, 0)
        result = _as_in_fx(made, result, owner) if order is None else _in_order(made, result, owner, order)
        owner.replace_all_uses_with(result, propagate_meta=False)
        found[owner] = result
    return found


class Maker:
    """Makes calls behind a node, one behind the other, with the fake tensors that they result in."""

    def __init__(self, graph: fx.Graph, last: fx.Node, symbols: Symbols | None = None) -> None:
        self.graph, self.last, self.symbols = graph, last, symbols or Symbols()

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A call behind the last one."""
        with self.graph.inserting_after(self.last):
            node = self.graph.call_function(target, args, kwargs)
        values: Any = fx.map_arg((args, kwargs), lambda one: one.meta["val"])
        with fake_mode(values[0]):
            node.meta["val"] = target(*values[0], **values[1])
        self.last = node
        return node

    def lying(self, val: torch.Tensor, strides: Shape) -> torch.Tensor:
        """A fake tensor like another one, in these strides."""
        with fake_mode((val,)):
            now = [self.symbols.now(one) for one in strides]
            return torch.empty_strided(val.shape, now, dtype=val.dtype, device=val.device)

    def shaped(self, node: fx.Node, shape: Shape) -> fx.Node:
        """A node's tensor in a shape; the node itself where it has that."""
        if self.symbols.shape(node.meta["val"]) == shape:
            return node
        return self.call(aten.reshape.default, node, [self._extent(one) for one in shape])

    def _extent(self, extent: int) -> Any:
        """An extent as an argument: a number, or the node of what changes."""
        if not isinstance(extent, Extent):
            return extent
        terms = [
            self._folded(
                operator.mul, [*([times] if times != 1 or not product else []), *map(self._symbol, product)]
            )
            for product, times in extent.terms
        ]
        return self._folded(operator.add, terms)

    def _folded(self, target: Any, operands: Sequence[Any]) -> Any:
        return reduce(lambda one, other: self.call(target, one, other), operands)

    def _symbol(self, name: str) -> fx.Node:
        """The node of a symbol of torch, which an input of the graph tells."""
        known = self.symbols.known[name]
        if known.axis is None:
            return known.source
        return self.call(aten.sym_size.int, known.source, known.axis)


def fake_mode(values: Any) -> Any:
    """The mode of the fake tensors among these; nothing if there are none."""
    modes = (one.fake_mode for one in _tensors(values) if hasattr(one, "fake_mode"))
    return next(modes, None) or contextlib.nullcontext()


def _tensors(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for one in values:
        found += (
            _tensors(one) if isinstance(one, tuple | list) else [one] if isinstance(one, torch.Tensor) else []
        )
    return found


def _given(made: Maker, bound: Bound, strides: tuple[int, ...] | None, node: fx.Node) -> fx.Node:
    """The tensor of an FX node, which `node` computes now, in a piece's shape and strides."""
    if bound.dims is not None:
        return _without_repeats(made, bound, node)
    if bound.spread is not None:
        seen, repeated = bound.spread
        if node.meta["val"].dtype is not bound.dtype:
            node = made.call(torch.ops.prims.convert_element_type.default, node, bound.dtype)
        node = made.shaped(node, seen)
        node = node if seen == repeated else made.call(aten.expand.default, node, list(repeated))
        return made.shaped(node, bound.shape)
    if bound.order is not None:
        return made.call(aten.permute.default, made.shaped(node, bound.unordered), list(bound.order))
    if node.meta["val"].dtype is torch.int64:  # indices of rows, which a kernel reads as i32
        node = made.call(torch.ops.prims.convert_element_type.default, node, torch.int32)
    shaped = made.shaped(node, bound.shape)
    if shaped is not node:
        return shaped
    lies = strides_as(made.symbols, bound.source, bound.unordered)
    if strides is None and lies != row_major_strides(bound.shape):
        node = made.call(aten.clone.default, node, memory_format=torch.contiguous_format)
    return node


def _without_repeats(made: Maker, bound: Bound, node: fx.Node) -> fx.Node:
    """The elements of an FX node's tensor that it does not repeat."""
    atoms = [atom for dim in bound.dims or () for atom in dim]
    node = made.shaped(node, tuple(atom.extent for atom in atoms))
    for axis, atom in enumerate(atoms):
        if atom.repeated:
            node = made.call(aten.slice.Tensor, node, axis, 0, 1)
    node = made.call(aten.clone.default, node, memory_format=torch.contiguous_format)
    return made.shaped(node, bound.shape)


def _in_order(made: Maker, node: fx.Node, owner: fx.Node, order: Sequence[int]) -> fx.Node:
    """A result whose dimensions are those of its FX node in this order, with its dimensions in theirs."""
    shape = made.symbols.shape(owner.meta["val"])
    node = made.shaped(node, tuple(shape[dim] for dim in order))
    return made.call(aten.permute.default, node, [order.index(dim) for dim in range(len(order))])


def _as_in_fx(made: Maker, node: fx.Node, owner: fx.Node) -> fx.Node:
    """A dense result in the shape and the strides that FX says of it."""
    node = made.shaped(node, made.symbols.shape(owner.meta["val"]))
    order = memory_order(made.symbols, owner)
    if order is not None and list(order) != sorted(order):
        node = made.call(aten.permute.default, node, list(order))
        node = made.call(aten.clone.default, node, memory_format=torch.contiguous_format)
        node = made.call(aten.permute.default, node, [order.index(dim) for dim in range(len(order))])
    return node


def _sort(graph: fx.Graph) -> None:
    """Order the nodes so that each stands behind what it reads, and else as they stood: writes stay behind reads."""
    before = list(graph.nodes)
    done: dict[fx.Node, None] = {}
    for root in before:
        waiting = [root]
        while waiting:
            node = waiting[-1]
            missing = [one for one in node.all_input_nodes if one not in done]
            if node in done or not missing:
                waiting.pop()
                done.setdefault(node)
            else:
                waiting += reversed(missing)
    output = before[-1]
    for node in done:
        if node is not output:
            output.prepend(node)


def call_names(graph: fx.Graph) -> Mapping[str, int]:
    """How often each operation is called in an FX graph."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "call_function":
            found[str(node.target)] = found.get(str(node.target), 0) + 1
    return found
