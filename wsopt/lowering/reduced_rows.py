"""Reduced extents of graphs without products: rows that are reduced, and tiles of elements."""

from __future__ import annotations

import math

from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.kinds import Kind
from wsopt.frontend.region import find_region
from wsopt.lowering.kept_axes import kept_axes
from wsopt.lowering.lower import version_of
from wsopt.lowering.reduced_graph import ALIGNMENT, BATCHES, BOX, alike, shared_axes
from wsopt.program.types import Structure
from wsopt.tensors.orders import is_turned
from wsopt.tensors.views import Role


def row_extents(axes: Axes, s: Structure, k_iterations: int) -> dict[Dim, int]:
    """The new extent of every axis of streamed rows: `k_iterations` tiles for each of two blocks, the last one
    ragged.

    There are as many rows as that takes, also where the graph has fewer: the kernel is called with any number. A row
    stays as long as it is where it is reduced: what it is divided by is part of the kernel.
    """
    region = version_of(find_region(axes.graph), s)
    batches = min(BATCHES, math.prod(axes.extents[a] for a in axes.batches))
    k_iterations = BATCHES if region.running else k_iterations  # each of many parts
    rows = math.ceil(BATCHES * k_iterations / batches) * s.tile_rows - s.tile_rows // 2
    if any(map(is_turned, region.row_tiles)):
        rows = math.ceil(rows / ALIGNMENT) * ALIGNMENT  # neighbours in memory
    found, kept = dict[Dim, int](), kept_axes(axes)
    for axis, role in ((axis, role) for axis, role in axes.roles.items() if axis not in kept):
        extent = axes.extents[axis]
        long = rows if role is Role.ROW and extent > 1 else extent
        found[axis] = min(BATCHES, extent) if role is Role.BATCH else long
        if role is Role.COLUMN and axes.kind is Kind.ROWS and not (region.whole_rows or region.running):
            found[axis] = min(extent, math.ceil((2 * s.columns + s.columns // 4) / BOX) * BOX)
    return found | dict.fromkeys([axis for axis in axes.batches[1:] if axis not in kept], 1)


def element_extents(axes: Axes, s: Structure, k_iterations: int) -> dict[Dim, int]:
    """The new extent of every axis of tiles without a reduction: two columns of tiles and a part of one, two of each
    batch, and as many rows as give each of two blocks `k_iterations` tiles, the last one ragged.

    A tensor whose rows are seen in parts still is, and axes that a kernel knows stay.
    """
    kept, found = kept_axes(axes), dict(axes.extents)
    outer, *inner = (axis for axis, role in axes.roles.items() if role is Role.COLUMN)
    below = math.prod(axes.extents[axis] for axis in inner)
    columns = below * axes.extents[outer]
    if outer not in kept:
        unit = BOX if columns % BOX == 0 else ALIGNMENT
        unit //= math.gcd(unit, below)
        target = math.ceil((2 * s.columns + s.columns // 4) / below / unit) * unit
        found[outer] = min(target, axes.extents[outer])
        columns = below * found[outer]
    tiles = math.ceil(columns / s.columns)
    for axis in axes.batches:
        found[axis] = axes.extents[axis] if axis in kept else min(BATCHES, axes.extents[axis])
        tiles *= found[axis]
    row = next(axis for axis, role in axes.roles.items() if role is Role.ROW)
    if axes.extents[row] > 1 and row not in kept:
        found[row] = max(1, math.ceil(BATCHES * k_iterations / tiles) * s.tile_rows - s.tile_rows // 2)
        if any(map(is_turned, find_region(axes.graph).row_tiles)):
            found[row] = math.ceil(found[row] / ALIGNMENT) * ALIGNMENT  # neighbours in memory
    return alike({axis: found[axis] for axis in axes.roles}, shared_axes(axes))
