"""Inputs whose rows lie no multiple of 16 bytes apart, handed over with space behind the rows.

TMA copies no such rows, so that an attention over 49, 196 or 197 tokens, as of windows or of patches of an image,
would go the usual way with its mask, and so would a product of 77 features. The copies count against the piece, but
for operands of products that a kernel of Inductor's makes: it lays them out with the space at once.
"""

from __future__ import annotations

import math
from dataclasses import replace

from wsopt.frontend.kinds import VIEWS, is_matmul
from wsopt.graph.types import Graph, Input, row_major_strides
from wsopt.torch.lying import is_made_here
from wsopt.torch.piece import Piece

_ALIGNMENT = 128
"""Bits of which the distance of rows is a multiple, as TMA wants it."""


def with_space(piece: Piece) -> Piece | None:
    """The piece with space behind rows of its inputs; None where there is none to be made."""
    if piece.changing is not None:
        return None
    inputs = tuple(map(_spaced, piece.graph.inputs))
    if inputs == piece.graph.inputs:
        return None
    multiplied = _multiplied(piece.graph)
    moved = sum(
        new.type.nbytes
        for old, new, bound in zip(piece.graph.inputs, inputs, piece.inputs, strict=True)
        if new is not old and not (new.name in multiplied and is_made_here(bound.source))
    )
    graph = replace(piece.graph, inputs=inputs)
    return replace(piece, graph=graph, turned_bytes=piece.turned_bytes + 2 * int(moved))


def _multiplied(graph: Graph) -> frozenset[str]:
    """The tensors of a graph that products multiply, seen in any way."""
    found = {name for node in graph.nodes if is_matmul(node) for name in node.tensors}
    for node in reversed(graph.nodes):
        if node.op in VIEWS and node.name in found:
            found |= set(node.tensors)
    return frozenset(found)


def _spaced(one: Input) -> Input:
    """An input with space behind its rows, if it is dense and they are no multiple of 16 bytes long."""
    shape, unit = one.type.shape, _ALIGNMENT // one.type.dtype.bits
    rows = math.prod(shape[:-1])
    if one.strides is not None or rows == 1 or shape[-1] == 1 or not shape[-1] % unit:
        return one
    spaced = (*shape[:-1], -(-shape[-1] // unit) * unit)
    return replace(one, strides=row_major_strides(spaced), constant=False)
