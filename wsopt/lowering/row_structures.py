"""The structures of kernels that stream rows: rows and columns of a tile, who works on it, what stays in the ring."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from wsopt.frontend.padding import LONGEST_PART, SHORT_ROW
from wsopt.frontend.types import Region
from wsopt.lowering.lower import grid_of
from wsopt.machine.types import Machine
from wsopt.program.limits import MOST_SLOTS
from wsopt.program.row_layout import reduces_outer, tile_layout
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.views import Reduction, Role, pow2

_ROWS, _CONSUMERS = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 3)
"""Of tiles of rows."""
_ROW_COLUMNS = (256, 512, 1024, 2048, 4096)
"""Columns of a tile of rows that are not held whole: pieces of a row that TMA copies at full rate."""
CHOSEN_ROWS = 16
"""Rows of a consumer at most of a tensor whose rows are chosen by indices: each has a copy of its own in the text."""
_LONG_ROW_COLUMNS = (2048, 4096, LONGEST_PART)
"""Columns of a part of rows that no SM holds: parts are many, and what is done once a part serves more elements."""
_OUTER_COLUMNS = (32, 64, 128, 256, 512)
"""Columns of a tile where columns lie apart in memory, so that a tile's copies are as long as its rows are many."""


def row_structures(region: Region, machine: Machine) -> Iterator[Structure]:
    """Structures of a kernel that streams rows; each tile has all columns where they are reduced and held.

    emitter.v1: blocks are persistent, consumers are cooperative, and the loop is over tiles that are read: those that
    are computed of vectors alone have no ring (`resident.py` has their structures).
    """
    if not region.tile_sources:
        return
    every, least = pow2(region.extent(Role.COLUMN)), machine.warps_per_warpgroup
    tiles = region.row_tiles
    outer = reduces_outer(tiles)
    if not outer and tiles:  # no row of a box is shorter; beyond a row's end a tile has zeros
        every = max(every, 8 * machine.tma_alignment_bytes // min(view.dtype.bits for view in tiles))
    sizes = _OUTER_COLUMNS if outer else _LONG_ROW_COLUMNS if region.running else _ROW_COLUMNS
    parts = () if region.whole_rows else (size for size in sizes if size < every)
    whole = () if not region.whole_rows and every > sizes[-1] else (every,)
    for rows, columns, consumers, warps in itertools.product(
        _ROWS, (*parts, *whole), _CONSUMERS, (least, 2 * least)
    ):
        s = Structure(
            rows, columns, 1, consumers, warps, Sharing.COOPERATIVE, persistent=True, swap=False, subtiles=1,
            group=1,
        )  # fmt: skip
        if rows > CHOSEN_ROWS and any(view.rows_chosen for view in region.operands):
            continue
        if outer and rows * min(view.dtype.bits for view in tiles) < 8 * machine.tma_alignment_bytes:
            continue  # no row of a box is shorter
        layout = tile_layout(tiles, rows, columns, warps, machine)
        if outer and columns < layout.columns <= SHORT_ROW:  # beyond so few elements a tile has zeros
            s = replace(s, columns=layout.columns)
        fits = layout.columns <= s.columns and layout.rows <= rows and not s.spares(region.extent(Role.ROW))
        if fits and (not _over_rows(region) or grid_of(region, s).column_tiles <= machine.sm_count):
            kept = [s, *(replace(s, retained=parts) for parts in retained_parts(region, s, machine))]
            yield from kept
            yield from (replace(one, dynamic=True) for one in kept if _may_be_dynamic(region, s, machine))


def retained_parts(region: Region, s: Structure, machine: Machine) -> tuple[int, ...]:
    """Parts of rows that may stay in the ring from one pass over them to the next, where there are two: as many as
    shared memory has slots for beside one set of staging buffers, or two, and one less, for the barriers' bytes.
    """
    if region.passes == 1 or region.by_threads:  # what threads read is in no slot
        return ()
    elements = s.tile_rows * s.columns
    slot, staged = (
        sum(elements * view.dtype.bits // 8 for view in views)
        for views in (region.operands, [output.view for output in region.tile_outputs])
    )
    room = machine.shared_memory_per_block_bytes - machine.shared_memory_reserved_bytes
    parts = -(-region.extent(Role.COLUMN) // s.columns)
    one, two = (min((room - count * staged) // slot, parts, MOST_SLOTS) for count in (1, 2))
    return tuple(sorted({count for count in (one, one - 1, two) if count > 0}))


def _may_be_dynamic(region: Region, s: Structure, machine: Machine) -> bool:
    """Whether blocks may take tiles at run time: where there are more than blocks, and nothing is carried from one to
    another, for of which tiles that is would depend on timing.
    """
    grid = grid_of(region, s)
    taken = grid.tiles // (grid.column_tiles if region.running else 1)
    return taken > machine.sm_count and not _over_rows(region)


def _over_rows(region: Region) -> bool:
    """Whether blocks carry reductions over rows. emitter.v1: each of tiles of the same columns."""
    return any(isinstance(item, Reduction) and item.over_rows for item in region.statements)
