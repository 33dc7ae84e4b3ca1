"""What consumers compute beside the products of a K-block: reductions of their operand's rows, from shared memory.

A product is asynchronous, so its consumer reads the K-block that the tensor core is multiplying, and adds up its
rows.
"""

from __future__ import annotations

from wsopt.errors import LoweringError
from wsopt.frontend.types import Region
from wsopt.machine.types import Machine
from wsopt.program.row_layout import ACCESS_BITS, RowLayout
from wsopt.program.types import Structure
from wsopt.tensors.views import Role, View


def check_beside(region: Region) -> None:
    """Raise LoweringError for operands whose rows cannot be read from a K-block, and for one value a row."""
    for output in region.row_outputs if region.beside else ():
        raise LoweringError(f"output {output.name}: one value a row beside a product is not stored yet")
    for tile in region.tiles:
        if tile.view.roles[-1] is not Role.STREAM:
            raise LoweringError(
                f"tensor {tile.view.tensor}: its rows are reduced beside the product, and do not lie along the "
                "contracted axis; declare it with that axis last, and transpose it before the call"
            )


def k_block_layout(region: Region, s: Structure, machine: Machine) -> RowLayout:
    """How a K-block's tile lies in a consumer's registers: the widest accesses, a row's neighbours in one warp."""
    vector = ACCESS_BITS // max(tile.view.dtype.bits for tile in region.tiles)
    along = min(machine.threads_per_warp, s.depth // vector)
    return RowLayout(vector, (machine.threads_per_warp // along, along), (s.consumer_warps, 1))


def views_read(region: Region) -> tuple[View, ...]:
    """The operands whose tiles are read, each once."""
    return tuple(dict.fromkeys(tile.view for tile in region.tiles))
