"""Vectors along the columns that a consumer loads once and keeps, where all of its tiles have the same columns.

They stay in registers as they were loaded, narrow ones packed, and are converted for each tile.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.plan import KernelPlan
from wsopt.emit.vectors import load_as_it_is, widened

_STAY = "Vectors that all tiles read are loaded once, and stay in registers."


def _name(plan: KernelPlan, name: str) -> str:
    """The identifier of a vector as it was loaded, not converted. Names in `_loaded` are those of `prefetched.py`."""
    return plan.names(f"held:{name}", f"{plan.vectors[name].of.view.tensor}_raw")


def loaded(plan: KernelPlan) -> Iterator[str]:
    """The lines before the first tile that load them, behind the end of the kernel before, which may make some."""
    names = sorted(plan.program.held_vectors)
    if names:
        yield from ("gdc_wait()", f"# {_STAY}")
    for name in names:
        yield f"{_name(plan, name)} = {load_as_it_is(plan, name)}"


def taken(plan: KernelPlan, name: str, value: str) -> Iterator[str]:
    """The line that takes one for a tile, in the type that is computed with."""
    yield f"{value} = {_name(plan, name)}{widened(plan.vectors[name].of.view)}"
