"""How a tile of whole rows lies in a consumer's registers, and which structures can hold one.

A thread takes as many neighbours of a row as one access to shared memory moves, a warp's threads lie along the
row, and the consumer's warps take rows of their own as long as there are rows; what is left of them shares one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.extents import pow2
from wsopt.frontend.types import Region
from wsopt.graph.types import DType
from wsopt.machine.types import Machine
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.views import Role, View

ACCESS_BITS = 128
"""Bits that a thread's widest access to shared memory moves."""

_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_CONSUMERS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class RowLayout:
    """A tile's elements over threads: `vector` neighbours a thread; (rows, columns) of a warp and of the warps."""

    vector: int
    lanes: tuple[int, int]
    warps: tuple[int, int]

    @property
    def columns(self) -> int:
        """Neighbours of a row that all threads of the consumer along it take at a time."""
        return self.vector * self.lanes[1] * self.warps[1]

    @property
    def rows(self) -> int:
        """Rows that the consumer takes at a time."""
        return self.lanes[0] * self.warps[0]

    def text(self) -> str:
        """The layout as Gluon writes it."""
        return f"gl.BlockedLayout([1, {self.vector}], {list(self.lanes)}, {list(self.warps)}, [1, 0])"


def row_layout(region: Region, rows: int, columns: int, warps: int, machine: Machine) -> RowLayout:
    """The layout of a tile of `rows` by `columns` over so many warps."""
    views = [*region.operands, *(output.view for output in region.outputs)]
    vector = min(ACCESS_BITS // max(view.dtype.bits for view in views), columns)
    threads = machine.threads_per_warp
    along = min(threads, columns // vector)
    down = threads // along
    apart = min(warps, max(1, rows // down))
    return RowLayout(vector, (down, along), (apart, warps // apart))


def check_rows(region: Region) -> None:
    """Raise LoweringError for rows that do not lie as the loads and stores of whole rows need them."""
    tensors = [*(source.view for source in region.row_sources), *(output.view for output in region.outputs)]
    if not region.row_sources:
        raise LoweringError(f"graph {region.name}: no input has the rows and columns that are reduced")
    for output in region.outputs:
        if Role.COLUMN not in output.view.roles or Role.ROW not in output.view.roles:
            raise LoweringError(f"output {output.name}: one value a row is not stored yet")
    for view in tensors:
        if view.roles[-1] is not Role.COLUMN:
            raise LoweringError(
                f"tensor {view.tensor}: axis {view.origin[-1][-1]} has its elements next to each other, another one "
                f"is reduced; rows are read and stored along the reduced axis: {remedies.ROWS_LAST}"
            )
    for one in (*tensors, *(source.view for source in region.sources)):
        _check_axes(one)


def _check_axes(view: View) -> None:
    if view.parts:
        raise LoweringError(
            f"tensor {view.tensor}: dimensions that are split between axes are not emitted yet"
        )
    if Role.GROUP in view.roles:
        raise LoweringError(
            f"tensor {view.tensor}: its rows do not lie at one distance; two axes are left over that no tensor "
            "has contiguous, and a kernel of rows takes one"
        )


def row_structures(region: Region, machine: Machine) -> Iterator[Structure]:
    """Structures of a kernel that streams rows; each tile has all columns.

    emitter.v1: blocks are persistent, consumers share a tile's rows, and the loop is over tiles.
    """
    columns = pow2(region.extent(Role.COLUMN))
    least = machine.warps_per_warpgroup
    for rows, consumers, warps in itertools.product(_ROWS, _CONSUMERS, (least, 2 * least)):
        s = Structure(
            rows, columns, 1, consumers, warps, Sharing.ROWS, persistent=True, swap=False, pieces=1, group=1
        )
        layout = row_layout(region, rows, columns, warps, machine)
        spare = s.tile_rows - rows >= region.extent(Role.ROW) and consumers > 1
        if layout.columns <= columns and layout.rows <= rows and not spare:
            yield s


def thread_registers(s: Structure, dtype: DType, machine: Machine) -> int:
    """Registers a thread of a tile of this type."""
    threads = s.consumer_warps * machine.threads_per_warp
    return -(-s.rows * s.columns * max(dtype.bits, 16) // 32 // threads)
