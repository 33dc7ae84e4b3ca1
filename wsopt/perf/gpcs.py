"""What it costs device memory that several blocks ask for the same bytes at about one time.

Where a tile of an operand is shared by blocks that are at the same K-block, all of them wait for the same bytes of
device memory, and these take longer to come than those that one block asks for; the longer where the blocks are of
several GPCs, for a GPC fetches once what its SMs ask for together. Blocks with consecutive numbers are of one GPC, so
the order of tiles decides how far apart those are that share.
"""

from __future__ import annotations

from wsopt.machine.types import Machine
from wsopt.perf.demand import asked_of
from wsopt.program.program import TileProgram

_SHARED, _FURTHER_GPC = 0.25, 0.2
"""Shares of their time by which bytes of device memory take longer where very many blocks share them, of two blocks
half as much; and for each further GPC that asks for them. Fitted to the kernels of 27 products on an H200 that are
within a fifth of the fastest: their errors within a product are 2.9 % with it and 3.5 % without. Where an order of
tiles has the blocks that share the larger operand one GPC further apart, products took 0.17 to 0.27 of it longer
(`docs/calibration/h200_settled.json`).
"""


def asked_again_bytes(program: TileProgram, machine: Machine) -> float:
    """Bytes of device memory whose time the sharing of operands' tiles costs, in loops of products."""
    if program.demand is None:
        return 0.0
    along_rows, along_columns = _longer(program, machine)
    asked = asked_of(program, machine)
    return sum(one.nbytes * (along_rows if one.by_rows else along_columns) for one in asked)


def _longer(program: TileProgram, machine: Machine) -> tuple[float, float]:
    """Shares of their time by which the bytes of the operand along the rows, and of the one along the columns, take
    longer in one wave of tiles.

    Two blocks that are so many numbers apart are of two GPCs as often as that is of a GPC's blocks. Those that share
    rows are a group's height apart; those that share columns are neighbours in a group, and groups follow each other.
    """
    s, grid = program.structure, program.grid
    of_gpc = machine.sms_per_gpc * s.blocks_an_sm / grid.blocks
    tiles = min(s.places(machine.sm_count) / grid.blocks, grid.tiles)
    height = min(grid.group, grid.alike_row_tiles)
    rows = min(grid.alike_row_tiles, max(height, tiles / grid.column_tiles))
    columns, groups = max(1.0, min(grid.column_tiles, tiles / height)), max(1.0, rows / height)
    gpcs_of_rows = (columns - 1) * min(1.0, height / of_gpc)
    between_groups = (groups - 1) * min(1.0, (height * (columns - 1) + 1) / of_gpc)
    gpcs_of_columns = groups * (height - 1) / of_gpc + between_groups
    return (
        _SHARED * (1 - 1 / columns) + _FURTHER_GPC * gpcs_of_rows,
        _SHARED * (1 - 1 / max(1.0, rows)) + _FURTHER_GPC * gpcs_of_columns,
    )
