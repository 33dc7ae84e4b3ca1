"""The tiles of a kernel by their numbers: how many there are, and the lines that say where one lies."""

from __future__ import annotations

from wsopt.emit.integers import Integer, named, product
from wsopt.emit.plan import KernelPlan
from wsopt.program.launch_grid import MORE_TILES
from wsopt.program.types import row_role
from wsopt.tensors.views import OUTER, Role

LARGEST_QUOTIENT = 2**20
"""Tiles, at most, of a kernel that divides their numbers by f32. What f32 says is off by less than 2^-21 of the
quotient: the reciprocal by 2^-22 (two in the last place; PTX ISA, `div.full`), and by 2^-24 each of both numbers and
the product, which are rounded. So the quotient is one off at most.
"""


def launch_grid(plan: KernelPlan) -> tuple[Integer, ...]:
    """Blocks along each axis of the launch's grid, by the names that a launch gives their numbers."""
    counts = {row_role(plan.s.swap): "row_tiles", Role.COLUMN: "column_tiles"}
    along = (named(counts.get(role, plan.extent_names[role])) for role in plan.launch_axes)
    return tuple(along) or (named("blocks"),)


def grid_parameters(plan: KernelPlan) -> list[str]:
    """Parameters from which a tile's place follows, beside its number."""
    column = ["column_tiles"] if plan.columns else []
    inner = [name for name in ("groups", "heads") if name in plan.counts]
    return ["row_tiles", *column, *inner]


def divides(plan: KernelPlan) -> bool:
    """Whether a tile's place follows from its number by divisions: there are axes beside that of its rows."""
    return bool(plan.outer or plan.columns) and not plan.launch_axes


def divided_by_f32(plan: KernelPlan) -> bool:
    """Whether the numbers of tiles are divided by f32: few enough, also where a call has more than the graph."""
    return divides(plan) and plan.program.grid.tiles * MORE_TILES <= LARGEST_QUOTIENT


def tiles(plan: KernelPlan) -> Integer:
    """Tiles in all, from the tiles each way."""
    outer = (plan.extent_names[role] for role in OUTER if role in plan.axes and role is not Role.SEGMENT)
    columns = ["column_tiles"] if "column_tiles" in plan.counts else []
    return product(map(named, (*outer, "row_tiles", *columns)))


def place_of(plan: KernelPlan, tile: str) -> str:
    """The line that says where a tile lies, by its number, or by the block's numbers along the launch's axes."""
    place = ", ".join([*plan.outer, "row_tile", *(["column_tile"] if plan.columns else [])])
    if plan.launch_axes:
        numbers = reversed(range(len(plan.launch_axes)))
        return f"{place} = {', '.join(f'gl.program_id({number})' for number in numbers)}"
    return f"{place} = tile_coordinates({', '.join([tile, *grid_parameters(plan)])})"
