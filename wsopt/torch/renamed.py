"""A piece's graph with names that say nothing of where it stands: pieces that compute alike have one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from wsopt.graph.types import DType, Graph, Input, Node, TensorType
from wsopt.torch.lying import input_of, is_made_here, lies_in_parts, repeating
from wsopt.torch.piece import Bound, Piece
from wsopt.torch.seen_once import seen_once
from wsopt.torch.values import Shape, Untaken
from wsopt.torch.wiring import Wiring


def renamed(
    wiring: Wiring,
    nodes: list[Node],
    outputs: list[Node],
    covered: frozenset[str],
    dense: frozenset[str],
    *,
    turns: bool,
) -> Piece:
    """The piece with names that say nothing of where it stands; views of what it reads are its inputs, dense ones
    where they are of these tensors. If it `turns`, it reads those with dimensions in another order as they lie.

    Raises Untaken where it reads a tensor that FX does not have.
    """
    made = _Renamed(wiring, dense, turns, {node.name for node in nodes})
    for node in nodes:
        if node in outputs or not made.is_seen_otherwise(node):
            made.keep(node)
    fixed = frozenset(one.name for one in made.inputs if one.constant)
    inputs = made.inputs
    if not any(is_made_here(one.source) for one in made.bound):
        # The kernel before it may be none of this graph, and write what is constant within the graph. A kernel that
        # reads what the graph computes comes after one that has waited for all before the graph.
        inputs = [Input(one.name, one.type, False, one.strides) for one in inputs]
    names = tuple(_stored(made.kept, made.short[node.name], node.type) for node in outputs)
    # Dynamo compiles anew where this is switched, so that a piece is of one kind for good.
    deterministic = torch.are_deterministic_algorithms_enabled()
    graph = Graph("piece", "", tuple(inputs), tuple(made.kept), names, deterministic)
    graph, bound = _read_once(graph, made.bound)
    owners = tuple(wiring.lowered.owners[node.name] for node in outputs)
    return Piece(graph, tuple(bound), owners, covered, (None,) * len(owners), fixed)


@dataclass(slots=True)
class _Renamed:
    """A piece's graph as it is made, node by node: its `inputs` with what they are in FX, the nodes `kept`, and the
    name in it of each tensor (`short`). Of what is read from outside `known` are tensors in a shape, `views` those
    that a reshape sees in another; `own` are the nodes that the piece computes.
    """

    wiring: Wiring
    dense: frozenset[str]
    turns: bool
    own: set[str]
    inputs: list[Input] = field(default_factory=list)
    bound: list[Bound] = field(default_factory=list)
    kept: list[Node] = field(default_factory=list)
    short: dict[str, str] = field(default_factory=dict)
    known: dict[tuple[str, Shape], str] = field(default_factory=dict)
    views: dict[str, tuple[str, Shape]] = field(default_factory=dict)

    def is_seen_otherwise(self, node: Node) -> bool:
        """Whether a node is nothing but another shape of a tensor from outside, of which it is noted then."""
        if node.op != "reshape":
            return False
        source, _ = self.views.get(node.tensors[0], (node.tensors[0], ()))
        if source in self.own or (self.turns and lies_in_parts(self.wiring, source, node.type.shape)):
            return False
        self._check(source)
        self.views[node.name] = source, node.type.shape
        self.own.discard(node.name)
        return True

    def keep(self, node: Node) -> None:
        """Have the graph compute a node, and read what that reads from outside."""
        for tensor in node.tensors:
            if tensor in self.short:
                continue
            if tensor in self.views:
                self._enter(tensor, *self.views[tensor])
            elif tensor not in self.own:
                self._check(tensor)
                self._enter(tensor, tensor, self.wiring.lowered.writer.types[tensor].shape)
        self.short[node.name] = f"n{len(self.kept)}"
        operands = tuple(self.short[one] if isinstance(one, str) else one for one in node.inputs)
        self.kept.append(Node(self.short[node.name], node.op, operands, node.attrs, node.type))

    def _check(self, tensor: str) -> None:
        if tensor not in self.wiring.lowered.owners:
            raise Untaken(f"it reads a part of {self.wiring.lowered.writer.groups[tensor]}")

    def _enter(self, alias: str, tensor: str, shape: Shape) -> None:
        """Make a tensor from outside, in a shape, an input that is known as `alias`."""
        lowered = self.wiring.lowered
        key = (lowered.owners[tensor].name, shape)
        if key not in self.known:
            one, order = input_of(self.wiring, f"i{len(self.inputs)}", tensor, shape, turns=self.turns)
            self.known[key] = one.name
            self.inputs.append(replace(one, strides=None) if tensor in self.dense else one)
            self.bound.append(
                Bound(lowered.owners[tensor], one.type.shape, repeating(lowered, tensor), order)
            )
            if order is not None:
                self.kept.append(_turned_back(f"n{len(self.kept)}", one, order))
                self.known[key] = self.kept[-1].name
        self.short[alias] = self.known[key]


def _read_once(graph: Graph, bound: Sequence[Bound]) -> tuple[Graph, list[Bound]]:
    """A graph with what its inputs are, where those of one tensor in several shapes are one if they can be."""
    given = list(zip(graph.inputs, bound, strict=True))
    plain = {item.name: one.source.name for item, one in given if one.order is None and one.dims is None}
    found = seen_once(graph, plain)
    kept = {item.name for item in found.inputs}
    return found, [one for item, one in given if item.name in kept]


def _stored(nodes: list[Node], name: str, type_: TensorType) -> str:
    """An output as a kernel stores it: truth values as bytes that are 1 where they hold, by one node more."""
    if type_.dtype is not DType.BOOL:
        return name
    found = TensorType(type_.shape, DType.I8)
    nodes.append(Node(f"n{len(nodes)}", "cast", (name,), (("dtype", DType.I8),), found))
    return nodes[-1].name


def _turned_back(name: str, one: Input, order: Sequence[int]) -> Node:
    """An input whose dimensions are those of FX in this order, with its dimensions in theirs."""
    perm = tuple(order.index(dim) for dim in range(len(order)))
    found = TensorType(tuple(one.type.shape[dim] for dim in perm), one.type.dtype)
    return Node(name, "transpose", (one.name,), (("perm", perm),), found)
