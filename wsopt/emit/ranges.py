"""Lines of a kernel that find the K-blocks of a tile, from the loop's bounds.

Each partition that passes over a tile's K-blocks finds them for itself. Run-time scalars of the bounds are loaded by
address at the start of every tile, behind `gdc_wait`.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.integers import GLUON, Integer, maximum, minimum, named
from wsopt.emit.plan import KernelPlan
from wsopt.program.ranges import k_blocks_between, splits
from wsopt.tensors.views import FAR, Bound


def k_block_range(
    plan: KernelPlan, row: str, height: str, first: str, last: str, row_extent: str = "row_extent"
) -> str:
    """The call that narrows K-blocks from `first` to `last` to those of some rows, by the values of the scalars."""
    extents = row_extent, "stream_extent"
    return f"k_block_range({', '.join([row, height, first, last, *extents, *plan.scalars.values()])})"


_NARROWED = "begin, whole_begin, whole_end, end"
"""The variables with the K-blocks of a tile, and those in which all elements count."""


def whole_tile_range(plan: KernelPlan, target: str = _NARROWED, row_extent: str = "row_extent") -> str:
    """The line with the K-blocks of the present tile, whoever has them."""
    last = "(stream_extent + TILE_DEPTH - 1) // TILE_DEPTH"
    return f"{target} = {k_block_range(plan, 'row_tile * TILE_ROWS', 'TILE_ROWS', '0', last, row_extent)}"


def tile_range(plan: KernelPlan, target: str = _NARROWED) -> str:
    """The lines with the K-blocks of the present tile, or of the present part of one, behind `scalar_loads`.

    Parts are cut as if the tensor had all rows of the tile: where sums are cut they round, and a row's bits do not
    depend on how many rows there are; shares are cut by all that the tensors have.
    """
    if plan.s.shares:
        begin, *_, end = target.split(", ")
        counted = f"after = before + gl.maximum({end} - {begin}, 1)"
        cut = f"{target} = part_of(share_begin - before, share_end - before, {target})"
        return "\n".join([whole_tile_range(plan, target), counted, cut])
    whole = plan.split and any(bound.row for bound in plan.program.bounds.every)
    line = whole_tile_range(plan, target, "(row_tile + 1) * TILE_ROWS" if whole else "row_extent")
    return f"{line}\n{target} = part_of(part, {target})" if plan.split else line


def scalar_loads(plan: KernelPlan) -> list[str]:
    """The lines that load the scalars of the bounds for the present tile."""
    place = plan.place("0", "0")
    return [f"{value} = gl.load({plan.vectors[name].at(place)})" for name, value in plan.scalars.items()]


def range_lines(plan: KernelPlan) -> list[str]:
    """Lines by which each bound narrows the K-blocks of a tile, and those in which all elements count."""
    near = [
        f"{_near(value)} = gl.maximum(gl.minimum({value}, {FAR}), -{FAR})" for value in plan.scalars.values()
    ]
    wrap = dict.fromkeys(name for bound in plan.program.bounds.every if bound.wraps for name in bound.scalars)
    known = [
        f"{_known(plan.scalars[name])} = {_near(plan.scalars[name])} == {plan.scalars[name]}" for name in wrap
    ]
    told = ["# One scalar beyond all axes is like another: of those that are near, sums cannot overflow."]
    more = ["# Where the graph's own sum may overflow every K-block is looked at, and the mask decides."]
    return [*(told if near else []), *near, *(more if wrap else []), *known, *_narrowing(plan)]


def _narrowing(plan: KernelPlan) -> Iterator[str]:
    """The lines of every bound."""
    for bound in plan.program.bounds.every:
        known = " & ".join(_known(plan.scalars[name]) for name in bound.scalars)
        for place, narrowed in _bound_lines(plan, bound):
            other = "0" if place == "whole_end" else place
            yield f"{place} = " + (f"gl.where({known}, {narrowed}, {other})" if bound.wraps else narrowed)
        if bound.wraps and bound.stream > 0:
            yield f"whole_end = gl.where({known}, whole_end, 0)"


def _near(value: str) -> str:
    """The name of a scalar's value that is not far from zero."""
    return f"{value}_near"


def _known(value: str) -> str:
    """The name of whether that is the scalar itself."""
    return f"{value}_known"


def _bound_lines(plan: KernelPlan, bound: Bound) -> list[tuple[str, str]]:
    """The limits of the K-blocks that a bound narrows, each with the expression of what it becomes."""
    if not splits(bound):
        return [("whole_end", "0")]
    row, last, depth = named("row"), named("last_row"), named("TILE_DEPTH")
    constant: Integer = bound.constant
    if bound == plan.program.bounds.end:
        constant = named("stream_extent") + -1
    for times, scalar in bound.terms:
        constant = times * named(_near(plan.scalars[scalar])) + constant
    narrowing = [(bound.row, bound.stream, constant)]
    begin, end = k_blocks_between(narrowing, row, last, named("begin"), named("end"), depth, minimum, maximum)
    nearest = bound.row * (row if bound.row >= 0 else last) + constant
    if bound.stream < 0:
        whole = minimum(named("whole_end"), maximum(nearest + 1, 0) // depth)
        return [("end", GLUON(end)), ("whole_end", GLUON(whole))]
    whole = maximum(named("whole_begin"), (maximum(-nearest, 0) + depth + -1) // depth)
    return [("begin", GLUON(begin)), ("whole_begin", GLUON(whole))]
