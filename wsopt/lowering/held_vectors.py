"""Vectors along the columns that stay in a consumer's registers from tile to tile, where a tile has whole rows.

A norm's weights are the same for all rows: loaded for each tile they take a load of every 16 bytes, and come from L2
where the ring has the room of L1. A consumer that has registers for them loads them once.
"""

from __future__ import annotations

from wsopt.frontend.types import Region
from wsopt.lowering.rows_layout import rows_layout
from wsopt.machine.types import Machine
from wsopt.program.row_layout import reduces_outer
from wsopt.program.types import Structure
from wsopt.tensors.orders import lie_both_ways
from wsopt.tensors.views import Role, Source

_HELPERS = 4
"""Warps beside consumers, a warpgroup: `setmaxnreg` deals out registers by warpgroups."""
_MORE = 32
"""Registers of a thread for addresses, counters and the reductions of a row."""


def held_vectors(region: Region, s: Structure, machine: Machine) -> frozenset[str]:
    """The names of all vectors along the columns, or of none if they do not fit into a consumer's registers.

    A thread has its part of each vector as it was loaded, narrow numbers packed, beside its part of the tile of every
    tensor and of one tile of results, in f32.
    """
    found = [one for one in region.sources if one.spans == {Role.COLUMN}]
    if (
        not found
        or not _of_all_tiles(region, s)
        or not all(one.view.roles == (Role.COLUMN,) for one in found)
    ):
        return frozenset()
    layout = rows_layout(region, s, machine)
    columns = s.columns // (layout.lanes[1] * layout.warps[1])
    elements = s.rows * s.columns // (s.consumer_warps * machine.threads_per_warp)
    taken = elements * (1 + len(region.tile_sources)) + sum(_registers(one, columns) for one in found)
    fits = taken + _MORE <= _available(s, machine)
    return frozenset(one.name for one in found) if fits else frozenset()


def _of_all_tiles(region: Region, s: Structure) -> bool:
    """Whether a block goes from tile to tile, each of whole rows, and a thread has neighbours of a row: the columns
    of its elements are then the same in all tiles.
    """
    whole, tiles = region.whole_rows and not (region.contractions or s.flat), region.row_tiles
    return s.persistent and not s.resident and whole and not (reduces_outer(tiles) or lie_both_ways(tiles))


def _registers(source: Source, columns: int) -> int:
    """Registers that a thread needs for so many columns of a vector, as it was loaded."""
    return -(-columns * source.view.dtype.bits // 32)


def _available(s: Structure, machine: Machine) -> int:
    """Registers that a consumer's thread may have: its share of an SM's, less those of the warps beside consumers."""
    warps = s.blocks_an_sm * s.consumers * s.consumer_warps
    left = machine.registers_per_sm // machine.threads_per_warp - _HELPERS * machine.setmaxnreg_min_registers
    return min(left // warps, machine.setmaxnreg_max_registers)
