"""Lines by which a role goes from tile to tile where run-time offsets cut the rows: each lies in one segment.

Tiles are numbered segment by segment, and a block's only rise, so that it goes on from the segment of its last one.
"""

from __future__ import annotations

from wsopt.emit.grid import place_of
from wsopt.emit.plan import KernelPlan

STATE = "segment, first_row, end_row, passed"
"""What a role carries from tile to tile: a segment, its first row and its end, and the tiles that come before it."""

ROW_TILES = "(end_row - first_row + TILE_ROWS - 1) // TILE_ROWS"
"""Tiles along a segment's rows."""


def first_segment(plan: KernelPlan) -> list[str]:
    """The lines with the tiles of all segments, and the first segment, before which there are none."""
    known = ", ".join(plan.segment_arguments)
    return [
        f"tiles = row_tiles_of({known}) * column_tiles",
        *("segment = 0", "first_row = 0", f"end_row = end_of(0, 0, {known})", "passed = 0"),
    ]


def segment(plan: KernelPlan) -> list[str]:
    """The lines with the segment that a tile lies in, and where in it."""
    known = ", ".join(plan.segment_arguments)
    return [
        f"{STATE} = segment_of(tile, {STATE}, column_tiles, {known})",
        f"row_tiles = {ROW_TILES}",
        place_of(plan, "tile - passed"),
    ]
