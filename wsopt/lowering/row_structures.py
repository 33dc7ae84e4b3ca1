"""The structures of kernels that stream rows: rows and columns of a tile, who works on it, what stays in the ring."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from wsopt.frontend.flat_rows import flat_region
from wsopt.frontend.padding import LONGEST_PART, SHORT_ROW
from wsopt.frontend.types import Region
from wsopt.lowering.lower import grid_of, version_of
from wsopt.lowering.resident import ends_late_enough
from wsopt.lowering.row_steps import part_registers
from wsopt.lowering.rows_layout import rows_layout
from wsopt.machine.types import Machine
from wsopt.program.changed import changed
from wsopt.program.limits import MOST_SLOTS
from wsopt.program.row_layout import SWIZZLES, RowLayout, all_swizzled, reduces_outer
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.orders import is_turned, lie_both_ways
from wsopt.tensors.statements import carries_over_rows
from wsopt.tensors.views import Role, pow2

_ROWS, _CONSUMERS = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 3)
"""Rows of a consumer's tile, and consumers of a block."""
_ROW_COLUMNS = (256, 512, 1024, 2048, 4096)
"""Columns of a tile of rows that are not held whole: pieces of a row that TMA copies at full rate."""
_CHOSEN_ROWS = 16
"""Rows of a consumer at most of a tensor whose rows are chosen by indices: each has a copy of its own in the text."""
_LONG_ROW_COLUMNS = (2048, 4096, LONGEST_PART)
"""Columns of a part of rows that no SM holds: parts are many, and larger ones share what is done once a part."""
_REGISTERS = 96
"""Registers of a thread, at most, for parts of rows that stay there: it computes with another part in f32 besides."""
_FLAT_ELEMENTS = 32
"""Elements, at most, that a thread stores of a part of a flat row: at the row's ends each has an address and a mask
of its own. With 64 of them registers spill; with 32 they do where parts of rows stay in registers.
"""
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
    outer, both = reduces_outer(tiles), lie_both_ways(tiles)
    if not outer and tiles:  # no row of a box is shorter; beyond a row's end a tile has zeros
        least_bytes = min(SWIZZLES) if both else machine.tma_alignment_bytes
        every = max(every, 8 * least_bytes // min(view.dtype.bits for view in tiles))
    sizes = _OUTER_COLUMNS if outer or both else _LONG_ROW_COLUMNS if region.running else _ROW_COLUMNS
    parts = () if region.whole_rows else (size for size in sizes if size < every)
    whole = () if not region.whole_rows and every > sizes[-1] else (every,)
    for rows, columns, consumers, warps in itertools.product(
        _ROWS, (*parts, *whole), _CONSUMERS, (least, 2 * least)
    ):
        s = Structure(
            rows, columns, 1, consumers, warps, Sharing.COOPERATIVE, persistent=True, swap=False, subtiles=1,
            group=1,
        )  # fmt: skip
        if rows > _CHOSEN_ROWS and any(view.rows_chosen for view in region.operands):
            continue
        if outer and rows * min(view.dtype.bits for view in tiles) < 8 * machine.tma_alignment_bytes:
            continue  # no row of a box is shorter
        if both and not all_swizzled(tiles, rows, columns):
            continue  # what lies across would be read from few banks
        layout = rows_layout(region, s, machine)
        if outer and columns < layout.columns <= SHORT_ROW:  # beyond so few elements a tile has zeros
            s = changed(s, columns=layout.columns)
        fits = _has(s, layout) and not s.spares(region.extent(Role.ROW))
        if fits and (not _over_rows(region) or grid_of(region, s).column_tiles <= machine.sm_count):
            kept = [
                one
                for own in (s, *_stored_by_threads(region, s, machine))
                for one in (own, *_that_keep(region, own, machine))
            ]
            yield from kept
            yield from (changed(one, dynamic=True) for one in kept if _may_be_dynamic(region, s, machine))


def _has(s: Structure, layout: RowLayout) -> bool:
    """Whether a tile has as many rows and columns as a consumer takes at a time."""
    return layout.columns <= s.columns and layout.rows <= s.rows


def _stored_by_threads(region: Region, s: Structure, machine: Machine) -> Iterator[Structure]:
    """The structure whose threads store a tile, where they may, and where the tile is as large as its layout asks
    for, which may be another than where copies store it.
    """
    if not may_be_stored(region):
        return
    stored = changed(s, stored_by_threads=True)
    if _has(s, rows_layout(version_of(region, stored), s, machine)):
        yield stored


def flat_structures(region: Region, machine: Machine) -> Iterator[Structure]:
    """Structures whose tiles are pieces of one flat row of a tensor, where TMA cannot begin at each of its rows.

    A consumer has one row at a time, for each begins elsewhere between two places that TMA takes, and the last tile
    of a row ends late enough for any of those.
    """
    flat = flat_region(region)
    if flat is None:
        return
    for own in (flat, *((flat.in_parts,) if flat.in_parts else ())):
        for s in row_structures(own, machine):
            reached = s.rows == 1 and ends_late_enough(own, s.columns)
            if reached and (_stores_flat(s, machine) or not own.tile_outputs):
                yield changed(s, flat=True)


def _stores_flat(s: Structure, machine: Machine) -> bool:
    """Whether threads have the registers to store pieces of flat rows."""
    each = s.columns // (s.consumer_warps * machine.threads_per_warp)
    return s.stored_by_threads and each <= _FLAT_ELEMENTS and not s.in_registers


def may_be_stored(region: Region) -> bool:
    """Whether threads may store tiles of rows that copies bring, as wide as copies would: where neighbours are of one
    row, and rows are reduced. Tiles of some columns, of which each access is asked whether it lies inside, were
    slower so: bias and gelu of 8192 x 8192 took 73.2 to 82.0 us by threads, and 70.4 by copies, which the model does
    not know (`docs/calibration/h200_stored_by_threads.json`).
    """
    views = [output.view for output in region.tile_outputs]
    reduces = region.whole_rows or region.running
    return bool(views and region.row_sources and reduces) and not any(
        map(is_turned, (*region.row_tiles, *views))
    )


def _that_keep(region: Region, s: Structure, machine: Machine) -> Iterator[Structure]:
    """The structure with parts of rows that stay from one pass to the next, in the ring alone or in registers too, of
    blocks that begin together, or staggered: then one's first pass, which reads, comes while another's second stores.
    """
    parts, each = -(-region.extent(Role.COLUMN) // s.columns), part_registers(region, s, machine)
    for retained in retained_parts(region, s, machine):
        more = min(parts - retained, _REGISTERS // max(1, each))
        for kept in (0, more) if more else (0,):
            one = changed(s, retained=retained, in_registers=kept)
            yield one
            yield changed(one, staggered=True)


def retained_parts(region: Region, s: Structure, machine: Machine) -> tuple[int, ...]:
    """Parts of rows that may stay in the ring from one pass over them to the next, where there are two: as many as
    shared memory has slots for beside one set of staging buffers, or two, and one less, for the barriers' bytes.
    """
    if region.passes == 1 or region.by_threads:  # what threads read is in no slot
        return ()
    elements = s.tile_rows * s.columns
    outputs = () if s.stored_by_threads else region.tile_outputs
    slot, staged = (
        sum(elements * view.dtype.bits // 8 for view in views)
        for views in (region.operands, [output.view for output in outputs])
    )
    room = machine.shared_memory_per_block_bytes - machine.shared_memory_reserved_bytes
    parts = -(-region.extent(Role.COLUMN) // s.columns)
    one, two = (min((room - count * staged) // slot, parts, MOST_SLOTS) for count in (1, 2))
    return tuple(sorted({count for count in (one, one - 1, two) if count > 0}))


def _may_be_dynamic(region: Region, s: Structure, machine: Machine) -> bool:
    """Whether blocks may take tiles at run time: where tiles outnumber blocks, and no sums are carried from tile to
    tile, as timing would then decide which tiles are summed together.
    """
    grid = grid_of(region, s)
    taken = grid.tiles // (grid.column_tiles if region.running else 1)
    return taken > machine.sm_count and not _over_rows(region)


def _over_rows(region: Region) -> bool:
    """Whether blocks carry reductions over rows. emitter.v1: each of tiles of the same columns."""
    return carries_over_rows(region.statements)
