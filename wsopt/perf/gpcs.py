"""What it costs device memory that several GPCs ask for the same bytes at about one time.

A GPC fetches once what its SMs ask for together. Where a tile of an operand is shared by blocks of several GPCs, all of
them wait for the same bytes of device memory, and these take longer to come. Blocks with consecutive numbers are of one
GPC, so the order of tiles decides how far apart those are that share.
"""

from __future__ import annotations

from wsopt.machine.types import Machine
from wsopt.perf.demand import asked_of
from wsopt.program.program import TileProgram

_AGAIN = 0.2
"""Share of their time by which bytes of device memory take longer for each further GPC that asks for them. On an H200,
2026-11-27, 13 products of few tiles took 0.17 to 0.27 of it longer where an order of tiles had the blocks that share
the larger operand one GPC further apart (`docs/calibration/h200_settled.json`).
"""


def asked_again_bytes(program: TileProgram, machine: Machine) -> float:
    """Bytes of device memory whose time all further GPCs cost that ask for the same tiles of operands, in loops of
    products.
    """
    if program.demand is None:
        return 0.0
    along_rows, along_columns = _gpcs_of_a_tile(program, machine)
    asked = asked_of(program, machine)
    return _AGAIN * sum(one.nbytes * ((along_rows if one.by_rows else along_columns) - 1) for one in asked)


def _gpcs_of_a_tile(program: TileProgram, machine: Machine) -> tuple[float, float]:
    """GPCs that ask for one tile of the operand along the rows, and of the one along the columns, in one wave.

    Two blocks that are so many numbers apart are of two GPCs as often as that is of a GPC's blocks. Those that share
    rows are a group's height apart; those that share columns are neighbours in a group, and groups follow each other.
    """
    s, grid = program.structure, program.grid
    of_gpc = machine.sms_per_gpc * s.blocks_an_sm / grid.blocks
    tiles = min(s.places(machine.sm_count) / grid.blocks, grid.tiles)
    height = min(grid.group, grid.alike_row_tiles)
    rows = min(grid.alike_row_tiles, max(height, tiles / grid.column_tiles))
    columns, groups = min(grid.column_tiles, tiles / height), rows / height
    along_rows = 1 + max(0.0, columns - 1) * min(1.0, height / of_gpc)
    further = max(0.0, groups - 1) * min(1.0, (height * (columns - 1) + 1) / of_gpc)
    return along_rows, 1 + groups * (height - 1) / of_gpc + further
