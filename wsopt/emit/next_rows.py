"""Values of rows that a consumer loads by address a tile ahead, such as the mean of each row.

They come from L2 at best, and arrive while the consumer computes with the tile before: none is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from wsopt.emit.grid import divides
from wsopt.emit.plan import KernelPlan
from wsopt.emit.vectors import load
from wsopt.program.next_rows import knows_next_rows
from wsopt.tensors.views import Role

_ROWS = "next_rows"
_AHEAD = "Values of rows are loaded a tile ahead."


def loaded_ahead(plan: KernelPlan, names: Iterable[str]) -> tuple[str, ...]:
    """Of the tensors of these names, which threads load in each tile, the values of rows that come a tile ahead."""
    program = plan.program
    if program.long_rows or not (plan.loops_over_tiles and knows_next_rows(plan.s, divided=divides(plan))):
        return ()
    vectors = {name: plan.vectors[name].of for name in names}
    return tuple(name for name, one in vectors.items() if one.spans == {Role.ROW} and one.view.chosen is None)


def _name(plan: KernelPlan, name: str) -> str:
    """The identifier of the next tile's values."""
    return plan.names(f"next:{name}", f"{plan.vectors[name].of.view.tensor}_next")


def _load(plan: KernelPlan, name: str) -> str:
    return f"{_name(plan, name)} = {load(plan, name, rows=_ROWS)}"


def loaded(plan: KernelPlan, of_tiles: Iterable[str], *, waited: bool) -> Iterator[str]:
    """The lines before the first tile that load its rows' values, behind the end of the kernel before if that was not
    `waited` for; `of_tiles` are the names of what threads load in each tile.
    """
    names = loaded_ahead(plan, of_tiles)
    if not names:
        return
    own = "" if plan.s.at_once == 1 else " + index * CONSUMER_ROWS"
    numbers = f"gl.arange(0, CONSUMER_ROWS, layout=gl.SliceLayout(1, {plan.loop_layout}))"
    yield from ([] if waited else ["gdc_wait()"])
    yield f"# {_AHEAD}"
    yield f"{_ROWS} = gl.program_id(0) * TILE_ROWS{own} + {numbers}"
    yield from (_load(plan, name) for name in names)


def taken(plan: KernelPlan, values: Mapping[str, str]) -> Iterator[str]:
    """The lines that take a tile's values, by the name of each tensor, and ask for those of the next tile."""
    for name, value in values.items():
        yield f"{value} = {_name(plan, name)}"
    if values:
        yield f"{_ROWS} = rows + gl.num_programs(0) * TILE_ROWS"
    yield from (_load(plan, name) for name in values)
