"""Structures with tiles of whole rows, and the conditions on such rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.types import Region
from wsopt.machine.types import Machine
from wsopt.program.row_layout import row_layout, widest_bits
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.views import Role, View, pow2

_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_CONSUMERS = (1, 2, 3)


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


def check_whole_rows(region: Region, machine: Machine) -> None:
    """Raise LoweringError for rows of a product that one tile cannot hold, and for one value a row."""
    extent = region.extent(Role.COLUMN)
    if not (region.whole_rows and region.contractions):
        return
    for output in region.outputs:
        if Role.COLUMN not in output.view.roles:
            raise LoweringError(f"output {output.name}: one value a row of a product is not stored yet")
    if extent > machine.mma_columns_max:
        raise LoweringError(
            f"graph {region.name}: rows of {extent} elements of a product are reduced, and a tile has at most "
            f"{machine.mma_columns_max} columns; reduce them in a kernel of their own"
        )


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

    emitter.v1: blocks are persistent, consumers are cooperative, and the loop is over tiles.
    """
    columns = pow2(region.extent(Role.COLUMN))
    bits = widest_bits([*region.operands, *(output.view for output in region.outputs)])
    least = machine.warps_per_warpgroup
    for rows, consumers, warps in itertools.product(_ROWS, _CONSUMERS, (least, 2 * least)):
        s = Structure(
            rows,
            columns,
            1,
            consumers,
            warps,
            Sharing.COOPERATIVE,
            persistent=True,
            swap=False,
            subtiles=1,
            group=1,
        )
        layout = row_layout(bits, rows, columns, warps, machine)
        spare = s.tile_rows - rows >= region.extent(Role.ROW) and consumers > 1
        if layout.columns <= columns and layout.rows <= rows and not spare:
            yield s
