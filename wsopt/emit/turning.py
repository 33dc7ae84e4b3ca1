"""Transposed tiles that threads load or store: in a layout of their own, and then exchanged between threads.

In that layout a thread has neighbours in memory, which in the layout that is computed in belong to several threads.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.plan import KernelPlan
from wsopt.program.row_layout import RowLayout, turning_layout
from wsopt.tensors.orders import is_turned
from wsopt.tensors.views import View

LAYOUT = "TURNING_LAYOUT"
"""The constant for the layout of what is moved so."""
OWN = "turned_"
"""What the numbers of its rows and columns are called behind."""


def layout_of(plan: KernelPlan) -> RowLayout | None:
    """The layout in which such tiles are moved; None where a kernel has none."""
    s, program = plan.s, plan.program
    if not plan.loops_over_tiles:
        return None
    return turning_layout(program.row_tiles, s.rows, s.columns, s.consumer_warps, plan.verified.machine)


def is_exchanged(plan: KernelPlan, view: View) -> bool:
    """Whether the elements of a tensor that threads read or store are exchanged between them."""
    return is_turned(view) and not view.is_copied and layout_of(plan) is not None


def constants(plan: KernelPlan) -> Iterator[tuple[str, str, str]]:
    """The layout among a kernel's constants."""
    if (layout := layout_of(plan)) is not None:
        yield LAYOUT, layout.text(), "how threads read and store what lies turned"


def numbers(plan: KernelPlan) -> Iterator[str]:
    """The lines with the numbers of a tile's rows and columns in that layout."""
    if layout_of(plan) is not None:
        begin = "column + " if plan.columns else ""
        yield f"{OWN}rows = row + gl.arange(0, CONSUMER_ROWS, layout=gl.SliceLayout(1, {LAYOUT}))"
        yield f"{OWN}columns = {begin}gl.arange(0, TILE_COLUMNS, layout=gl.SliceLayout(0, {LAYOUT}))"


def read(plan: KernelPlan, loaded: str) -> str:
    """What was loaded in that layout, as the tile lies."""
    return f"gl.convert_layout({loaded}, {plan.loop_layout})"


def stored(value: str) -> str:
    """A value of the tile, as it is stored in that layout."""
    return f"gl.convert_layout({value}, {LAYOUT})"
