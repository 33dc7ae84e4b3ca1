"""Rows that begin between two places that TMA takes, copied, or read by threads, as pieces of one long row.

TMA copies from multiples of 16 bytes, and rows of 50,257 elements of bf16 begin at any even byte. Where rows lie one
behind the other all of a tensor is one row, of which a piece is copied that begins where TMA can, less than 16 bytes
before the row does: of several tensors at the same element, where it can for the one with the narrowest. The tile
then has elements of the row before and of the row behind, which are left out, and each thread still has 16 bytes of
neighbours that begin at a multiple of 16 bytes, by which it may read them itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace

from wsopt.frontend.types import Region
from wsopt.graph.types import DType
from wsopt.tensors.statements import Item, Statement
from wsopt.tensors.views import FULL, OUTER, TMA_BITS, Role, View

MOST_ELEMENTS = 2**31
"""Of a tensor: coordinates of TMA are i32."""


@functools.lru_cache(maxsize=16)
def flat_region(region: Region) -> Region | None:
    """The region whose tiles of rows are pieces of flat rows; None where it has none that need it, or others too.

    All tiles have to begin at the same place of 16 bytes, so that neighbours of one are neighbours of all: they have
    rows of one length, one behind the other. Vectors along the columns would be read element by element.
    """
    views = tuple(_tiles(region))
    along = any(Role.COLUMN in one.spans and one.spans != FULL for one in region.sources)
    outer = any(region.extent(role) > 1 for role in OUTER)
    if region.contractions or outer or along or not views:
        return None
    if all(view.is_aligned for view in views) or not all(map(_lies_flat, views)):
        return None
    run = max(TMA_BITS // view.dtype.bits for view in views)
    sources = (
        replace(one, view=replace(one.view, flat=run)) if one.spans == FULL else one for one in region.sources
    )
    outputs = (
        replace(one, view=replace(one.view, flat=run)) if one.has_columns else one for one in region.outputs
    )
    in_parts = flat_region(region.in_parts) if region.in_parts else None
    statements = tuple(one for item in region.statements for one in _of_own_row(item))
    return replace(
        region, sources=tuple(sources), outputs=tuple(outputs), statements=statements, in_parts=in_parts
    )


def _of_own_row(item: Item) -> Iterator[Item]:
    """An item that computes with a row's own elements. A sum up to each element would begin with what stands in front
    of the row's first, of which a tile that begins with its row has nothing.
    """
    if isinstance(item, Statement) and item.primitive == "running_sum":
        inside = Statement(f"{item.name}$inside", "inside_column", (), frozenset({Role.COLUMN}), DType.BOOL)
        own = Statement(f"{item.name}$own", "where", (inside.name, *item.args, 0.0), FULL, DType.F32)
        yield from (inside, own)
        item = replace(item, args=(own.name,))
    yield item


def _tiles(region: Region) -> Iterator[View]:
    """The tensors of rows that are read and stored, element by element of a tile."""
    yield from (one.view for one in region.sources if one.spans == FULL)
    yield from (one.view for one in region.outputs if one.has_columns)


def _lies_flat(view: View) -> bool:
    """Whether a tensor's rows lie one behind the other, all of them in order, and are read as they are."""
    plain = View(
        view.tensor, view.dtype, (Role.ROW, Role.COLUMN), view.extents, (*view.extents[1:], 1), view.origin,
        view.rank, view.constant,
    )  # fmt: skip
    no_parts = all(take == 0 and step == 1 for take, step in view.parts)
    whole = not any(view.cutouts)
    own = replace(view, parts=(), cutouts=()) if no_parts and whole else view
    return own == plain and math.prod(view.extents) < MOST_ELEMENTS
