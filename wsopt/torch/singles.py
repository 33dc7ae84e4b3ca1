"""Masks of attention with one query, which a kernel reads as they are for all query heads of a group.

A kernel takes any number of queries, so that a mask with a dimension of queries varies along them even where there is
one. Then query heads that share keys are no rows of one tile: each reads the keys for itself. Where extents are known
not to change, such a mask is an input without its dimensions of one element, and is the same for all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wsopt.frontend.kinds import is_matmul, reduces_rows
from wsopt.graph.types import Input, Node, TensorType
from wsopt.torch.piece import Piece

_CHAINED = 2
"""Products of an attention, at least."""


def without_singles(piece: Piece) -> Piece:
    """The piece with masks that are read in fewer dimensions, if it is an attention with one query for each head."""
    graph = piece.graph
    products = [node for node in graph.nodes if is_matmul(node)]
    chained = len(products) >= _CHAINED and any(map(reduces_rows, graph.nodes))
    single = all(node.type.shape[-2:-1] == (1,) for node in products)
    if not (chained and single) or piece.changing is not None:
        return piece
    read = {name for node in products for name in node.tensors}
    inputs, bound, views = list(graph.inputs), list(piece.inputs), list[Node]()
    for number, (one, outside) in enumerate(zip(graph.inputs, piece.inputs, strict=True)):
        other = outside.dims is not None or outside.order is not None
        if one.name in read or other or 1 not in one.type.shape or one.type.size == 1:
            continue
        inputs[number] = _narrow(one)
        bound[number] = replace(outside, shape=inputs[number].type.shape)
        shape = (("shape", one.type.shape),)
        views.append(Node(_view_of(one), "reshape", (one.name,), shape, one.type))
    named = {view.tensors[0]: view.name for view in views}
    nodes = tuple(_reading(node, named) for node in graph.nodes)
    return replace(
        piece,
        graph=replace(graph, inputs=tuple(inputs), nodes=(*views, *nodes)),
        inputs=tuple(bound),
    )


def _reading(node: Node, named: Mapping[str, str]) -> Node:
    """A node that reads what has a new name by that."""
    return replace(node, inputs=tuple(named.get(x, x) if isinstance(x, str) else x for x in node.inputs))


def _view_of(one: Input) -> str:
    return f"{one.name}_seen"


def _narrow(one: Input) -> Input:
    """An input without its dimensions of one element."""
    kept = [dim for dim, extent in enumerate(one.type.shape) if extent > 1]
    type_ = TensorType(tuple(one.type.shape[dim] for dim in kept), one.type.dtype)
    strides = None if one.strides is None else tuple(one.strides[dim] for dim in kept)
    return replace(one, type=type_, strides=strides)
