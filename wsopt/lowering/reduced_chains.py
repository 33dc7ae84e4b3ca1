"""Reduced extents of chains of products: a few tiles, as far as masks reach, and beyond.

Consumers look at K-blocks of their own, so the last tile of rows leaves one of them without any; and where queries
are as many as keys they stay so, since a mask means them both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.needed import end_is_masked, every_row_counts
from wsopt.frontend.region import find_region
from wsopt.lowering.kept_axes import kept_axes
from wsopt.lowering.lower import bounds_of
from wsopt.lowering.reduced_graph import ALIGNMENT, BATCHES, SHORTEST, shared_axes
from wsopt.program.types import Structure
from wsopt.tensors.views import Bound, Role

_PART_K_BLOCKS = 4
"""K-blocks of a part with which every pass of its loop runs."""

_FAR = 6144
"""Rows and elements of the streamed axis that are too many to be executed one by one: 2 seconds, and 144 MiB for each
step of the reference.
"""

_SHARED_BATCHES = 4
"""Elements of all batch axes with equal shares of K-blocks, of which a block that takes all tiles has no parts: as
many as go round what it holds for a tile.
"""

_LONG = 4
"""How many times as long as it is asked for the streamed axis may be before a tile of rows is left out: tiles have
K-blocks enough then, and each takes its time.
"""


def few_extents(axes: Axes, s: Structure, k_iterations: int) -> dict[Dim, int]:
    """The extents of a few tiles of rows, and of `k_iterations` K-blocks, no more than there are."""
    return _chain_extents(axes, *_within(axes, *_few(axes, s, k_iterations)), _batches(s))


def reaching_extents(axes: Axes, s: Structure, k_iterations: int) -> dict[Dim, int] | None:
    """Extents at which each mask has masked and unmasked elements. None where few tiles are as long, and where a mask
    reaches too far to be executed.
    """
    few, reach = _chain_extents(axes, *_within(axes, *_few(axes, s, k_iterations))), _reach(axes, s)
    lengths = ((axes.extent(role), _elements(axes, few, role)) for role in (Role.ROW, Role.STREAM))
    if reach > _FAR or all(min(extent, reach) <= found for extent, found in lengths):
        return None
    length = _ragged(reach + s.tile_rows + s.depth, s)
    return _chain_extents(axes, *_within(axes, length, length), batches=1)


def further_extents(axes: Axes, s: Structure, k_iterations: int) -> Iterator[dict[Dim, int]]:
    """Extents for lines that have not run at `few_extents`, short ones first.

    Where a number may stand for minus infinity since every row keeps an element, no row is empty.
    """
    number = find_region(axes.graph).full_rows
    for lengths in _further(axes, s, k_iterations):
        extents = _chain_extents(axes, *lengths)
        new = (_elements(axes, extents, role) for role in (Role.ROW, Role.STREAM))
        if not number or every_row_counts(_masks(axes), *new):
            yield extents


def extents_beyond(axes: Axes, s: Structure) -> dict[Dim, int] | None:
    """Extents as far as masks reach that are too long to be executed whole; None where the further ones go as far."""
    length = max(_far(axes, s), _of_parts(axes, s))
    return None if length <= _FAR else _chain_extents(axes, length, length, batches=1)


def _further(axes: Axes, s: Structure, k_iterations: int) -> Iterator[tuple[int, int, int]]:
    """Rows, elements of the streamed axis, and the most of a batch axis, of graphs for lines not run: shorter than a
    K-block; a few tiles; as far as masks reach, and on until K-blocks lie to tiles as before; with a single row for
    one of the consumers; and with many rows for few K-blocks, and the reverse. Parts of split sums take as many more.
    """
    yield (*_within(axes, SHORTEST, SHORTEST), _batches(s))
    yield (*_few(axes, s, k_iterations), _batches(s))
    far = _far(axes, s)
    if far <= _FAR:
        yield far, far, 1
        if far < _of_parts(axes, s) <= _FAR:
            yield _of_parts(axes, s), _of_parts(axes, s), 1
        for own in range(0, s.tile_rows, s.rows):
            yield far // s.tile_rows * s.tile_rows + own + 1, far + _reach(axes, s), 1
        yield far, SHORTEST, 1
        yield SHORTEST, far, 1


def _batches(s: Structure) -> int:
    """Batch elements of a few tiles, at most."""
    return _SHARED_BATCHES if s.shares else BATCHES


def _far(axes: Axes, s: Structure) -> int:
    """As far as masks reach, and on until K-blocks lie to tiles as before."""
    return _ragged(_reach(axes, s) + s.tile_rows + math.lcm(s.tile_rows, s.depth), s)


def _of_parts(axes: Axes, s: Structure) -> int:
    """A length with which each part of the last tile has a few K-blocks, under a mask that moves with the rows."""
    return _ragged(_reach(axes, s) + _PART_K_BLOCKS * s.splits * s.depth, s) if s.splits > 1 else 0


def _reach(axes: Axes, s: Structure) -> int:
    """Elements from which on every mask is at work in some K-block."""
    return max((abs(bound.constant) for bound in _masks(axes)), default=0) + s.depth


def _ragged(least: int, s: Structure) -> int:
    """The least length that ends in the first consumer's rows of a tile, and inside of a K-block."""
    rest = -(-(s.rows // 2) // ALIGNMENT) * ALIGNMENT + ALIGNMENT // 2
    return max(0, math.ceil((least - rest) / s.tile_rows)) * s.tile_rows + rest


def _few(axes: Axes, s: Structure, k_iterations: int) -> tuple[int, int]:
    """Two tiles of rows and a part of one, and `k_iterations` K-blocks, the last one ragged; where masks want many
    more K-blocks, one tile of rows and a part.
    """
    rows, k_blocks = _ragged(2 * s.tile_rows, s), (k_iterations - 1) * s.depth
    if axes.extent(Role.ROW) == axes.extent(Role.STREAM):
        rows = max(rows, _ragged(k_blocks + SHORTEST, s))
        return rows, rows
    stream = k_blocks + (s.depth * 3 // 4 // ALIGNMENT * ALIGNMENT or SHORTEST)
    if _to_the_end(axes, min(rows, axes.extent(Role.ROW)), stream) > _LONG * stream:
        rows = _ragged(s.tile_rows, s)
    return rows, stream


def _to_the_end(axes: Axes, rows: int, stream: int) -> int:
    """Elements of the streamed axis, no fewer than `stream`: where a mask ends every row before the axis does it
    still does, so that the region's loop stays what it is. The end of the axis itself moves with it.
    """
    bounds = _masks(axes)
    if not end_is_masked(bounds, axes.extent(Role.ROW), axes.extent(Role.STREAM)):
        return stream
    fixed = (b for b in bounds if b.stream < 0 and not b.terms)
    ends = [max(b.constant, b.row * (rows - 1) + b.constant) + 1 for b in fixed]
    return max(stream, min(ends))


def _within(axes: Axes, rows: int, stream: int) -> tuple[int, int]:
    """Rows and elements of the streamed axis, no more than there are."""
    return min(rows, axes.extent(Role.ROW)), min(stream, axes.extent(Role.STREAM))


def _masks(axes: Axes) -> list[Bound]:
    """The bounds that masks put on K-blocks, the end of the streamed axis left out."""
    region = find_region(axes.graph)
    return [bound for bound in region.bounds if bound != bounds_of(region).end]


def _elements(axes: Axes, extents: Mapping[Dim, int], role: Role) -> int:
    """Elements along the axes of a role at these extents."""
    return math.prod(extents[axis] for axis in axes.atoms_of(role))


def _pages(axes: Axes, found: Mapping[Dim, int]) -> dict[Dim, int]:
    """The new extents of axes of tensors that lie in pages: no more pages than the tables have places, and one that
    none of them has.
    """
    extents = dict[Dim, int]()
    for node in (node for node in axes.graph.nodes if node.op == "gather"):
        (atom,) = axes.atoms(f"{node.name}:0", node.attr("axis", int))
        places = math.prod(found.get(axis, axes.extents[axis]) for axis in axes.all_atoms(f"{node.name}:1"))
        extents[atom] = min(axes.extents[atom], places + 1)
    return extents


def _chain_extents(axes: Axes, rows: int, stream: int, batches: int = BATCHES) -> dict[Dim, int]:
    """The new extent of every axis; what a block holds whole stays, and so does what a kernel knows. Axes that are
    one dimension of an input stay alike.
    """
    kept, stream = kept_axes(axes), _to_the_end(axes, rows, stream)
    new, found = {Role.ROW: rows, Role.STREAM: stream}, dict[Dim, int]()
    for axis, role in axes.roles.items():
        found[axis] = new.get(role, axes.extents[axis])
    places, *page = axes.atoms_of(Role.STREAM)
    found |= {axis: axes.extents[axis] for axis in page}
    found[places] = math.ceil(stream / math.prod(axes.extents[axis] for axis in page))
    found |= _batch_extents(axes, batches, kept)
    found |= {axis: axes.extents[axis] for axis in kept}
    for shared in shared_axes(axes):
        known = kept & {*shared} or {*shared}
        found |= dict.fromkeys(shared, min(found.get(axis, axes.extents[axis]) for axis in known))
    return found | _pages(axes, found)


def _batch_extents(axes: Axes, batches: int, kept: Collection[Dim]) -> dict[Dim, int]:
    """The extents of batch axes: a few elements of each, and `batches` of all together if there are so many. Beside
    one that is `kept` there are many tiles already, and only the innermost of the others is more than one.
    """
    own = {axis: axes.extents[axis] for axis in axes.batches}
    free = [axis for axis in own if axis not in kept]
    found = own | {axis: min(own[axis], batches, BATCHES) for axis in free}
    if len(free) < len(own):
        found |= dict.fromkeys(free[:-1], 1)
        free = free[-1:]
    for axis in reversed(free):
        others = math.prod(found.values()) // found[axis]
        found[axis] = max(found[axis], min(own[axis], math.ceil(batches / others)))
    return found
