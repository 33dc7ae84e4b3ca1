"""The last round of tiles: how many SMs it leaves at work, and what a K-block of theirs asks for."""

from __future__ import annotations

import math
from dataclasses import replace

from wsopt.frontend.types import Region
from wsopt.machine.types import Machine
from wsopt.perf.costs import side_lines
from wsopt.perf.pace import Demand, k_block_demand
from wsopt.program.structures import column_role, row_role
from wsopt.program.types import Structure
from wsopt.tensors.views import Role


def last_demand(region: Region, s: Structure, machine: Machine) -> Demand:
    """What a K-block asks for in the last round of tiles: of fewer SMs, and of tiles that end with the tensor.

    Copies leave out what lies beyond a tensor's end; the last tiles are often those that reach over it, and in a
    whole round the others make up for them.
    """
    demand = k_block_demand(region, s, machine)
    rows = math.ceil(region.extent(row_role(s.swap)) / s.tile_rows)
    columns = math.ceil(region.extent(column_role(s.swap)) / s.columns)
    tiles = region.extent(Role.BATCH) * rows * columns
    active = tiles % machine.sm_count
    if not active:
        return demand
    inside = [
        _inside(region, s, tile % (rows * columns), rows, columns) for tile in range(tiles - active, tiles)
    ]
    down, across = (sum(part) / active for part in zip(*inside, strict=True))
    lines = down * side_lines(region, s, machine, row_role(s.swap))
    lines += across * side_lines(region, s, machine, column_role(s.swap))
    share = lines / demand.lines
    return replace(
        demand,
        lines=lines,
        data=demand.data * share,
        gpc=demand.gpc * share,
        active=active / machine.sm_count,
    )


def _inside(region: Region, s: Structure, tile: int, rows: int, columns: int) -> tuple[float, float]:
    """The shares of a tile's rows and columns that the tensors have, by its number in the walk of a batch."""
    first = tile // (s.group * columns) * s.group
    height = min(rows - first, s.group)
    place = tile % (s.group * columns)
    row, column = first + place % height, place // height
    down = region.extent(row_role(s.swap)) / s.tile_rows - row
    across = region.extent(column_role(s.swap)) / s.columns - column
    return min(1.0, down), min(1.0, across)
