"""Several blocks an SM: of products where one consumer has all of a graph's few rows, and of loops that compute
values.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.frontend.types import Region
from wsopt.machine.types import Machine
from wsopt.program.changed import changed
from wsopt.program.types import Sharing, Structure, column_role, row_role
from wsopt.targets import Sums, target_of
from wsopt.tensors.views import Role

_BLOCKS = 2
"""Blocks of an SM in loops of products, where it has several. With three and four of them rings are shallow: a
product of 16 rows by 8192 x 8192 of 8 bits takes 20.7 and 21.7 us, with two 20.2, with one 20.9
(`docs/calibration/h200_ahead.json`).
"""

_BLOCKS_OF_VALUES = (2, 3, 4)
"""Blocks of an SM in loops that compute values. While one begins or ends a tile, or waits for a product, others
compute: a softmax of 77 columns between two products takes 15.4 us with four, 19.8 with two consumers of one block
(`docs/calibration/h200_blocks_of_values.json`). Five have too few registers for a product of 64 columns.
"""


def may_have_several(region: Region, machine: Machine) -> bool:
    """Whether an SM may have several blocks of a region: where its loop computes values, or one tile has all rows of
    the graph, or all columns, as its rows are where weights are computed in the loop; and sums are in registers.

    Consumers of one block read an operand from the same slots, which several blocks copy each for themselves. Of
    products with more of both rows and columns that is what bounds them.
    """
    if target_of(machine).sums is not Sums.REGISTERS or region.beside or region.offsets:
        return False
    return region.chained or min(map(region.extent, _SIDES)) <= machine.mma_rows


def several_blocks(region: Region, s: Structure, machine: Machine) -> Iterator[Structure]:
    """The structure with several blocks an SM, if blocks of it may share one.

    Each of them has a ring and K-blocks of its own, so that neither waits for slots that the other has to hand back.
    They are persistent, of one consumer of one warpgroup: two warpgroups of one consumer meet at barriers, which two
    blocks need not. Those with transform warpgroups are left out, whose stores and products meet in shared memory
    in a way that the model does not know.
    """
    one_consumer = (s.consumers, s.sharing, s.transforms) == (1, Sharing.COOPERATIVE, 0)
    alone = s.persistent and one_consumer and s.consumer_warps == machine.warps_per_warpgroup
    if not (alone and may_have_several(region, machine)):
        return
    if region.chained:
        yield from (changed(s, occupancy=blocks) for blocks in _BLOCKS_OF_VALUES)
    elif _has_all(region, s):
        yield changed(s, occupancy=_BLOCKS)


def _has_all(region: Region, s: Structure) -> bool:
    """Whether one tile has all rows of the graph, or all columns, so that no other block copies what it streams. Two
    blocks whose tiles have some of the rows took 5 to 8 % longer than one with all of them in three products of five
    (`docs/calibration/h200_few_columns.json`).
    """
    taken = dict(zip((row_role(s.swap), column_role(s.swap)), (s.tile_rows, s.columns), strict=True))
    return any(taken[role] >= region.extent(role) for role in _SIDES)


_SIDES = (Role.ROW, Role.COLUMN)
"""The sides of a product's tiles."""
