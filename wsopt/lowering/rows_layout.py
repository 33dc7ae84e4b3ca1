"""How a tile of rows lies in a consumer's registers."""

from __future__ import annotations

from wsopt.frontend.types import Region
from wsopt.machine.types import Machine
from wsopt.program.row_layout import RowLayout, tile_layout
from wsopt.program.types import Structure
from wsopt.tensors.statements import carries_over_rows


def rows_layout(region: Region, s: Structure, machine: Machine) -> RowLayout:
    """The layout of a tile of rows of a region. A column's elements lie together where a consumer carries reductions
    over rows.
    """
    together = carries_over_rows(region.statements)
    return tile_layout(region.row_tiles, s.rows, s.columns, s.consumer_warps, machine, together=together)
