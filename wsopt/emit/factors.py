"""Factors of partial sums: the scales of a K-block, which consumers read under its product and multiply its sums by.

A factor of rows is a vector in the K-block's slot. One that all of a tile shares is the first of some numbers there,
for TMA copies no fewer than it may write to a slot.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from wsopt.emit.called import FIRST_OF
from wsopt.emit.sums import accumulators
from wsopt.emit.vectors import widened
from wsopt.program.facts import Promotion
from wsopt.program.ids import OpKind, ValueId
from wsopt.program.program import TileOp
from wsopt.tensors.views import SLOT_BYTES, Role, View

if TYPE_CHECKING:
    from wsopt.emit.operations import Operations
    from wsopt.emit.plan import KernelPlan

_SIDES = 2
"""Operands of a product; what it reads behind them are factors."""


def _layout(view: View) -> str:
    """The constant with the layout of numbers of which every thread has all."""
    return f"FACTORS_LAYOUT_{view.dtype.bits}"


def layouts(plan: KernelPlan) -> Iterator[tuple[str, str, str]]:
    """Name, value and comment of the layouts that factors of whole tiles are read with."""
    found = {
        _layout(box.view): SLOT_BYTES * 8 // box.view.dtype.bits
        for ring in plan.rings
        for box in ring.boxes
        if box.view.each > 1 and Role.ROW not in box.view.roles
    }
    for name, count in found.items():
        text = f"gl.BlockedLayout([{count}], [32], [{plan.s.consumer_warps}], [0])"
        yield name, text, "how every thread has all factors that come with a K-block"


def read(operations: Operations, op: TileOp, place: int) -> Iterator[str]:
    """The line that reads what multiplies a product's partial sums of the K-block at this place, if anything does."""
    layout, terms = accumulators(operations.plan.s)[0].layout, list[str]()
    for tile in op.inputs[_SIDES:]:
        ((buffer, box, _),) = operations.buffers(tile, place)
        if Role.ROW in box.view.roles:
            load = f"{buffer}.reshape((CONSUMER_ROWS,)).load(gl.SliceLayout(1, {layout}))"
            terms.append(load + widened(box.view))
        else:
            operations.writer.called.add(FIRST_OF)
            terms.append(f"{FIRST_OF}({buffer}.reshape(({math.prod(box.shape)},)), {_layout(box.view)})")
    if terms:
        assert op.output is not None, f"{op.id} has a result"
        yield f"{_name(operations, op.output)} = {' * '.join(terms)}"


def _name(operations: Operations, partial: ValueId) -> str:
    """The identifier of what multiplies partial sums."""
    number = f"_{partial.k_block}" if partial.k_block else ""
    return operations.plan.value(f"{partial.subject}_factor{number}")


def added(operations: Operations, op: TileOp) -> Iterator[str]:
    """The lines that add partial sums to the sums, times their factor if they have one."""
    assert isinstance(op.counts, Promotion), f"{op.id} adds partial sums"
    partials, totals = map(operations.registers, op.inputs)
    for partial, total, one in zip(partials, totals, accumulators(operations.plan.s), strict=True):
        term = f"{partial} * {_factor(operations, op, one.layout)}" if op.counts.scaled else partial
        yield f"{total} = {total} + {term}"


def _factor(operations: Operations, op: TileOp, layout: str) -> str:
    """The factor of partial sums, in the layout of an accumulator where it is one a row."""
    partial, plan = op.inputs[0], operations.plan
    product = next(one for one in plan.program.of(OpKind.MMA) if one.output == partial)
    name = _name(operations, partial)
    if not any(operations.place(tile)[1].by_rows for tile in product.inputs[_SIDES:]):
        return name
    if layout != accumulators(plan.s)[0].layout:
        name = f"gl.convert_layout({name}, gl.SliceLayout(1, {layout}))"
    return f"gl.expand_dims({name}, 1)"
