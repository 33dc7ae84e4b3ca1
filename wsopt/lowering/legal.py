"""What every structure of a kernel with products has to be: its warps, extents, subtiles, and an order of its own."""

from __future__ import annotations

from wsopt.frontend.types import Region
from wsopt.lowering.promotion import promotes
from wsopt.lowering.refused import fits_pages
from wsopt.machine.types import Machine
from wsopt.program.types import Sharing, Structure, column_role, row_role
from wsopt.targets import target_of
from wsopt.tensors.parts import parts
from wsopt.tensors.views import FRAGMENT, K_BLOCK, SLOT_BYTES, Packing, Role

_SUBTILES = (1, 2, 4)
MIN_SUBTILE_COLUMNS = 32
"""A narrower epilogue subtile has stores of less than 64 bytes a row, half of what TMA moves at full rate."""

MIN_PART_COLUMNS = 16
"""Columns of the last of several parts, whose subtiles are as narrow as it is: rows beyond a tensor's end cost more
than those stores do. 40 rows by 16,384 x 4,096 in i8 take 22.2 us with 48 columns on an H200 and 29.2 with 64
(`docs/calibration/h200_rows_beyond.json`).
"""


def warp_counts(machine: Machine) -> tuple[int, ...]:
    """Warps that a consumer may have."""
    return tuple(count * machine.warps_per_warpgroup for count in target_of(machine).warpgroups)


def is_legal(region: Region, machine: Machine, s: Structure) -> bool:
    """Whether a structure is one of its region's. emitter.v1: rows of values in tensor memory are one warpgroup's."""
    one_group, least = s.consumer_warps == machine.warps_per_warpgroup, machine.mma_rows
    whole = s.columns >= region.extent(Role.COLUMN) and s.subtiles == 1 and not s.swap
    return not (
        (not one_group and (s.rows < 2 * least or s.consumers > 1))
        or (s.subtiles > 1 and s.subtile_columns < _least_subtile(s.columns))
        or (s.sharing is Sharing.PING_PONG and (s.consumers == 1 or not s.persistent))
        or (s.depth > 128 and promotes(region, machine) and not region.body)
        or max(s.rows, s.columns, s.depth) > machine.tma_box_extent_max
        or (region.whole_rows and not whole)
        or (s.rows >= 2 * region.extent(row_role(s.swap)) and s.rows > least)
        or same_order(region, s)
    )


def same_order(region: Region, s: Structure) -> bool:
    """Whether a group of half as many tile rows takes the tiles in the same order: it has all of them already, or
    there is one column of tiles.
    """
    rows, columns = (region.extent(role(s.swap)) for role in (row_role, column_role))
    rows = -(-rows // region.extent(Role.SEGMENT))
    return s.group > 1 and (s.group * s.tile_rows >= 2 * rows or s.columns >= columns)


def subtile_counts(columns: int) -> tuple[int, ...]:
    """Epilogue subtiles that so many columns may be cut to.

    emitter.v1: subtiles are equally wide, and one of columns in parts lies in one part.
    """
    *rest, last = parts(columns)
    if not rest:
        return _SUBTILES
    narrowest = last.length // _least_subtile(columns)
    widths = (last.length >> times for times in range(narrowest.bit_length()))
    return tuple(columns // width for width in widths)


def _least_subtile(columns: int) -> int:
    """The fewest columns of a subtile of so many."""
    *rest, last = parts(columns)
    return min(last.length, MIN_SUBTILE_COLUMNS) if rest else MIN_SUBTILE_COLUMNS


def has_aligned_slots(region: Region, rows: int, depth: int) -> bool:
    """Whether every slot of a streamed vector, and of a tile of scales, begins where TMA may write, and a K-block has
    whole groups, or a group whole K-blocks; of what is packed it has whole fragments, and of what lies in pages whole
    ones or a part of one.
    """
    if not all(fits_pages(view, depth) for view in region.streams if view.page):
        return False
    for view, spans in ((source.view, source.spans) for source in region.streamed_sources):
        if spans != K_BLOCK and depth * view.dtype.bits // 8 % SLOT_BYTES:
            return False
        if depth % view.each and view.each % depth:
            return False
        if view.each > 1 and rows * view.of(Role.STREAM, depth) * view.dtype.bits // 8 % SLOT_BYTES:
            return False
        if view.packing is Packing.FRAGMENTS and depth % FRAGMENT[view.dtype]:
            return False
    return True
