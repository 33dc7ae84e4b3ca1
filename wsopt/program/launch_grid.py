"""The axes of a launch's grid. Where blocks have one tile each, a block's numbers along them say where its tile lies,
so that nothing is divided: a division is what a short kernel waits for before its first load
(`docs/calibration/h200_launch_grids.json`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from wsopt.program.types import Structure, row_role
from wsopt.tensors.views import BATCHES, Role, View

AXES = 3
"""Axes of a grid at most."""
LONGEST = 2**16 - 1
"""Blocks along any axis but the first (CUDA C++ Programming Guide, technical specifications)."""
MORE_TILES = 16
"""How many times the graph's own tiles a call may have at least, where there is a most of them."""


def counts_columns(tiles: Iterable[View], extent: int, s: Structure) -> bool:
    """Whether tiles of rows are counted along `extent` columns too: not those of blocks side by side where one tile
    has all columns, and every call has as many.
    """
    fixed = any(Role.COLUMN in view.known for view in tiles)
    return not (s.resident and fixed and extent <= s.columns)


def launch_axes(extents: Mapping[Role, int], s: Structure, *, columns: bool) -> tuple[Role, ...]:
    """The axes of a grid, that of neighbours in memory first; `columns` where tiles are counted along columns. None
    where one axis has all tiles: of blocks that take several, or where there are more axes than a grid has, or might
    be more tiles along one.
    """
    if not s.resident:
        return ()
    tiles = {row_role(s.swap): s.tile_rows, Role.COLUMN: s.columns}
    outer = (role for role in reversed(BATCHES) if role in extents)
    axes = (*([Role.COLUMN] if columns else []), row_role(s.swap), *outer)
    further = (math.ceil(extents[role] / tiles.get(role, 1)) for role in axes[1:])
    fits = len(axes) <= AXES and all(count * MORE_TILES <= LONGEST for count in further)
    return axes if fits else ()
