"""The structures of kernels of rows whose blocks have one tile each, several on an SM at a time.

Threads read and store by address. While a block computes others of its SM read; what is on the way has its place in
registers, and the hardware deals out the tiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from wsopt.frontend.types import Region
from wsopt.lowering.lower import version_of
from wsopt.machine.types import Machine
from wsopt.program.row_layout import reduces_outer, tile_layout
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.orders import lie_both_ways
from wsopt.tensors.statements import Reduction
from wsopt.tensors.views import Role, pow2

_WARPS, _WARPS_AN_SM, _WARPS_OF_ELEMENTS = (1, 2, 4, 8, 16), (16, 32, 48), (16, 24, 32, 48)
"""Of a block, and of all blocks of an SM, where rows are reduced and where they are not: with fewer too little is on
the way, with more registers are too few. A norm of 8192 columns by 24 warps of 64 elements a thread took 5 % longer
than by 32 of 32, bias and gelu 3 % less (`docs/calibration/h200_blocks_warps.json`).
"""
_ELEMENTS, _OF_PARTS = (8, 16, 32, 64), (32, 64)
"""Of a tile that a thread has, and of a part of rows that no SM holds: parts are many, and what is done once a part
serves more elements (kernels with 16 took up to 1.2 times as long).
"""
_COLUMNS, _LONG_ROW_COLUMNS = (512, 1024, 2048, 4096), (2048, 4096)
"""Columns of a tile that has not all."""
_TURNED_COLUMNS = (32, 64, 128, 256)
"""The same where some tensors lie turned, and both sides of a tile are neighbours in memory."""
_LEAST_BLOCKS, _MOST_BLOCKS = 4, 32
"""Blocks on an SM: of fewer all compute at once at times, while nothing is read (rows of 16,384 columns took 4 to
10 % longer than copies into rings), and the hardware has no more.
"""


def resident_structures(region: Region, machine: Machine) -> Iterator[Structure]:
    """Structures of a kernel of rows whose blocks have one tile each."""
    if not may_be_resident(region):
        return
    every = pow2(region.extent(Role.COLUMN))
    both = lie_both_ways(region.row_tiles)
    sizes = _LONG_ROW_COLUMNS if region.running else _TURNED_COLUMNS if both else _COLUMNS
    parts = () if region.whole_rows else tuple(size for size in sizes if size < every)
    chosen = parts if both and every > sizes[-1] else (*parts, every)
    for columns, warps, elements, together in itertools.product(
        chosen, _WARPS, _OF_PARTS if region.running else _ELEMENTS, _warps_an_sm(region)
    ):
        threads = warps * machine.threads_per_warp
        rows, blocks = threads * elements // columns, together // warps
        if rows < 1 or not _LEAST_BLOCKS <= blocks <= _MOST_BLOCKS:
            continue
        s = Structure(
            rows, columns, 1, 1, warps, Sharing.COOPERATIVE, persistent=False, swap=False, subtiles=1, group=1,
            occupancy=blocks,
        )  # fmt: skip
        layout = tile_layout(version_of(region, s).row_tiles, rows, columns, warps, machine)
        if layout.columns <= columns and layout.rows <= rows:
            yield s


def _warps_an_sm(region: Region) -> tuple[int, ...]:
    """Warps of all blocks of an SM."""
    return _WARPS_AN_SM if region.whole_rows or region.running else _WARPS_OF_ELEMENTS


def may_be_resident(region: Region) -> bool:
    """Whether threads can read and store all tiles of a region, block by block.

    emitter.v1: not of rows in pages, nor with reductions over rows. Nor where neighbours are of different
    rows: threads exchange more than the model knows (a softmax along a middle axis took twice its time).
    """
    tiles = region.row_tiles
    both_ways = lie_both_ways(tiles)
    plain = all(view.step == 1 and not view.page and not (view.chosen and both_ways) for view in tiles)
    reduces = bool(region.whole_rows or region.running)
    carried = any(isinstance(item, Reduction) and item.over_rows for item in region.statements)
    return plain and not (carried or reduces_outer(tiles) or (reduces and both_ways))
