"""Several blocks an SM, where a graph has so few rows that one consumer has all of them."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.frontend.types import Region
from wsopt.machine.types import Machine
from wsopt.program.changed import changed
from wsopt.program.types import Sharing, Structure, column_role, row_role
from wsopt.targets import Sums, target_of
from wsopt.tensors.views import Role

_BLOCKS = 2
"""Blocks of an SM, where it has several. With three and four of them rings are shallow: a product of 16 rows by
8192 x 8192 of 8 bits takes 20.7 and 21.7 us, with two 20.2, with one 20.9 (`docs/calibration/h200_ahead.json`).
"""


def may_have_several(region: Region, machine: Machine) -> bool:
    """Whether an SM may have several blocks of a region: where one tile has all rows of the graph, or all columns, as
    its rows are where weights are computed in the loop, and sums are in registers.

    With more of both, consumers of one block read an operand from the same slots, which several blocks copy each for
    themselves.
    """
    few = min(map(region.extent, _sides(region))) <= machine.mma_rows
    return few and target_of(machine).sums is Sums.REGISTERS and not (region.beside or region.offsets)


def several_blocks(region: Region, s: Structure, machine: Machine) -> Iterator[Structure]:
    """The structure with several blocks an SM, if blocks of it may share one.

    Each of them has a ring and K-blocks of its own, so that neither waits for slots that the other has to hand back.
    They are persistent, of one consumer of one warpgroup: two warpgroups of one consumer meet at barriers, which two
    blocks need not. Those with transform warpgroups are left out, whose stores and products meet in shared memory
    in a way that the model does not know.
    """
    one_consumer = (s.consumers, s.sharing, s.transforms) == (1, Sharing.COOPERATIVE, 0)
    alone = s.persistent and one_consumer and s.consumer_warps == machine.warps_per_warpgroup
    if alone and may_have_several(region, machine) and _has_all(region, s):
        yield changed(s, occupancy=_BLOCKS)


def _has_all(region: Region, s: Structure) -> bool:
    """Whether one tile has all rows of the graph, or all columns, so that no other block copies what it streams. Two
    blocks whose tiles have some of the rows took 5 to 8 % longer than one with all of them in three products of five
    (`docs/calibration/h200_few_columns.json`).
    """
    taken = dict(zip((row_role(s.swap), column_role(s.swap)), (s.tile_rows, s.columns), strict=True))
    return any(taken[role] >= region.extent(role) for role in _sides(region))


def _sides(region: Region) -> tuple[Role, ...]:
    """The sides of a graph's tiles of which it may have little: of loops that compute values the rows alone."""
    return (Role.ROW,) if region.chained else (Role.ROW, Role.COLUMN)
