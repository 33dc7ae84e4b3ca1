"""Products of one tensor with several weights, said as one product with the weights joined.

Queries, keys and values of an attention are three products that nothing combines. One kernel reads the rows once, and
has three times the tiles to share out. Its weights are joined once, before any call (`packing.py`); results are
columns of one tensor, which whoever reads them reads in place. Products that a kernel combines, as those of a gated
layer, or does more with, stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from wsopt.frontend.kinds import VIEWS, is_matmul
from wsopt.graph.ops import OPS
from wsopt.torch.piece import Piece
from wsopt.torch.splice import Maker, fake_mode
from wsopt.torch.traffic import is_view

aten = torch.ops.aten
_MOST = len(OPS["concat"].operands)
"""Tensors that may be joined."""


@dataclass(frozen=True, slots=True)
class Family:
    """Products of one FX node with weights that lie alike, in order. `key` is equal for families of the same sizes;
    with `bias` each has one added.
    """

    products: tuple[fx.Node, ...]
    weights: tuple[fx.Node, ...]
    biases: tuple[fx.Node, ...]
    turned: bool
    key: str


def families(graph: fx.Graph, constants: Collection[str], apart: Collection[str] = ()) -> Iterator[Family]:
    """The families of a graph, whose weights, and biases if they have them, are among its `constants`; products that
    are to stay `apart` are in none.
    """
    found: dict[Any, list[tuple[fx.Node, ...]]] = {}
    for node in graph.nodes:
        parts = _product(node, constants)
        if parts is not None and node.name not in apart and not _leaves(node):
            rows, weight, turned, bias = parts
            own = (node, weight) if bias is None else (node, weight, bias)
            found.setdefault((_below(rows), turned, _dtype(weight), len(own)), []).append(own)
    for (_, turned, _, _), members in found.items():
        if 2 <= len(members) <= _MOST:
            products, weights, *biases = zip(*members, strict=True)
            sizes = " ".join(str(tuple(one.meta["val"].shape)) for one in (*products, weights[0]))
            bias = biases[0] if biases else ()
            yield Family(products, weights, bias, turned, f"{sizes} {len(bias)}")


def _product(
    node: fx.Node, constants: Collection[str]
) -> tuple[fx.Node, fx.Node, bool, fx.Node | None] | None:
    """Rows, weight, whether that is transposed first, and bias of a product with a constant weight."""
    if node.target is aten.mm.default:
        (rows, weight), bias = node.args, None
    elif node.target is aten.addmm.default and not node.kwargs:
        bias, rows, weight = node.args
        if bias.meta["val"].ndim != 1 or bias.name not in constants:
            return None
    else:
        return None
    turned = weight.target is aten.permute.default and list(weight.args[1]) == [1, 0]
    turned = turned or weight.target is aten.t.default
    source = weight.args[0] if turned else weight
    val = source.meta["val"]
    if source.name not in constants or val.ndim != 2 or not val.is_contiguous():
        return None
    return (
        (rows, source, turned, bias) if all(isinstance(one, int) for one in node.meta["val"].shape) else None
    )


def _below(node: fx.Node) -> tuple[fx.Node, tuple[int, ...]]:
    """What a tensor is a view of, and its shape: equal for two that hold the same rows."""
    shape = tuple(node.meta["val"].shape)
    while node.target in (aten.view.default, aten.reshape.default, aten._unsafe_view.default):
        node = node.args[0]
    return node, shape


def _dtype(node: fx.Node) -> torch.dtype:
    found: torch.dtype = node.meta["val"].dtype
    return found


def _leaves(node: fx.Node) -> bool:
    """Whether a tensor, or a view of it, is a result of the graph, which lies as FX says."""
    return any(user.op == "output" or (is_view(user) and _leaves(user)) for user in node.users)


def with_more(pieces: Iterable[Piece]) -> frozenset[str]:
    """The FX nodes of pieces that do more than one product with a bias: joined products would be less to them."""
    found = set[str]()
    for piece in pieces:
        products = [node for node in piece.graph.nodes if is_matmul(node)]
        rows = [one for one in piece.graph.inputs if one.name not in piece.fixed]
        quiet = all(node.op in (*VIEWS, "cast", "add") for node in piece.graph.nodes if node not in products)
        if len(products) != 1 or len(rows) != 1 or not quiet:
            found |= piece.covered
    return frozenset(found)


def join(graph: fx.Graph, family: Family) -> fx.Node:
    """Have one product compute a family, and slices of it in the place of its members; the product."""
    first, products = family.products[0], family.products
    rows = first.args[1 if family.biases else 0]
    made = Maker(graph, first)
    weight = made.call(aten.cat.default, list(family.weights), 0 if family.turned else 1)
    if family.turned:
        weight = made.call(aten.permute.default, weight, [1, 0])
    if family.biases:
        joined = made.call(aten.addmm.default, made.call(aten.cat.default, list(family.biases)), rows, weight)
    else:
        joined = made.call(aten.mm.default, rows, weight)
    begin = 0
    for node in products:
        end = begin + node.meta["val"].shape[1]
        part = made.call(aten.slice.Tensor, joined, 1, begin, end)
        node.replace_all_uses_with(part, propagate_meta=False)
        _lie_anew(part)
        begin = end
    for node in products:
        graph.erase_node(node)
    return joined


def _lie_anew(node: fx.Node) -> None:
    """Say anew how views of a tensor lie, which is not dense any more; one that cannot be a view is a copy."""
    for user in node.users:
        if is_view(user):
            user.target = aten.reshape.default if user.target is aten.view.default else user.target
            args, kwargs = fx.map_arg((user.args, user.kwargs), lambda one: one.meta["val"])
            with fake_mode(args):
                user.meta["val"] = user.target(*args, **kwargs)
            _lie_anew(user)
