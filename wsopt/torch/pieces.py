"""The piece that computes a set of nodes: its outputs as FX has them, its inputs as they lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import fx

from wsopt.frontend.kinds import is_matmul
from wsopt.graph.types import Graph, Input, Node, TensorType
from wsopt.torch.changing import changing
from wsopt.torch.joining import joined_order, joined_perm
from wsopt.torch.lower import Lowered
from wsopt.torch.lying import memory_order
from wsopt.torch.piece import Bound, Piece
from wsopt.torch.rates import Attention
from wsopt.torch.reads import read_by
from wsopt.torch.renamed import renamed
from wsopt.torch.rounding import without_roundings
from wsopt.torch.symbols import Symbols
from wsopt.torch.traffic import copied_bytes
from wsopt.torch.values import Untaken
from wsopt.torch.wiring import Wiring

_ARGUMENTS = 64
"""The most that an operator of torch has, one an input; it has results beside them."""
_OPERANDS = 3
"""Tensors that an operation of attention is given if it has no mask: queries, keys, values."""


def piece_of(
    wiring: Wiring, wanted: Collection[str], *, laid: bool = False, copies: bool = False, packs: bool = False
) -> Piece:
    """The piece that computes these nodes, with the indices that they read; its outputs `laid` as FX has them in
    memory, or with their dimensions in order. Inputs that FX copies to lie densely do so if it `copies`, and so do
    those whose dimensions lie in another order, else they are read where they lie before. It may pack constants if it
    `packs`.

    Raises Untaken where it would hand on a tensor that FX does not have, or of a type that it has otherwise, or read
    more tensors than an operator is given.
    """
    lowered = wiring.lowered
    nodes = wiring.with_indices(wanted)
    own = {node.name for node in nodes}
    covered = frozenset(lowered.writer.groups[name] for name in own)
    outputs = [node for node in nodes if node.name in wanted and wiring.is_needed(node.name, own, covered)]
    for node in outputs:
        _check_output(lowered, node)
    if unsaid := wiring.unsaid(covered):
        raise Untaken(unsaid)
    if not outputs:
        raise Untaken("nothing outside needs what it computes")
    names = {node.name for node in outputs}
    dense = frozenset(lowered.copied) if copies else frozenset[str]()
    kept = without_roundings(read_by(nodes, names), names)
    piece = renamed(wiring, kept, outputs, covered, dense, turns=not copies)
    if len(piece.inputs) > _ARGUMENTS:
        raise Untaken(
            f"it reads {len(piece.inputs)} tensors; an operator of torch has {_ARGUMENTS} arguments at most"
        )
    calls = () if copies else (wiring.calls[name] for name in covered)
    copied = copied_bytes(lowered, calls)
    piece = replace(piece, packs=packs, attention=_attention(wiring, nodes), copied_bytes=copied)
    piece = _laid(lowered.symbols, piece) if laid else piece
    piece = _ranging(piece, lowered.symbols)
    return replace(piece, turned_bytes=_turned_bytes(lowered.symbols, piece))


def _turned_bytes(symbols: Symbols, piece: Piece) -> int:
    """Bytes that are read and written to have a piece's results as they lie in FX."""
    turned = [
        name
        for name, owner, order in zip(piece.graph.outputs, piece.outputs, piece.orders, strict=True)
        if order is None and not _is_in_order(memory_order(symbols, owner))
    ]
    if not turned:  # as mostly: the graph of numbers takes longer to make than all else of a piece
        return 0
    return 2 * sum(int(piece.typical.type_of(name).nbytes) for name in turned)


def _is_in_order(order: Sequence[int] | None) -> bool:
    """Whether dimensions lie in the order in which they are counted, as far as it is known."""
    return order is None or list(order) == sorted(order)


def _attention(wiring: Wiring, nodes: Iterable[Node]) -> Attention:
    """How FX has an attention among nodes: as the operation that two of their products come of, or not as one."""
    products = Counter(wiring.lowered.writer.groups[node.name] for node in nodes if is_matmul(node))
    calls = [wiring.calls[name] for name, several in products.items() if several > 1]
    if not calls:
        return Attention.WRITTEN_OUT
    given = [[*call.args, *call.kwargs.values()] for call in calls]
    masked = any(sum(isinstance(one, fx.Node) for one in every) > _OPERANDS for every in given)
    return Attention.MASKED if masked else Attention.CALLED


def _ranging(piece: Piece, symbols: Symbols) -> Piece:
    """The piece with its graph in a dimension that has a range, if extents of it change. Raises as `changing`."""
    found = changing(piece.graph, symbols) if symbols.known else None
    if found is None:
        return piece
    ranging, graph = found
    inputs = tuple(_joined(*seen) for seen in zip(piece.inputs, graph.inputs, strict=True))
    return replace(piece, graph=ranging.graph.generic, inputs=inputs, changing=ranging)


def _joined(bound: Bound, item: Input) -> Bound:
    """What an input is whose axes may have been joined. Untaken where those lie beside each other in memory alone."""
    shape = item.type.shape
    order = None if bound.order is None else joined_order(bound.order, bound.shape, shape)
    return replace(bound, shape=shape, order=order)


def _laid(symbols: Symbols, piece: Piece) -> Piece:
    """The piece with outputs whose dimensions are in the order in which they lie in memory."""
    nodes, outputs, orders = list(piece.graph.nodes), list[str](), list[tuple[int, ...] | None]()
    for name, owner in zip(piece.graph.outputs, piece.outputs, strict=True):
        order, type_ = memory_order(symbols, owner), piece.graph.type_of(name)
        if order is None or _is_in_order(order):
            outputs.append(name)
            orders.append(None)
            continue
        shape = symbols.shape(owner.meta["val"])
        perm = joined_perm(order, shape, type_.shape)
        if perm is None:
            found = TensorType(shape, type_.dtype)
            nodes.append(Node(f"n{len(nodes)}", "reshape", (name,), (("shape", shape),), found))
            name, perm = nodes[-1].name, order
        else:
            shape = type_.shape
        found = TensorType(tuple(shape[dim] for dim in perm), type_.dtype)
        nodes.append(Node(f"n{len(nodes)}", "transpose", (name,), (("perm", perm),), found))
        outputs.append(nodes[-1].name)
        orders.append(order)
    graph = replace(piece.graph, nodes=tuple(nodes), outputs=tuple(outputs))
    return replace(piece, graph=_turned_once(graph), orders=tuple(orders))


def _turned_once(graph: Graph) -> Graph:
    """The graph without the turns of its results that are turned back at once, as of heads that FX sees turned."""
    nodes = {node.name: node for node in graph.nodes}
    outputs = tuple(_before_turns(nodes, name) for name in graph.outputs)
    if outputs == graph.outputs or len({*outputs}) < len(outputs):
        return graph
    read = set(outputs)
    for node in reversed(graph.nodes):
        read |= set(node.tensors) if node.name in read else set()
    return replace(graph, nodes=tuple(node for node in graph.nodes if node.name in read), outputs=outputs)


def _before_turns(nodes: Mapping[str, Node], name: str) -> str:
    """What a node turns and turns back, if it is computed; else the node itself."""
    back = nodes[name]
    turn = nodes.get(back.tensors[0]) if back.op == "transpose" else None
    if turn is None or turn.op != "transpose" or turn.tensors[0] not in nodes:
        return name
    there, perm = turn.attr("perm", tuple), back.attr("perm", tuple)
    same = all(there[axis] == place for place, axis in enumerate(perm))
    return turn.tensors[0] if same else name


def _check_output(lowered: Lowered, node: Node) -> None:
    owner = lowered.owners.get(node.name)
    if owner is None:
        raise Untaken(
            f"it would cut through {lowered.writer.groups[node.name]}, which FX has as one operation"
        )
    if owner.meta["val"].dtype is torch.int64:
        raise Untaken(f"{owner.name} is int64 in FX, and leaves the piece")
    value = lowered.values[owner.name]
    if isinstance(value, tuple) or not value.whole:
        raise Untaken(f"{owner.name} repeats elements of what the piece computes")
    if memory_order(lowered.symbols, owner) is None:
        raise Untaken(f"{owner.name} does not lie densely in memory")
