"""Vectors along the columns that stay in a consumer's registers from tile to tile, where a tile has whole rows.

A norm's weights are the same for all rows: loaded for each tile they take a load of every 16 bytes, and come from L2
where the ring has the room of L1. A consumer that has registers for them loads them once.
"""

from __future__ import annotations

from wsopt.frontend.types import Region
from wsopt.machine.types import Machine
from wsopt.program.row_layout import reduces_outer, tile_layout
from wsopt.program.types import Structure
from wsopt.tensors.orders import lie_both_ways
from wsopt.tensors.views import Role, Source

_HELPERS = 4
"""Warps beside consumers, which share one setting of registers."""
_MORE = 32
"""Registers of a thread for addresses, counters and what a row's reductions take."""


def held_vectors(region: Region, s: Structure, machine: Machine) -> frozenset[str]:
    """The names of all such vectors, or of none if they do not fit: beside a tile of each tensor and of what is
    computed of them in f32, narrow numbers stay as they were loaded.
    """
    found = [one for one in region.sources if one.spans == {Role.COLUMN}]
    if (
        not found
        or not _of_all_tiles(region, s)
        or not all(one.view.roles == (Role.COLUMN,) for one in found)
    ):
        return frozenset()
    layout = tile_layout(region.row_tiles, s.rows, s.columns, s.consumer_warps, machine)
    columns = s.columns // (layout.lanes[1] * layout.warps[1])
    elements = s.rows * s.columns // (s.consumer_warps * machine.threads_per_warp)
    taken = elements * (1 + len(region.tile_sources)) + sum(_registers(one, columns) for one in found)
    fits = taken + _MORE <= _available(s, machine)
    return frozenset(one.name for one in found) if fits else frozenset()


def _of_all_tiles(region: Region, s: Structure) -> bool:
    """Whether a block goes from tile to tile of whole rows, whose neighbours a thread has."""
    whole, tiles = region.whole_rows and not (region.contractions or s.flat), region.row_tiles
    return s.persistent and not s.resident and whole and not (reduces_outer(tiles) or lie_both_ways(tiles))


def _registers(source: Source, columns: int) -> int:
    """Registers of a thread for so many columns of a vector, as it was loaded."""
    return -(-columns * source.view.dtype.bits // 32)


def _available(s: Structure, machine: Machine) -> int:
    """Registers of a consumer's thread, where all that an SM has are its blocks'."""
    warps = s.blocks_an_sm * s.consumers * s.consumer_warps
    left = machine.registers_per_sm // machine.threads_per_warp - _HELPERS * machine.setmaxnreg_min_registers
    return min(left // warps, machine.setmaxnreg_max_registers)
