"""Parts of rows that threads read one ahead: while they compute with a part the next one is on its way.

What was read lies as it is in the registers of a loop's variable, and is converted when its turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wsopt.emit import flat
from wsopt.emit.plan import KernelPlan
from wsopt.emit.vectors import NEXT_PART, Part, load_tile, widened


def _name(plan: KernelPlan, name: str) -> str:
    """The identifier of what was read ahead of a tensor."""
    return plan.names(f"ahead:{name}", f"{plan.vectors[name].of.view.tensor}_ahead")


def begun(plan: KernelPlan, names: Iterable[str]) -> Iterator[str]:
    """The lines in front of a pass over rows that read the first part of these tensors."""
    first = Part(flat.tile_columns(plan), "0")
    for name in names:
        yield f"{_name(plan, name)} = {load_tile(plan, plan.vectors[name], first)}"


def taken(plan: KernelPlan, name: str, value: str) -> str:
    """The lines that take a tensor's part as it was read, and read the next one."""
    tile, there = plan.vectors[name], _name(plan, name)
    return f"{value} = {there}{widened(tile.of.view)}\n{there} = {load_tile(plan, tile, NEXT_PART)}"
