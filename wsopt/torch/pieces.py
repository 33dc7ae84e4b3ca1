"""A set of nodes as a kernel's graph, and how it is tied to the FX graph around it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import fx

from wsopt.frontend.kinds import is_matmul, reduces_rows
from wsopt.graph.symbolic import AnyGraph, any_canonical_bytes
from wsopt.graph.types import DType, Graph, Input, Node, TensorType, row_major_strides
from wsopt.partition.constants import Folded, folded
from wsopt.torch.changing import Changing, changing
from wsopt.torch.joining import joined_order, joined_perm
from wsopt.torch.lower import Lowered
from wsopt.torch.rates import Attention
from wsopt.torch.reads import bytes_read
from wsopt.torch.rounding import without_roundings
from wsopt.torch.seen_once import seen_once
from wsopt.torch.sizes import changes
from wsopt.torch.symbols import Symbols
from wsopt.torch.traffic import copied_bytes, is_view
from wsopt.torch.values import Dim, Shape, Untaken, view_strides
from wsopt.torch.wiring import Wiring

_OPERANDS = 3
"""Tensors that an operation of attention is given if it has no mask: queries, keys, values."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An input of a piece: the FX node that it is, and the shape in which the kernel sees it. Where FX repeats some
    elements that the kernel reads once, `dims` says which. Where the kernel sees dimensions in another order, as the
    tensor lies in memory, `order` has it.
    """

    source: fx.Node
    shape: Shape
    dims: tuple[Dim, ...] | None = None
    order: tuple[int, ...] | None = None

    @property
    def unordered(self) -> Shape:
        """The shape with the dimensions in the order of FX."""
        if self.order is None:
            return self.shape
        return tuple(self.shape[self.order.index(dim)] for dim in range(len(self.shape)))


@dataclass(frozen=True)
class Piece:
    """A kernel's graph, whose names are those of every piece alike, with the FX nodes of its inputs and outputs, and
    all FX nodes that it computes. Of the inputs `fixed` have contents that are there before a call; if it `packs`,
    what products read of them alone is made once, and `kernel` is the graph of what is left. Where an output has the
    dimensions of its FX node in another order, as that node lies in memory, `orders` has the order; truth values are
    i8 there. Where extents change from call to call, `changing` is the graph in a dimension that has a range.
    `attention` is how FX has one that the piece holds, `copied_bytes` what copies move that FX makes for it of
    elements that it reads once, `turned_bytes` what copies move that turn results which it stores otherwise than they
    lie in FX.
    """

    graph: Graph
    inputs: tuple[Bound, ...]
    outputs: tuple[fx.Node, ...]
    covered: frozenset[str]
    orders: tuple[tuple[int, ...] | None, ...]
    fixed: frozenset[str] = frozenset()
    packs: bool = False
    changing: Changing | None = None
    attention: Attention = Attention.CALLED
    copied_bytes: int = 0
    turned_bytes: int = 0

    @cached_property
    def folded(self) -> Folded | None:
        """The piece's graph in two, if it packs and there is something to be packed."""
        return folded(self.graph, self.fixed) if self.packs and self.changing is None else None

    @property
    def kernel(self) -> Graph:
        """The graph that a kernel is made of, with the extents that are typical."""
        return self.typical if self.folded is None else self.folded.main

    @property
    def typical(self) -> Graph:
        """The graph with the extents that are typical."""
        return self.graph if self.changing is None else self.changing.typical

    @property
    def built(self) -> AnyGraph:
        """The graph that is built: for all of a range where extents change."""
        return self.kernel if self.changing is None else self.changing.graph

    @cached_property
    def bytes_in(self) -> int:
        """Bytes of the inputs that are not constant."""
        return sum(bytes_read(self.graph, one.name) for one in self.graph.inputs if not one.constant)

    @cached_property
    def bytes_moved(self) -> int:
        """Bytes of all inputs and outputs."""
        typical = self.typical
        read = sum(bytes_read(typical, one.name) for one in typical.inputs)
        return read + sum(int(typical.type_of(name).nbytes) for name in typical.outputs)

    @cached_property
    def bytes_by_output(self) -> tuple[tuple[str, int], ...]:
        """The FX node of each output, by name, with its bytes."""
        sizes = (int(self.graph.type_of(name).nbytes) for name in self.graph.outputs)
        return tuple(zip((node.name for node in self.outputs), sizes, strict=True))

    @cached_property
    def is_statistic(self) -> bool:
        """Whether it has no products, reduces rows, and hands on nothing as large as what it reads."""
        most = max(one.type.size for one in self.graph.inputs)
        without = not any(map(is_matmul, self.graph.nodes))
        return without and all(self.graph.type_of(name).size < most for name in self.graph.outputs)

    @cached_property
    def key(self) -> str:
        """Equal for pieces that one kernel computes."""
        packed = " ".join(sorted(self.fixed)) if self.folded else ""
        graph = self.graph if self.changing is None else self.changing.graph
        told = any_canonical_bytes(graph) + packed.encode()
        return hashlib.sha256(told).hexdigest()[:16]

    @cached_property
    def work(self) -> str:
        """The products and reductions of a piece in words: what its kernel takes most of its time for."""
        found = [
            f"{node.op} {node.type}" for node in self.graph.nodes if is_matmul(node) or reduces_rows(node)
        ]
        return "; ".join(found)


def piece_of(
    wiring: Wiring, wanted: Collection[str], *, laid: bool = False, copies: bool = False, packs: bool = False
) -> Piece:
    """The piece that computes these nodes, with the indices that they read; its outputs `laid` as FX has them in
    memory, or with their dimensions in order. Inputs that FX copies to lie densely do so if it `copies`, and so do
    those whose dimensions lie in another order, else they are read where they lie before. It may pack constants if it
    `packs`.

    Raises Untaken where it would hand on a tensor that FX does not have, or of a type that it has otherwise.
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
    piece = _renamed(wiring, without_roundings(nodes, names), outputs, covered, dense, turns=not copies)
    calls = () if copies else (wiring.calls[name] for name in covered)
    copied = copied_bytes(lowered, calls)
    piece = replace(piece, packs=packs, attention=_attention(wiring, nodes), copied_bytes=copied)
    piece = _laid(lowered.symbols, piece) if laid else piece
    piece = _ranging(piece, lowered.symbols)
    return replace(piece, turned_bytes=_turned_bytes(lowered.symbols, piece))


def _turned_bytes(symbols: Symbols, piece: Piece) -> int:
    """Bytes that are read and written to have a piece's results as they lie in FX."""
    typical = piece.typical
    return 2 * sum(
        int(typical.type_of(name).nbytes)
        for name, owner, order in zip(typical.outputs, piece.outputs, piece.orders, strict=True)
        if order is None and not _is_in_order(memory_order(symbols, owner))
    )


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
    return replace(piece, graph=graph, orders=tuple(orders))


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


def memory_order(symbols: Symbols, node: fx.Node) -> tuple[int, ...] | None:
    """The dimensions of an FX node's tensor from the outermost in memory; None if it does not lie densely."""
    shape, strides = symbols.shape(node.meta["val"]), symbols.strides(node.meta["val"])
    if strides is None:
        return None
    order = sorted(range(len(shape)), key=lambda dim: (-int(strides[dim]), dim))
    behind = 1
    for dim in reversed(order):
        if shape[dim] > 1 and strides[dim] != behind:
            return None
        behind *= shape[dim]
    moving = [dim for dim in order if shape[dim] > 1]
    return tuple(range(len(shape))) if moving == sorted(moving) else tuple(order)


def _renamed(
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
    """
    lowered = wiring.lowered
    short: dict[str, str] = {}
    inputs: list[Input] = []
    bound: list[Bound] = []
    known: dict[tuple[str, Shape], str] = {}
    kept: list[Node] = []
    own = {node.name for node in nodes}
    views: dict[str, tuple[str, Shape]] = {}

    def enter(tensor: str, alias: str, shape: Shape) -> None:
        """Make a tensor from outside, in a shape, an input that is known as `alias`."""
        key = (lowered.owners[tensor].name, shape)
        if key not in known:
            one, order = _input(wiring, f"i{len(inputs)}", tensor, shape, turns=turns)
            known[key] = one.name
            inputs.append(replace(one, strides=None) if tensor in dense else one)
            bound.append(Bound(lowered.owners[tensor], one.type.shape, repeating(lowered, tensor), order))
            if order is not None:
                kept.append(_turned_back(f"n{len(kept)}", one, order))
                known[key] = kept[-1].name
        short[alias] = known[key]

    for node in nodes:
        source = views.get(node.tensors[0], (node.tensors[0], ())) if node.op == "reshape" else None
        if (
            source is not None
            and source[0] not in own
            and node not in outputs
            and not (turns and _lies_in_parts(wiring, source[0], node.type.shape))
        ):
            if source[0] not in lowered.owners:
                raise Untaken(f"it reads a part of {lowered.writer.groups[source[0]]}")
            views[node.name] = source[0], node.type.shape
            own.discard(node.name)
            continue
        for tensor in node.tensors:
            if tensor in short:
                continue
            if tensor in views:
                enter(views[tensor][0], tensor, views[tensor][1])
            elif tensor not in own:
                if tensor not in lowered.owners:
                    raise Untaken(f"it reads a part of {lowered.writer.groups[tensor]}")
                enter(tensor, tensor, lowered.writer.types[tensor].shape)
        short[node.name] = f"n{len(kept)}"
        operands = tuple(short[x] if isinstance(x, str) else x for x in node.inputs)
        kept.append(Node(short[node.name], node.op, operands, node.attrs, node.type))
    fixed = frozenset(one.name for one in inputs if one.constant)
    if not any(is_made_here(one.source) for one in bound):
        # The kernel before it may be none of this graph, and write what is constant within the graph. A kernel that
        # reads what the graph computes comes after one that has waited for all before the graph.
        inputs = [Input(one.name, one.type, False, one.strides) for one in inputs]
    names = tuple(_stored(kept, short[node.name], node.type) for node in outputs)
    graph = Graph("piece", "", tuple(inputs), tuple(kept), names)
    graph, bound = _read_once(graph, bound)
    owners = tuple(lowered.owners[node.name] for node in outputs)
    return Piece(graph, tuple(bound), owners, covered, (None,) * len(owners), fixed)


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


def is_made_here(node: fx.Node) -> bool:
    """Whether a kernel of the FX graph makes a tensor: neither an input of the graph nor a view of one."""
    while node.op == "call_function":
        if not is_view(node):
            return True
        node = node.all_input_nodes[0]
    return False


def repeating(lowered: Lowered, tensor: str) -> tuple[Dim, ...] | None:
    """The dimensions that FX sees of a tensor of which it repeats elements; None of any other."""
    value = lowered.values.get(lowered.owners[tensor].name)
    return None if value is None or isinstance(value, tuple) or value.whole else value.dims


def _turned_back(name: str, one: Input, order: Sequence[int]) -> Node:
    """An input whose dimensions are those of FX in this order, with its dimensions in theirs."""
    perm = tuple(order.index(dim) for dim in range(len(order)))
    found = TensorType(tuple(one.type.shape[dim] for dim in perm), one.type.dtype)
    return Node(name, "transpose", (one.name,), (("perm", perm),), found)


def _input(
    wiring: Wiring, name: str, tensor: str, shape: Shape, *, turns: bool
) -> tuple[Input, tuple[int, ...] | None]:
    """An input by a name, as it lies, and the order of its dimensions if that is another than in its shape, as it may
    be if the piece `turns`. How it lies is found once.
    """
    if (tensor, shape, turns) not in wiring.inputs:
        wiring.inputs[tensor, shape, turns] = _lying(wiring.lowered, tensor, shape, turns=turns)
    found, order = wiring.inputs[tensor, shape, turns]
    return Input(name, found.type, found.constant, found.strides), order


def _lying(
    lowered: Lowered, tensor: str, shape: Shape, *, turns: bool
) -> tuple[Input, tuple[int, ...] | None]:
    """An input as it lies in memory according to FX, and the order in which its dimensions do if that is another;
    dense where it cannot be seen in its shape as it lies.
    """
    owner = lowered.owners[tensor]
    strides = None if repeating(lowered, tensor) else strides_as(lowered.symbols, owner, shape)
    found, order = TensorType(shape, lowered.writer.types[tensor].dtype), None
    if turns and strides is not None:
        order = _order_of(found, strides)
    if order is not None and strides is not None:
        shape, strides = tuple(shape[dim] for dim in order), tuple(strides[dim] for dim in order)
        found = TensorType(shape, found.dtype)
    dense = (
        strides is None
        or changes(*strides)
        or strides == row_major_strides(shape)
        or not _can_be_copied(found, strides)
    )
    # What TMA cannot copy as it lies would be padded, and a CUDA graph would not see a change of the copy.
    fixed = owner.name in lowered.constants and _can_be_copied(found, row_major_strides(shape))
    return Input(owner.name, found, fixed, None if dense else strides), order


def _lies_in_parts(wiring: Wiring, tensor: str, shape: Shape) -> bool:
    """Whether a tensor from outside is none in this shape without a copy, but lies turned in its own as kernels read
    it: as every second row and column of an image does, whose channels lie together.
    """
    owner = wiring.lowered.owners.get(tensor)
    if owner is None or strides_as(wiring.lowered.symbols, owner, shape) is not None:
        return False
    own, order = _input(wiring, "", tensor, wiring.lowered.symbols.shape(owner.meta["val"]), turns=True)
    return order is not None and own.strides is not None


def _order_of(tensor: TensorType, strides: Shape) -> tuple[int, ...] | None:
    """The dimensions of a tensor from the outermost in memory, if each lies within the next outer one, TMA moves it
    so, and its last one is not the innermost; else None.
    """
    shape = tensor.shape
    order = tuple(sorted(range(len(shape)), key=lambda dim: (shape[dim] == 1, -int(strides[dim]), dim)))
    moving = [dim for dim in order if shape[dim] > 1]
    if not moving or moving[-1] == max(moving):
        return None
    laid = TensorType(tuple(shape[dim] for dim in moving), tensor.dtype)
    lies = tuple(strides[dim] for dim in moving)
    within = zip(lies, lies[1:], laid.shape[1:], strict=False)
    nested = not changes(*strides) and all(outer >= inner * extent for outer, inner, extent in within)
    whole = nested or lies == row_major_strides(laid.shape)
    return order if whole and _can_be_copied(laid, lies) else None


def _can_be_copied(tensor: TensorType, strides: Shape) -> bool:
    """Whether TMA moves a tensor that lies so: its last axis densely, the others at multiples of 16 bytes."""
    moving = [stride for extent, stride in zip(tensor.shape, strides, strict=True) if extent > 1]
    return moving[-1:] == [1] and all(stride * tensor.dtype.bits % 128 == 0 for stride in moving[:-1])


def strides_as(symbols: Symbols, node: fx.Node, shape: Shape) -> Shape | None:
    """Strides of an FX node's tensor seen in a shape; None if that would be a copy, or if elements overlap."""
    val = node.meta["val"]
    own = symbols.strides(val)
    strides = None if own is None else view_strides(symbols.shape(val), own, shape)
    if strides is None:
        return None
    moving = [stride for extent, stride in zip(shape, strides, strict=True) if extent > 1]
    return None if 0 in moving or (moving and min(moving) != 1) else strides
