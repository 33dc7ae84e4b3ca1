"""Lines of a kernel that find the K-blocks of a tile, from the loop's bounds."""

from __future__ import annotations

from wsopt.emit.integers import GLUON, maximum, minimum, named
from wsopt.emit.plan import KernelPlan
from wsopt.program.ranges import k_blocks_between, splits
from wsopt.tensors.views import Bound


def k_block_range(row: str, height: str, first: str, last: str) -> str:
    """The call that narrows K-blocks from `first` to `last` to those of some rows."""
    return f"k_block_range({row}, {height}, {first}, {last}, row_extent, stream_extent)"


def tile_range(plan: KernelPlan, target: str = "begin, whole_begin, whole_end, end") -> str:
    """The lines that say which K-blocks the present tile looks at, or the present part of one."""
    last = "(stream_extent + TILE_DEPTH - 1) // TILE_DEPTH"
    line = f"{target} = {k_block_range('row_tile * TILE_ROWS', 'TILE_ROWS', '0', last)}"
    return f"{line}\n{target} = part_of(part, {target})" if plan.split else line


def range_lines(plan: KernelPlan) -> list[str]:
    """Lines by which each bound narrows the K-blocks of a tile, and those in which all elements count."""
    return [line for bound in plan.program.bounds.every for line in _bound_lines(plan, bound)]


def _bound_lines(plan: KernelPlan, bound: Bound) -> list[str]:
    if not splits(bound):
        return ["whole_end = 0"]
    row, last, depth = named("row"), named("last_row"), named("TILE_DEPTH")
    constant = named("stream_extent") + -1 if bound == plan.program.bounds.end else bound.constant
    narrowing = [(bound.row, bound.stream, constant)]
    begin, end = k_blocks_between(narrowing, row, last, named("begin"), named("end"), depth, minimum, maximum)
    nearest = bound.row * (row if bound.row >= 0 else last) + constant
    if bound.stream < 0:
        whole = minimum(named("whole_end"), maximum(nearest + 1, 0) // depth)
        return [f"end = {GLUON(end)}", f"whole_end = {GLUON(whole)}"]
    whole = maximum(named("whole_begin"), (maximum(-nearest, 0) + depth + -1) // depth)
    return [f"begin = {GLUON(begin)}", f"whole_begin = {GLUON(whole)}"]
