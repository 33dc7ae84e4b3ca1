"""Rows that are pieces of one flat row: where a piece begins, what of it is the tile's row, its load and its store.

A row begins `shift` elements behind the place at which its first piece begins; columns are numbered from the row's
beginning. Elements of the piece in front of it get a number beyond every row, so that the comparison which leaves out
what lies behind a row's end leaves out these too. Threads store whole runs of 16 bytes at once, and the rest at
either end of the row one by one.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.addresses import ByAddress
from wsopt.emit.called import BRANCH, BRANCH_COLUMNS
from wsopt.emit.instructions import when
from wsopt.emit.plan import KernelPlan
from wsopt.emit.retained import PART_COLUMN
from wsopt.emit.tensors import FLAT_STEP, zero
from wsopt.graph.types import DType
from wsopt.tensors.views import Output, Source

SHIFT = "shift"
_REACH = "reach"
AT_BEGINNING = "column < 0"
"""The condition that a tile has elements of the row before."""

_BEYOND = "0x7FFFFFFF"
"""Of a number below zero all bits but the sign's: one that is beyond every row's end."""


def constants(plan: KernelPlan) -> list[tuple[str, int | str, str]]:
    """The elements of which pieces begin at a multiple, with a comment."""
    if not plan.s.flat:
        return []
    step = max(view.flat for view in plan.program.row_tiles)
    return [(FLAT_STEP, step, "elements of which a piece of a flat row begins at a multiple")]


def begin(plan: KernelPlan) -> Iterator[str]:
    """The lines before a tile's loads: how many elements stand in front of the row in its first piece; where a block
    has the row whole, the tile's first column; and where threads load, how far they do so in runs of 16 bytes.
    """
    if plan.s.flat:
        yield f"{SHIFT} = row * ROW_LENGTH % {FLAT_STEP}  # elements of the row before, in front of the row's first"
    if plan.s.flat and not plan.program.long_rows:
        yield f"column = -{SHIFT}"
    if plan.s.flat and plan.s.resident:
        whole = f"row_extent * ROW_LENGTH // {FLAT_STEP} * {FLAT_STEP}"
        yield f"{_REACH} = gl.minimum(ROW_LENGTH, {whole} - row * ROW_LENGTH)  # columns before the tensor's last few"


def tile_columns(plan: KernelPlan) -> str:
    """The expression of the numbers that columns have within a tile."""
    return f"gl.arange(0, TILE_COLUMNS, layout=gl.SliceLayout(0, {plan.loop_layout}))"


def columns(plan: KernelPlan, within: str) -> str:
    """The expression of the numbers of a tile's columns, from their numbers `within` the tile. Elements in front of a
    flat row's first have a number beyond the row's end.
    """
    return f"(column + {within}) & {_BEYOND}" if plan.s.flat else f"column + {within}"


def numbered(plan: KernelPlan) -> str:
    """The line with the numbers of a tile's columns, of which the first is known."""
    return f"columns = {columns(plan, tile_columns(plan))}"


def first_column(plan: KernelPlan) -> str:
    """The first column of a part of rows that are not held whole."""
    return f"{PART_COLUMN} - {SHIFT}" if plan.s.flat else PART_COLUMN


def hidden(plan: KernelPlan, name: str, dtype: DType, ends: str) -> Iterator[str]:
    """The lines by which a tile has zeros for elements of other rows, as TMA has them beyond a tensor. Whole rows
    always have such elements, a part of one where the condition `ends` holds.
    """
    if plan.s.flat:
        numbers = BRANCH_COLUMNS if plan.program.long_rows else "columns"
        chosen = f"{name} = gl.where(gl.expand_dims({numbers} < ROW_LENGTH, 0), {name}, {zero(dtype)})"
        yield when(ends, f"{BRANCH}\n{chosen}") if plan.program.long_rows else chosen


def at_ends(plan: KernelPlan) -> str:
    """The condition that a part of rows reaches beyond them: over the end, and of flat rows before the beginning."""
    last = "column + TILE_COLUMNS > ROW_LENGTH"
    return f"({AT_BEGINNING}) | ({last})" if plan.s.flat else last


def load(plan: KernelPlan, tile: ByAddress[Source], first: str) -> str:
    """The load by threads of a part of a row that begins between two places of 16 bytes, in whole runs of them: from
    the `first` element on behind the place in front of the row.
    """
    return f"load_flat({tile.pointer}, row, {first}, {SHIFT}, {_REACH}, {plan.loop_layout})"


def rest(tile: ByAddress[Source], name: str) -> str:
    """The lines that load what is left of a tensor behind its last whole run of 16 bytes: a few elements of its last
    row, which are no run of their own.
    """
    loaded = f"load_flat_rest({name}, {tile.pointer}, row, {BRANCH_COLUMNS}, {_REACH})"
    return when(
        f"({_REACH} < ROW_LENGTH) & (column + TILE_COLUMNS > {_REACH})", f"{BRANCH}\n{name} = {loaded}"
    )


def store(plan: KernelPlan, argument: ByAddress[Output], value: str) -> str:
    """The store of a tile whose rows begin between two places of 16 bytes."""
    first = PART_COLUMN if plan.program.long_rows else "0"
    given = (argument.pointer, "rows", first, SHIFT, "row_extent", value, plan.loop_layout)
    return f"store_flat({', '.join(given)})"
