"""Stores of an output's tile: wait for its buffer, stage it there, start the copy."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.addresses import ByAddress
from wsopt.emit.expressions import Operand
from wsopt.emit.instructions import (
    Instruction,
    RowStore,
    Signal,
    Stage,
    StoreWait,
    TmaStore,
    WaitFreed,
)
from wsopt.emit.plan import KernelPlan
from wsopt.emit.tensors import GLUON, coordinates, tile_view
from wsopt.graph.types import DType
from wsopt.program.types import row_role
from wsopt.tensors.views import Output


def _rounded(operand: Operand, dtype: DType) -> str:
    return operand.name if operand.dtype is dtype else f"{operand.name}.to({GLUON[dtype]})"


def stores(plan: KernelPlan, output: Output, operand: Operand, column: str) -> Iterator[Instruction]:
    """One output's tile, or a subtile of it, staged in the output's order of axes."""
    staged = plan.staged().outputs[output.name]
    if staged.pending and plan.stores_apart:
        yield WaitFreed(staged.number, staged.awaited, staged.pending, staged.optional)
    elif staged.pending:
        yield StoreWait(staged.pending, staged.optional)
    value = _rounded(operand, output.view.dtype)
    yield Stage(tile_view(staged.buffer, staged.box, row_role(plan.s.swap)), value)
    if plan.stores_apart:
        yield Signal(f"staged.index({staged.number})")
        return
    place = coordinates(staged.box, plan.place("row", column))
    yield TmaStore(staged.box.descriptor, place, staged.buffer)


def row_store(plan: KernelPlan, argument: ByAddress[Output], operand: Operand) -> Instruction:
    """An output of one value a row, which the first subtile stores by address."""
    value = _rounded(operand, argument.of.view.dtype)
    address = argument.at(plan.place("rows", "columns"))
    return RowStore(address, value, "rows < row_extent", plan.s.subtiles == 1)
