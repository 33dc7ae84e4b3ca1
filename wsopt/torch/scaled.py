"""Weights of 8 bits that a graph multiplies by a scale for each block of them, as operands of products.

FX sees such a weight in another shape, `[columns, blocks, block]`, times `[columns, blocks, 1]`, and back. Kernels
know that as one operation, `dequantize`, and want the scales of neighbouring columns beside each other: the few
scales are copied so, and repeated for each column where a block has several. The weight is read as it lies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wsopt.frontend.kinds import F8, VIEWS, is_matmul
from wsopt.graph.types import DType, Graph, Input, Node, TensorType
from wsopt.torch.laying import torch_dtype
from wsopt.torch.piece import Bound, Piece
from wsopt.torch.reads import read_by
from wsopt.torch.values import Shape

_SHORT = {*F8, DType.I8}
_WIDE = (DType.F16, DType.BF16, DType.F32)
"""Types that have every number of 8 bits."""


@dataclass(frozen=True, slots=True)
class _Weight:
    """A weight times its scales: the node that multiplies them, the nodes between it and the product's operand, and
    that operand's shape; the inputs that they are; the scales' shape beside the weight's, and their type there.
    """

    node: Node
    behind: tuple[Node, ...]
    shape: Shape
    weight: Input
    scale: Input
    beside: Shape
    dtype: DType

    @property
    def block(self) -> int:
        """Elements of a row that have one scale."""
        behind = len(self.beside) - len(_without_last_ones(self.beside))
        return math.prod(self.node.type.shape[len(self.beside) - behind :])


def with_scales(piece: Piece) -> Piece | None:
    """The piece with weights that are dequantized where it has products of them; None where it has none."""
    if piece.changing is not None:
        return None
    graph, inputs = piece.graph, list(piece.inputs)
    while (found := _found(graph, inputs)) is not None:
        graph, inputs = _dequantized(graph, inputs, found)
    return None if graph is piece.graph else replace(piece, graph=graph, inputs=tuple(inputs))


def _found(graph: Graph, bound: Sequence[Bound]) -> _Weight | None:
    """The first operand of a product that is a weight of 8 bits times scales of blocks of its rows."""
    nodes = {node.name: node for node in graph.nodes}
    plain = {
        one.name: one
        for one, outside in zip(graph.inputs, bound, strict=True)
        if one.strides is None and outside.order is None and outside.dims is None and outside.spread is None
    }
    readers = {name: [one for one in graph.nodes if name in one.tensors] for name in (*nodes, *plain)}
    for node in graph.nodes:
        behind = _behind(node, readers) if node.op == "mul" and len(node.tensors) == 2 else ()
        for one, other in (node.tensors, node.tensors[::-1]) if behind else ():
            scales = graph.type_of(other)
            weight, scale = _source(one, nodes, _WIDE), _source(other, nodes, (scales.dtype,))
            if weight in plain and scale in plain and len(readers[weight]) == len(readers[scale]) == 1:
                shape, beside = behind[-1].type.shape, (1,) * (node.type.rank - scales.rank) + scales.shape
                found = _Weight(node, behind, shape, plain[weight], plain[scale], beside, scales.dtype)
                if _fits(found):
                    return found
    return None


def _behind(node: Node, readers: Mapping[str, Sequence[Node]]) -> tuple[Node, ...]:
    """Casts behind a node, and the view of their result that a product multiplies, or turns before; none if there is
    none, or if anything else is made of the node.
    """
    found = list[Node]()
    while len(readers[node.name]) == 1 and (not found or node.op != "reshape"):
        (node,) = readers[node.name]
        if node.op not in ("cast", "reshape"):
            return ()
        found.append(node)
    multiplied = all(_is_operand(one, readers) for one in readers[node.name]) and readers[node.name]
    return tuple(found) if found and found[-1].op == "reshape" and multiplied else ()


def _is_operand(node: Node, readers: Mapping[str, Sequence[Node]]) -> bool:
    """Whether a node is a product, or turns a tensor for products."""
    return is_matmul(node) or (node.op in VIEWS and all(map(is_matmul, readers[node.name])))


def _source(name: str, nodes: Mapping[str, Node], types: Sequence[DType]) -> str:
    """What is seen in another shape, or in one of these types, under a name."""
    node = nodes.get(name)
    while node is not None and (node.op == "reshape" or (node.op == "cast" and node.type.dtype in types)):
        name = node.tensors[0]
        node = nodes.get(name)
    return name


def _fits(found: _Weight) -> bool:
    """Whether scales are those of whole parts of rows, but not of whole rows, which need no other form."""
    row, block = found.shape[-1], found.block
    whole = found.weight.type.size == found.node.type.size == math.prod(found.shape)
    short = found.weight.type.dtype in _SHORT and found.dtype in _WIDE
    return whole and short and len(found.shape) > 1 and 1 < block < row and not row % block


def _dequantized(graph: Graph, bound: Sequence[Bound], found: _Weight) -> tuple[Graph, list[Bound]]:
    """A graph, with what its inputs are, in which a weight is dequantized in its product's shape."""
    shape, lead = found.shape, found.node.type.shape[: len(_without_last_ones(found.beside))]
    scales = (*shape[:-1], shape[-1] // found.block)
    turned = (*_strides_outside(scales), 1, scales[-2])
    made = {
        found.weight.name: replace(found.weight, type=TensorType(shape, found.weight.type.dtype)),
        found.scale.name: Input(found.scale.name, TensorType(scales, found.dtype), strides=turned),
    }
    inputs = tuple(made.get(one.name, one) for one in graph.inputs)
    spread = found.beside, (*lead, *(1 for _ in found.beside[len(lead) :]))
    outside = list(bound)
    for number, one in enumerate(graph.inputs):
        if one.name == found.weight.name:
            outside[number] = replace(bound[number], shape=shape)
        if one.name == found.scale.name:
            dtype = torch_dtype(found.dtype)
            outside[number] = replace(bound[number], shape=scales, spread=spread, dtype=dtype)
    attrs = (("block", None), ("group", found.block))
    operands = (found.weight.name, found.scale.name)
    whole = Node(found.node.name, "dequantize", operands, attrs, TensorType(shape, DType.F32))
    *casts, view = found.behind
    instead = {one.name: replace(one, type=TensorType(shape, one.type.dtype)) for one in casts}
    instead[whole.name] = whole
    last = casts[-1].name if casts else whole.name
    nodes = [_reading(instead.get(one.name, one), view.name, last) for one in graph.nodes if one is not view]
    return replace(graph, inputs=inputs, nodes=tuple(read_by(nodes, graph.outputs))), outside


def _strides_outside(shape: Shape) -> Shape:
    """Strides of the dimensions before the last two of a dense tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape) - 2))


def _without_last_ones(shape: Shape) -> Shape:
    """A shape up to its last extent that is not 1."""
    last = max((axis for axis, extent in enumerate(shape) if extent > 1), default=-1)
    return shape[: last + 1]


def _reading(node: Node, name: str, instead: str) -> Node:
    """A node that reads one tensor instead of another."""
    return replace(node, inputs=tuple(instead if x == name else x for x in node.inputs))
