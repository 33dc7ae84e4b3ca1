"""Reduced extents of graphs whose products have nothing between them: a few tiles each way, with ragged edges."""

from __future__ import annotations

import math

from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.kinds import Kind
from wsopt.frontend.region import find_region
from wsopt.lowering.kept_axes import batches_in_parts, moved_axes
from wsopt.lowering.reduced_graph import ALIGNMENT, BATCHES, SHORTEST, alike, shared_axes
from wsopt.program.types import Structure, column_role, row_role
from wsopt.tensors.views import FRAGMENT, TMA_BITS, Packing, Role

_SEGMENTS = 5
"""Segments of rows: enough for empty ones, one smaller than a tile, and one behind them."""


def product_extents(axes: Axes, s: Structure, k_iterations: int, *, longer: bool) -> dict[Dim, int]:
    """The new extent of every axis of products, if it is not shorter already: about two and a half tiles each way,
    and enough K-blocks to go round the ring. Rows that are reduced stay whole.

    Batches of products that are not reduced may be merged into rows, so that all are kept, and each has a share of
    the rows. An axis that lies inside another one in a dimension of a tensor stays, for the kernel knows its extent.
    """
    targets, found = _product_targets(axes, s, k_iterations), dict[Dim, int]()
    for axis, role in axes.roles.items():
        extent, target = axes.extents[axis], targets.get(role, BATCHES)
        kept = axes.kind is Kind.REDUCED and role is Role.COLUMN
        found[axis] = target if longer and role is Role.STREAM else extent if kept else min(target, extent)
    for role in (Role.COLUMN, Role.STREAM) if axes.kind.plain else ():
        streams = role is Role.STREAM
        kept = streams and bool(s.tail)
        found |= _in_parts(axes, role, targets[role], kept=kept, longer=longer and streams)
    found |= batches_in_parts(axes, targets) if axes.kind.plain else {}
    few = () if axes.kind is Kind.PRODUCTS else axes.batches[1:]
    return alike(found, shared_axes(axes)) | dict.fromkeys(few, 1) | _known_extents(axes)


def _product_targets(axes: Axes, s: Structure, k_iterations: int) -> dict[Role, int]:
    """The extents that axes of products get by their roles."""
    rows = math.ceil((2 * s.tile_rows + s.rows // 2) / ALIGNMENT) * ALIGNMENT
    columns = math.ceil((2 * s.columns + s.columns // 4) / ALIGNMENT) * ALIGNMENT
    rest = (s.tail or s.depth) * 3 // 4 // ALIGNMENT * ALIGNMENT or SHORTEST
    whole = _fragment(axes)
    targets = {
        row_role(s.swap): rows + _ragged_rows(axes) * (not s.swap),
        column_role(s.swap): columns,
        Role.SEGMENT: _SEGMENTS,
        Role.STREAM: math.ceil(((k_iterations - 1) * s.depth + rest) / whole) * whole,
    }
    if axes.kind is Kind.PRODUCTS and axes.batches:
        targets[Role.ROW] = math.ceil(targets[Role.ROW] / (BATCHES * ALIGNMENT)) * ALIGNMENT
    return targets


def _known_extents(axes: Axes) -> dict[Dim, int]:
    """The axes whose extents a kernel knows, for they lie inside another one in a dimension of a tensor."""
    inner, moved = _inner_roles(axes), moved_axes(axes)
    known = {
        axis: axes.extents[axis] for axis, role in axes.roles.items() if role in inner and axis not in moved
    }
    if Role.ROW in inner:
        # A group of batch elements that share an operand may be rows: it is such a part too.
        dims = (dim for use in axes.paths for dim in axes.raw_view(use).dims)
        known |= {dim.axis: axes.extents[dim.axis] for dim in dims if dim.part[0]}
    return known


def _inner_roles(axes: Axes) -> frozenset[Role]:
    """The roles of axes that are an inner part of a dimension of some tensor, as the width of packed heads is."""
    region = find_region(axes.graph)
    views = [*(one.view for one in region.sources), *(one.view for one in region.outputs)]
    views += [*region.streams, *region.stationary_operands]
    return frozenset(
        role for view in views for role, (take, _) in zip(view.roles, view.parts, strict=False) if take
    )


def _fragment(axes: Axes) -> int:
    """Elements of the streamed axis that packed constants have a multiple of."""
    if axes.kind is not Kind.COMPUTED:
        return 1
    views = (source.view for source in find_region(axes.graph).streamed_sources)
    return math.lcm(*(FRAGMENT[view.dtype] for view in views if view.packing is Packing.FRAGMENTS))


def _ragged_rows(axes: Axes) -> int:
    """Rows of the last tile behind whole ones: as few as TMA may begin the next row of turned factors behind."""
    if axes.kind is not Kind.COMPUTED:
        return ALIGNMENT // 2
    views = (source.view for source in find_region(axes.graph).streamed_sources)
    turned = (TMA_BITS // view.dtype.bits for view in views if view.packing is Packing.TURNED)
    return max(ALIGNMENT // 2, *turned, 0)


def _in_parts(axes: Axes, role: Role, target: int, *, kept: bool, longer: bool) -> dict[Dim, int]:
    """The extents of axes that are one to the kernel, for a reshape merges them: the outermost has what the target
    leaves, the others stay, as do all where the length has to be what it is (`kept`). None is made longer unless that
    is asked for.
    """
    own = [axis for axis, known in axes.roles.items() if known is role]
    if len(own) < 2:
        return {}
    outer, *inner = own
    below = math.prod(axes.extents[axis] for axis in inner)
    extents = {axis: axes.extents[axis] for axis in own}
    wanted = -(-target // below)
    return extents if kept else extents | {outer: wanted if longer else min(wanted, axes.extents[outer])}
