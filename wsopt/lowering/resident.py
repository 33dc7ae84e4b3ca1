"""The structures of kernels of rows whose blocks have one tile each, several of them resident on an SM at a time.

Threads load and store by address, and have no ring: what is under way arrives in registers. While one block computes,
others of its SM load, and the hardware deals out the tiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from wsopt.frontend.flat_rows import flat_region
from wsopt.frontend.types import Region
from wsopt.lowering.lower import version_of
from wsopt.machine.types import Machine
from wsopt.program.changed import changed
from wsopt.program.row_layout import reduces_outer, tile_layout
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.orders import lie_both_ways
from wsopt.tensors.statements import carries_over_rows
from wsopt.tensors.views import Role, pow2

_WARPS, _WARPS_AN_SM, _WARPS_OF_ELEMENTS = (1, 2, 4, 8, 16), (16, 32, 48), (16, 24, 32, 48)
"""Warps of a block, and of all blocks of an SM where rows are reduced and where they are not: with fewer warps too
few loads are under way, with more a thread has too few registers. A norm of 8192 columns by 24 warps of 64 elements a
thread took 5 % longer than by 32 of 32, bias and gelu 3 % less (`docs/calibration/h200_blocks_warps.json`).
"""
_ELEMENTS, _OF_PARTS = (8, 16, 32, 64), (32, 64)
"""Elements that a thread has of a tile, and of a part of rows that no SM holds: parts are many, and larger ones share
what is done once a part (kernels with 16 elements took up to 1.2 times as long).
"""
_WARPS_OF_PARTS = (32, 48)
"""Warps of all blocks of an SM where rows are in parts: with 16 a cross-entropy over 128,256 columns took 143 us
where 130 were predicted, and 123 with 32 (`docs/calibration/h200_parts_by_threads.json`).
"""
_ELEMENTS_AHEAD, _WARPS_AHEAD = 16, (24, 28, 32)
"""Elements that a thread has of a part where it loads the next one meanwhile, which takes registers too, and the
warps of an SM; only for pieces of flat rows. A cross-entropy over 128,256 columns takes 142 us so with 24 or 28
warps, and 124 with 32, for which Triton 3.9 has no registers (same file).
"""
_COLUMNS, _LONG_ROW_COLUMNS = (512, 1024, 2048, 4096), (2048, 4096)
"""Columns of a tile that has not all columns of its rows, and of a part of rows that no SM holds."""
_TURNED_COLUMNS = (32, 64, 128, 256)
"""Columns of such a tile where some tensors lie transposed, so that either side of a tile is contiguous in one."""
_LEAST_BLOCKS, _MOST_BLOCKS = 4, 32
"""Blocks on an SM. Fewer at times all compute at once, and nothing is loaded meanwhile: rows of 16,384 columns took 4
to 10 % longer so than with copies into rings. The hardware holds no more.
"""


def resident_structures(region: Region, machine: Machine) -> Iterator[Structure]:
    """Structures of a kernel of rows whose blocks have one tile each. A part that is a whole row is none."""
    flat = flat_region(region)
    yield from _of_rows(region, machine)
    if region.in_parts:
        columns = region.extent(Role.COLUMN)
        yield from (s for s in _of_rows(region.in_parts, machine) if s.columns < columns)
    for own in (flat, flat.in_parts) if flat else ():
        if own and own.running:
            for s in _of_rows(own, machine):
                if s.rows == 1 and ends_late_enough(own, s.columns):
                    yield changed(s, flat=True)


def ends_late_enough(region: Region, columns: int) -> bool:
    """Whether the last part of a flat row reaches its end wherever the row begins between two places of 16 bytes."""
    return -region.extent(Role.COLUMN) % columns >= region.row_tiles[0].flat - 1


def _of_rows(region: Region, machine: Machine) -> Iterator[Structure]:
    """The structures of a region as it is, of its long rows in parts, or of its rows as pieces of one flat row."""
    if not may_be_resident(region):
        return
    every = pow2(region.extent(Role.COLUMN))
    both = lie_both_ways(region.row_tiles)
    sizes = _LONG_ROW_COLUMNS if region.running else _TURNED_COLUMNS if both else _COLUMNS
    parts = () if region.whole_rows else tuple(size for size in sizes if size < every)
    chosen = parts if both and every > sizes[-1] else (*parts, every)
    for columns, warps, (elements, ahead, together) in itertools.product(chosen, _WARPS, [*_shares(region)]):
        threads = warps * machine.threads_per_warp
        rows, blocks = threads * elements // columns, together // warps
        if rows < 1 or not _LEAST_BLOCKS <= blocks <= _MOST_BLOCKS:
            continue
        s = Structure(
            rows, columns, 1, 1, warps, Sharing.COOPERATIVE, persistent=False, swap=False, subtiles=1, group=1,
            occupancy=blocks, ahead=ahead,
        )  # fmt: skip
        layout = tile_layout(version_of(region, s).row_tiles, rows, columns, warps, machine)
        if layout.columns <= columns and layout.rows <= rows:
            yield s


def _shares(region: Region) -> Iterator[tuple[int, bool, int]]:
    """Choices of: elements of a tile that a thread has; whether it loads those of the next part meanwhile; warps of
    all blocks of an SM.
    """
    if not region.running:
        warps = _WARPS_AN_SM if region.whole_rows else _WARPS_OF_ELEMENTS
        yield from ((elements, False, together) for elements, together in itertools.product(_ELEMENTS, warps))
        return
    yield from (
        (elements, False, together) for elements, together in itertools.product(_OF_PARTS, _WARPS_OF_PARTS)
    )
    if any(view.flat for view in region.row_tiles):
        yield from ((_ELEMENTS_AHEAD, True, together) for together in _WARPS_AHEAD)


def may_be_resident(region: Region) -> bool:
    """Whether threads can read and store all tiles of a region, block by block.

    emitter.v1: not of rows in pages, nor with reductions over rows, nor of halves of pairs in parts of rows or whose
    rows are chosen. Nor where neighbours are of different rows: threads exchange more than the model knows (a softmax
    along a middle axis took twice its time).
    """
    tiles = region.row_tiles
    both_ways = lie_both_ways(tiles)
    plain = all(not view.page and not (view.chosen and both_ways) for view in tiles)
    pairs = [view for view in tiles if view.step > 1]
    plain = plain and not (pairs and (both_ways or region.running or any(view.chosen for view in pairs)))
    reduces = bool(region.whole_rows or region.running)
    carried = carries_over_rows(region.statements)
    return plain and not (carried or reduces_outer(tiles) or (reduces and both_ways))
