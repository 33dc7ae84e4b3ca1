"""Which parts of an FX graph become pieces, and why the others do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import flop_registry

from wsopt.errors import InternalError, LoweringError
from wsopt.frontend.kinds import is_matmul, matmul_dims
from wsopt.frontend.region import find_region
from wsopt.graph.symbolic import said
from wsopt.graph.types import Graph, Node
from wsopt.lowering.structures import structures
from wsopt.machine.types import Machine
from wsopt.runtime.torch_reference import multiplies_in_tf32
from wsopt.torch.changing import Changing
from wsopt.torch.flow import Flow, flow_of
from wsopt.torch.forms import Forms
from wsopt.torch.greedy import Answer, Greedy
from wsopt.torch.lower import Lowered, lower
from wsopt.torch.operations import TABLE
from wsopt.torch.padded import with_space
from wsopt.torch.piece import Piece
from wsopt.torch.pieces import piece_of
from wsopt.torch.reasons import reason_in_words
from wsopt.torch.scaled import with_scales
from wsopt.torch.singles import without_singles
from wsopt.torch.traffic import fx_bytes, now
from wsopt.torch.values import Shape, Untaken
from wsopt.torch.wiring import Wiring

_STATISTIC = "nothing but a value a row leaves it, which Inductor computes beside what reads it"


@dataclass(slots=True)
class Oracle:
    """Whether kernels can be made of graphs on a machine; what was asked once is known."""

    machine: Machine
    known: dict[str, str] = field(default_factory=dict)

    def refusal(self, piece: Piece) -> str:
        """Why there is no kernel for a piece; empty if there is one."""
        found = self.known.get(piece.key)
        if found is None:
            of_range = None if piece.changing is None else self._of_range(piece.changing)
            found = self.known[piece.key] = self._asked(piece.kernel) if of_range is None else of_range
        return found

    def _of_range(self, changing: Changing) -> str:
        """Why there is no kernel at one of the corners of ranges, or where extents are typical; empty if there is."""
        for extents in dict.fromkeys((*changing.corners, changing.typically)):
            try:
                found = self._asked(changing.at(extents))
            except Untaken as reason:
                return str(reason)
            if found:
                return f"with {said(changing.values(extents))}: {found}"
        return ""

    def _asked(self, graph: Graph) -> str:
        try:
            first = next(iter(structures(find_region(graph), self.machine)), None)
        except LoweringError as error:
            return reason_in_words(str(error), graph)
        return "" if first is not None else "no tile of it is legal"


@dataclass(frozen=True, slots=True)
class Cut:
    """The pieces of an FX graph, and why products and reductions that no piece has are left, by FX node. `all_flops`
    are the floating-point operations of all of the graph's products, `moved` the bytes that each FX node but views
    would move alone, `with_pieces` the bytes that pieces and what is left beside them would move.
    """

    pieces: tuple[Piece, ...]
    reasons: dict[str, str]
    all_flops: int
    moved: Mapping[str, int]
    with_pieces: int

    @property
    def flops(self) -> int:
        """Floating-point operations of the pieces' products."""
        return sum(flops(piece.typical) for piece in self.pieces)

    @property
    def nbytes(self) -> int:
        """Bytes that FX's operations in the pieces would move one by one."""
        return sum(self.moved.get(name, 0) for piece in self.pieces for name in piece.covered)


def flops(graph: Graph) -> int:
    """Floating-point operations of a graph's products, two a multiply-add."""
    return sum(product_flops(graph, node) for node in graph.nodes if is_matmul(node))


def product_flops(graph: Graph, node: Node) -> int:
    """Floating-point operations of a product."""
    left = graph.type_of(node.tensors[0]).shape
    return 2 * node.type.size * left[matmul_dims(node)[0][1]]


@dataclass(slots=True)
class Way:
    """What our graphs say of an FX graph, and what was found out of sets of groups, by their forms: of those that are
    alike the first is asked about, and the others are as that one. Pieces may pack constants if it `packs`.

    A graph is cut again where pieces are turned down, and most of it is asked about again then.
    """

    lowered: Lowered
    wiring: Wiring
    oracle: Oracle
    packs: bool = False
    forms: Forms = field(init=False)
    known: dict[int, Piece | Untaken] = field(default_factory=dict)
    _alike: dict[int, Piece] = field(default_factory=dict)
    _firsts: dict[frozenset[str], Piece] = field(default_factory=dict)
    _pieces: dict[frozenset[str], Piece] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.forms = Forms(self.wiring)

    def outline(self, groups: frozenset[str]) -> Piece | None:
        """A piece that moves the bytes which that of groups like these does, whether there is a kernel for it or not;
        None if they are none. It is the first way to say them.
        """
        form = self.forms.of(groups).number
        if form not in self.known:
            try:
                self.known[form] = self._first(groups)
            except Untaken as reason:
                self.known[form] = reason
        found = self.known[form]
        return None if isinstance(found, Untaken) else found

    def alike(self, groups: frozenset[str]) -> Piece:
        """The piece of the first groups that are like these, which have an outline."""
        form = self.forms.of(groups).number
        if form not in self._alike:
            self._alike[form] = self.piece(groups)
        return self._alike[form]

    def piece(self, groups: frozenset[str]) -> Piece:
        """The piece that computes groups: its outputs as they lie in memory where a kernel stores them so, its inputs
        where they lie, or copied as FX has them where a kernel reads them only so.

        Raises Untaken as `piece_of`.
        """
        if groups not in self._pieces:
            self._pieces[groups] = without_singles(self._with_kernel(groups))
        return self._pieces[groups]

    def _with_kernel(self, groups: frozenset[str]) -> Piece:
        """The first way to say groups of which there is a kernel, if need be with weights that are dequantized, or
        with space behind rows of inputs; the last where there is none.
        """
        for one in self._said(groups):
            if not self.oracle.refusal(one):
                return one
        first = self._first(groups)
        other = (found for found in (with_scales(first), with_space(first)) if found is not None)
        return next((found for found in other if not self.oracle.refusal(found)), one)

    def _said(self, groups: frozenset[str]) -> Iterator[Piece]:
        """The pieces that compute the same groups, the one that copies nothing first, each made when it is
        wanted: mostly the first has a kernel. Raises Untaken as `piece_of` where there is no first.
        """
        first = self._first(groups)
        yield first
        made = self._making(groups)
        others = [made] if any(first.orders) else []
        if self._reads_before_copies(first) or _turns_values(first) or self._reads_copies(groups):
            others += [partial(made, laid=True, copies=True), partial(made, copies=True)]
        for make in others:
            with suppress(Untaken):  # of an extent that changes, seen so
                yield make()

    def _first(self, groups: frozenset[str]) -> Piece:
        """The piece of groups that copies nothing, its outputs as they lie. Raises Untaken as `piece_of`."""
        if groups not in self._firsts:
            self._firsts[groups] = self._making(groups)(laid=True)
        return self._firsts[groups]

    def _making(self, groups: frozenset[str]) -> Callable[..., Piece]:
        return partial(piece_of, self.wiring, self.wiring.nodes_of(groups), packs=self.packs)

    def _reads_before_copies(self, piece: Piece) -> bool:
        """Whether a piece reads, as it lies, what FX copies to lie densely."""
        owners = self.lowered.owners
        copied = {owners[tensor].name for tensor in self.lowered.copied if tensor in owners}
        read = zip(piece.inputs, piece.graph.inputs, strict=True)
        return any(one.strides is not None and bound.source.name in copied for bound, one in read)

    def _reads_copies(self, groups: frozenset[str]) -> bool:
        """Whether groups read what FX copies to lie densely, however it lay before."""
        nodes, copied = self.lowered.writer.nodes, self.lowered.copied
        return any(not copied.isdisjoint(nodes[name].tensors) for name in self.wiring.nodes_of(groups))

    def untaken(self, groups: frozenset[str]) -> str:
        """Why groups are no piece, by their own names."""
        try:
            self.piece(groups)
        except Untaken as reason:
            return str(reason)
        raise InternalError(f"{sorted(groups)} are a piece, and those that are alike are none")


def _turns_values(piece: Piece) -> bool:
    """Whether a piece reads an input that lies turned for anything but a product, which takes operands either way."""
    turned = {
        one.name
        for bound, one in zip(piece.inputs, piece.graph.inputs, strict=True)
        if bound.order is not None
    }
    seen = {node.name for node in piece.graph.nodes if not turned.isdisjoint(node.tensors)}
    readers = (node for node in piece.graph.nodes if not seen.isdisjoint(node.tensors))
    return not all(is_matmul(node) or node.op == "transpose" for node in readers)


def ways(
    module: fx.GraphModule,
    constants: Collection[str],
    oracle: Oracle,
    device: str | None = None,
    *,
    packs: bool = False,
) -> tuple[Way, ...]:
    """The ways in which our graphs say an FX graph, or what of it is on a kind of `device`: copies that repeat
    elements are values like others, or some of them are left to FX, as where a kernel does not read elements
    repeated. Pieces may pack constants if they are told to.
    """
    precision = "tf32" if multiplies_in_tf32() else ""
    different = [lower(module, constants, device=device, ranges=True, precision=precision)]
    for copies in different[0].writer.copies.others():
        other = lower(module, constants, copies=copies, device=device, ranges=True, precision=precision)
        if all(other.refused != one.refused for one in different):
            different.append(other)
    return tuple(Way(lowered, Wiring(lowered), oracle, packs) for lowered in different)


def best_cut(
    ways: Sequence[Way], turned_down: Mapping[str, str] = MappingProxyType({})
) -> tuple[Lowered, Cut]:
    """The cut with the most operations of products in pieces, then the one that moves the fewest bytes, then the
    first, with what it is a cut of.

    No piece is one whose key, or whose work, is `turned_down`, with the reason; an empty one by a key is none.
    """
    found = [(way.lowered, cut(way, turned_down)) for way in ways]
    return max(found, key=lambda one: (one[1].flops, -one[1].with_pieces))


def cut(way: Way, turned_down: Mapping[str, str]) -> Cut:
    """Pieces of what our graphs say of an FX graph, without those that are turned down."""

    def refusal(groups: frozenset[str]) -> str:
        piece = way.alike(groups)
        return turned_down.get(piece.key, turned_down.get(piece.work, "")) or way.oracle.refusal(piece)

    def accept(groups: frozenset[str]) -> Answer:
        outline = way.outline(groups)
        if outline is None:
            return Answer(partial(way.untaken, groups), is_none=True)
        if outline.is_statistic:
            return Answer(lambda: _STATISTIC, is_statistic=True)
        sizes = (nbytes for _, nbytes in outline.bytes_by_output)
        outputs = tuple(zip(way.forms.of(groups).outputs, sizes, strict=True))
        return Answer(partial(refusal, groups), outline.bytes_in, outputs)

    greedy = Greedy(flow_of_graph(way.lowered), accept, way.wiring.groups)
    pieces = tuple(way.piece(groups) for groups in greedy.pieces())
    moved = fx_bytes(way.lowered.graph)
    moves = bytes_with_pieces(way.lowered.graph, pieces, moved)
    targets = {node.name: node.target for node in way.lowered.graph.nodes}
    reasons = {name: f"{targets[name]}: {why}" for name, why in greedy.reasons.items()}
    return Cut(pieces, reasons, fx_flops(way.lowered), moved, moves)


_COUNTED_AS = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: torch.ops.aten._scaled_dot_product_flash_attention
}
"""Operations that torch's table of counts lacks, with one that does as much."""


def _of_groups(a: Shape, b: Shape, *_how: Any, **_more: Any) -> int:
    """Of a product of groups by shapes, whatever axis offsets cut: each row, column and place of the contracted axis
    counts once, and each matrix where both operands have one a group.
    """
    matrices = a[0] if len(a) == len(b) == 3 else 1
    return 2 * matrices * a[-2] * a[-1] * b[-1]


def _of_attention(query: Shape, key: Shape, value: Shape, *_how: Any, **_more: Any) -> int:
    """Of both products of an attention by shapes, masked or not."""
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _of_gradients(gradient: Shape, x: Shape, weight: Shape, *how: Any, **_more: Any) -> int:
    """Of the gradients of a convolution of one element by shapes, the sum for a bias left out."""
    transposed, wanted = bool(how[4]), [bool(one) for one in how[-1]]
    return 2 * math.prod(x if transposed else gradient) * weight[1] * sum(wanted[:2])


_COUNTS: dict[Any, Callable[..., int]] = {
    **dict.fromkeys(filter(None, [getattr(torch.ops.aten, "_grouped_mm", None)]), _of_groups),
    torch.ops.higher_order.flex_attention: _of_attention,
    torch.ops.aten.convolution_backward: _of_gradients,
}
"""Operations that it lacks without such a one, counts by tensors, or as if there were no groups."""

_CONVOLUTIONS = (torch.ops.aten.convolution, torch.ops.aten.convolution_backward)


def fx_flops(lowered: Lowered) -> int:
    """Floating-point operations of the products and attentions of an FX graph, as torch counts them.

    Extents that change from call to call are what they are while the graph is compiled; what depends on contents is
    left out, and so are convolutions that are no products.
    """
    total = 0
    for node in lowered.graph.nodes:
        packet = getattr(node.target, "overloadpacket", node.target)
        known = _COUNTS.get(packet) or flop_registry.get(_COUNTED_AS.get(packet, packet))
        count = known if node.target in TABLE else None
        other = packet in _CONVOLUTIONS and node.name in lowered.refused
        if count is not None and "val" in node.meta and not other:
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda one: _now(one.meta.get("val")))
            total += count(*args, **kwargs, out_val=tree_map(_now, node.meta["val"]))
    return total


def _now(val: Any) -> Any:
    """A tensor's shape, or a number, as it is while a graph is compiled. Torch's counts compare extents, which it
    would note as conditions if they were what changes.
    """
    if isinstance(val, torch.Tensor):
        return torch.Size(map(now, val.shape))
    return now(val) if isinstance(val, torch.SymInt) else val


def bytes_with_pieces(graph: fx.Graph, pieces: Sequence[Piece], moved: Mapping[str, int]) -> int:
    """Bytes that pieces read and write, and those that FX's operations move whose results are still read beside them.

    A copy that pieces read as it was before is not made any more.
    """
    computed = {name for piece in pieces for name in piece.covered}
    read = {bound.source.name for piece in pieces for bound in piece.inputs}
    total = sum(piece.bytes_moved for piece in pieces)
    for node in reversed(graph.nodes):
        if node.name in computed or not (node.name in read or node.op == "output" or node.is_impure()):
            continue
        read |= {one.name for one in node.all_input_nodes}
        total += moved.get(node.name, 0)
    return total


def flow_of_graph(lowered: Lowered) -> Flow:
    """The flow of the FX graph's nodes, views left out."""
    order, reads = list[str](), dict[str, set[str]]()
    below: dict[str, set[str]] = {}
    for node in lowered.graph.nodes:
        sources = set[str]().union(*(below[one.name] for one in node.all_input_nodes))
        below[node.name] = sources if lowered.through(node) else {node.name}
        if not lowered.through(node):
            order.append(node.name)
            reads[node.name] = sources
    return flow_of(order, reads, lowered.computed)
