"""The tiles of a kernel by their numbers: how many there are, and the lines that say where one lies."""

from __future__ import annotations

from wsopt.emit.integers import Integer, named, product
from wsopt.emit.plan import KernelPlan
from wsopt.tensors.views import OUTER, Role


def grid_parameters(plan: KernelPlan) -> list[str]:
    """Parameters from which a tile's place follows, beside its number."""
    column = ["column_tiles"] if plan.columns else []
    inner = [name for name in ("groups", "heads") if name in plan.counts]
    return ["row_tiles", *column, *inner]


def tiles(plan: KernelPlan) -> Integer:
    """Tiles in all, from the tiles each way."""
    outer = (plan.extent_names[role] for role in OUTER if role in plan.axes and role is not Role.SEGMENT)
    columns = ["column_tiles"] if "column_tiles" in plan.counts else []
    return product(map(named, (*outer, "row_tiles", *columns)))


def place_of(plan: KernelPlan, tile: str) -> str:
    """The line that says where a tile lies, by its number."""
    place = ", ".join([*plan.outer, "row_tile", *(["column_tile"] if plan.columns else [])])
    return f"{place} = tile_coordinates({', '.join([tile, *grid_parameters(plan)])})"
