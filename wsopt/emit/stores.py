"""Stores of an output's tile: wait for its buffer, stage it there, start the copy."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit import flat, turning
from wsopt.emit.addresses import ByAddress
from wsopt.emit.expressions import Operand
from wsopt.emit.instructions import arrive, stage, store_wait, tma_store, wait, when
from wsopt.emit.plan import KernelPlan
from wsopt.emit.tensors import GLUON, coordinates, tile_store
from wsopt.emit.vectors import before_end
from wsopt.graph.types import DType
from wsopt.program.types import row_role
from wsopt.tensors.views import OUTER, Output, Role


def rounded(operand: Operand, dtype: DType) -> str:
    """A value as text, in the type that an output has."""
    return operand.name if operand.dtype is dtype is not DType.BOOL else f"{operand.name}.to({GLUON[dtype]})"


def stores(plan: KernelPlan, output: Output, operand: Operand, column: str) -> Iterator[str]:
    """One output's tile, or a subtile of it, staged in the output's order of axes."""
    staged = plan.staged.outputs[output.name]
    pending, number = staged.pending, staged.number
    if pending:
        # Of the tile before, where the number of the store that is waited for is below 0.
        phase = f"(visit & 1) ^ (1 if {number} <= {pending} else 0)"
        awaited = f"{number} - 1 - {pending}" if staged.differs else f"{number} - {int(pending) + 1}"
        freed = wait(f"freed.index(({awaited}) % STORES)", phase)
        waits = freed if plan.stores_apart else store_wait(pending)
        yield when(f"{pending} is not None", waits) if None in staged.waits else waits
    value = rounded(operand, output.view.dtype)
    yield stage(*tile_store(staged.buffer, staged.box, row_role(plan.s.swap), value))
    if plan.stores_apart:
        yield arrive(f"staged.index({number})")
    else:
        place = coordinates(staged.box, plan.place("stored_row" if plan.ragged else "row", column))
        yield tma_store(staged.box.descriptor, place, staged.buffer)


def _group_store(argument: ByAddress[Output], value: str) -> str:
    """The store of a value of each group of a row, which every element of the group has: the first of them has it
    stored.
    """
    each = argument.of.view.column_each
    at = {Role.ROW: "gl.expand_dims(rows, 1)", Role.COLUMN: f"gl.expand_dims(columns // {each}, 0)"}
    outer = {role: str(role) for role in OUTER}
    first = f"gl.expand_dims((columns % {each} == 0) & (columns < ROW_LENGTH), 0)"
    inside = f"(gl.expand_dims(rows, 1) < row_extent) & {first}"
    return f"gl.store({argument.at({**outer, **at})}, {value}, mask={inside})"


def store_by_address(plan: KernelPlan, argument: ByAddress[Output], operand: Operand) -> str:
    """An output that threads store: a tile, or a subtile of it, whose rows TMA cannot begin with; or one value a row,
    which the first subtile of a row's first tile stores.
    """
    value = rounded(operand, argument.of.view.dtype)
    if argument.of.view.column_each > 1:
        return _group_store(argument, value)
    if argument.of.by_threads:
        return store_of_elements(plan, argument, value)
    address = argument.at(plan.place("rows", "columns"))
    if not argument.of.view.roles:  # one value of a single row, whose number is zero
        address += " + rows"
    store = f"gl.store({address}, {value}, mask=rows < {plan.row_end})"
    if plan.columns:
        return when("column == 0", store)
    return store if plan.s.subtiles == 1 else when("subtile == 0", store)


def store_of_elements(plan: KernelPlan, argument: ByAddress[Output], value: str, own: str = "") -> str:
    """The store by threads of a subtile's elements, as far as its rows and columns reach, whose numbers are called
    that behind `own`.
    """
    if argument.of.view.flat:
        return flat.store(plan, argument, value)
    if turning.is_exchanged(plan, argument.of.view):
        own, value = turning.OWN, turning.stored(value)
    rows, columns = f"gl.expand_dims({own}rows, 1)", f"gl.expand_dims({own}columns, 0)"
    # Beyond 2^31 elements an offset would not fit the type of the indices.
    address = argument.at(plan.place(f"{rows}.to(gl.int64)", f"{columns}.to(gl.int64)"))
    inside = before_end(plan, columns) if plan.loops_over_tiles else f"{columns} < column_extent"
    return f"gl.store({address}, {value}, mask=({rows} < {plan.row_end}) & ({inside}))"
