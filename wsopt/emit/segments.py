"""Rows that run-time offsets cut into segments: how a block finds the segment of a tile, and how tiles end within it.

Tiles are numbered segment by segment, and in each in the rasterization order, so that those that share a matrix in L2
follow each other. A block's tile numbers only rise: it goes on from the segment of its last tile. Rows that belong to
no segment are one more behind the last, for which copies lie outside of the tensors and bring zeros.

A tile's last rows may be another segment's. They are read, for a row's result depends on that row alone, and not
stored: TMA stores whole tiles, and of others nothing, for it is sent beyond the tensor; threads store those. Threads
read them from where they were staged: a branch that read sums would have ptxas serialize the products (its C7514).
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.functions import Function
from wsopt.emit.instructions import FENCE, when
from wsopt.emit.plan import KernelPlan
from wsopt.emit.stores import store_of_elements
from wsopt.emit.tensors import tile_load, turned
from wsopt.emit.walk import ROW_TILES, STATE
from wsopt.tensors.views import Output, Role

LAYOUT = "RAGGED_LAYOUT"
"""The constant of how threads store rows that TMA cannot, for those behind them are another segment's."""


def functions(plan: KernelPlan) -> Iterator[Function]:
    """The functions that find segments; none where nothing cuts the rows."""
    if plan.offsets is None:
        return
    known = ", ".join(plan.segment_arguments)
    end = f"end_row = end_of(segment, first_row, {known})"
    offset = plan.offsets.at({Role.SEGMENT: "segment"})
    yield Function(
        "end_of",
        ("segment", "first_row", *plan.segment_arguments),
        "# Where a segment's rows end: not before they begin, and not beyond the tensor, whatever the offsets are.\n"
        f"end_row = gl.load({offset}, mask=segment < segments, other=row_extent)\n"
        "return gl.maximum(gl.minimum(end_row, row_extent), first_row)",
    )
    yield Function(
        "row_tiles_of",
        plan.segment_arguments,
        "# Tiles along the rows, those of rows that belong to no segment among them.\n"
        "row_tiles = 0\n"
        "first_row = 0\n"
        "for segment in range(segments + 1):\n"
        f"    {end}\n"
        f"    row_tiles += {ROW_TILES}\n"
        "    first_row = end_row\n"
        "return row_tiles",
    )
    yield Function(
        "segment_of",
        ("tile", *STATE.split(", "), "column_tiles", *plan.segment_arguments),
        "# The segment that a tile lies in, from that of an earlier tile on.\n"
        f"tiles = {ROW_TILES} * column_tiles\n"
        "while tile >= passed + tiles:\n"
        "    passed += tiles\n"
        "    segment += 1\n"
        "    first_row = end_row\n"
        f"    {end}\n"
        f"    tiles = {ROW_TILES} * column_tiles\n"
        f"return {STATE}",
    )


def ragged_store(plan: KernelPlan, output: Output) -> Iterator[str]:
    """The store by threads of a subtile whose rows are not all its segment's; none where nothing cuts the rows."""
    if output.name not in plan.ragged:
        return
    staged = plan.staged.outputs[output.name]
    rows, columns = (f"gl.SliceLayout({dim}, {LAYOUT})" for dim in (1, 0))
    lines = [
        f"staged_tile = {tile_load(staged.buffer, staged.box, Role.ROW, LAYOUT)}",
        *([FENCE] if plan.staged.lent else []),  # a copy overwrites an input's buffer
        f"own_rows = row + gl.arange(0, CONSUMER_ROWS, layout={rows})",
        f"own_columns = column + gl.arange(0, SUBTILE_COLUMNS, layout={columns})",
        store_of_elements(plan, plan.ragged[output.name], "staged_tile", "own_"),
    ]
    yield when(f"row + CONSUMER_ROWS > {plan.row_end}", "\n".join(lines))


def layouts(plan: KernelPlan) -> Iterator[tuple[str, str, str]]:
    """The constant with the layout in which threads store what they have staged: each warp row by row."""
    if plan.ragged:
        threads, warps = plan.verified.machine.threads_per_warp, plan.s.consumer_warps
        text = f"gl.BlockedLayout([1, 1], [1, {threads}], [{warps}, 1], [1, 0])"
        yield LAYOUT, text, "how threads store rows that TMA cannot"
        other = f"gl.BlockedLayout([1, 1], [{threads}, 1], [1, {warps}], [0, 1])"
        boxes = (output.box for output in plan.staged.outputs.values())
        if any(not box.swizzle and box.view.roles[0] is not Role.ROW for box in boxes):
            yield turned(LAYOUT), other, "the same, transposed"


def stored_row(plan: KernelPlan) -> list[str]:
    """The line with the row at which TMA stores a consumer's tile: beyond the tensor where threads do."""
    if not plan.ragged:
        return []
    return ["stored_row = gl.where(row + CONSUMER_ROWS > end_row, row_extent, row)"]
