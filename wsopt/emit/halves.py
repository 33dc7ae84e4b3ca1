"""Tiles that are halves of a tensor's pairs, as threads read and store them: both halves by one access.

The pairs lie in a thread's registers with twice as many neighbours as the tile has, so that taking them apart, and
joining them, moves nothing between threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wsopt.emit.addresses import ByAddress, T
from wsopt.emit.expressions import Operand
from wsopt.emit.instructions import write
from wsopt.emit.plan import KernelPlan
from wsopt.emit.stores import rounded
from wsopt.emit.tensors import PAIRS_LAYOUT
from wsopt.emit.vectors import before_end, halves_read, load_tile, widened
from wsopt.tensors.views import PAIR, Output, View

_OWN = "pair_"
"""Begins the names of the numbers of rows and columns of pairs."""


def read(plan: KernelPlan, name: str, value: str, *, there: bool) -> Iterator[str]:
    """Lines that bring one half of a tensor's pairs into registers as `value`; the pairs are loaded first, where they
    are not `there` already.
    """
    vector = plan.vectors[name]
    view = vector.of.view
    pairs = plan.names(f"pairs:{view.moved}", f"{view.tensor}_pairs")
    if not there:
        yield from _places(plan)
        yield f"{pairs} = {load_tile(plan, _as_neighbours(vector), own=_OWN, each=PAIR)}"
    half = f"{taken_apart(pairs)}[{view.offset}]"
    yield f"{value} = gl.convert_layout({half}, {plan.loop_layout}){widened(view)}"


def taken_apart(pairs: str) -> str:
    """The two halves of pairs in registers, as text."""
    return f"{pairs}.reshape([CONSUMER_ROWS, TILE_COLUMNS, {PAIR}]).split()"


def store(plan: KernelPlan, argument: ByAddress[Output], first: Operand, second: Operand) -> str:
    """The store of both halves of a tensor's pairs, joined in registers; `argument` is that of the first ones."""
    rows, columns = f"gl.expand_dims({_OWN}rows, 1)", f"gl.expand_dims({_OWN}columns, 0)"
    place = plan.place(f"{rows}.to(gl.int64)", f"{columns}.to(gl.int64)")
    address = _as_neighbours(argument).at(place)
    halves = ", ".join(rounded(half, argument.of.view.dtype) for half in (first, second))
    pairs = f"gl.join({halves}).reshape([CONSUMER_ROWS, {PAIR} * TILE_COLUMNS])"
    inside = f"({rows} < {plan.row_end}) & ({before_end(plan, columns, PAIR)})"
    return write(
        (
            *(() if halves_read(plan) else _places(plan)),
            f"{argument.name}_pairs = gl.convert_layout({pairs}, {PAIRS_LAYOUT})",
            f"gl.store({address}, {argument.name}_pairs, mask={inside})",
        )
    )


def _places(plan: KernelPlan) -> Iterator[str]:
    """The lines that number the rows and columns of a tile of pairs."""
    begin = f"{PAIR} * column + " if plan.columns else ""
    yield f"{_OWN}rows = row + gl.arange(0, CONSUMER_ROWS, layout=gl.SliceLayout(1, {PAIRS_LAYOUT}))"
    columns = f"gl.arange(0, {PAIR} * TILE_COLUMNS, layout=gl.SliceLayout(0, {PAIRS_LAYOUT}))"
    yield f"{_OWN}columns = {begin}{columns}"


def _as_neighbours(argument: ByAddress[T]) -> ByAddress[T]:
    """The tensor of both halves, whose elements lie next to each other."""
    view: View = argument.of.view
    near = replace(view, strides=(*view.strides[:-1], 1), offset=0)
    return replace(argument, of=replace(argument.of, view=near))
