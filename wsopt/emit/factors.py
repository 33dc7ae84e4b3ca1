"""Factors of partial sums: the scales of a K-block, which consumers read under its product and multiply its sums by.

A factor of rows is a vector in the K-block's slot. One that all of a tile shares is the first of some numbers there,
for TMA copies no fewer than it may write to a slot.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from wsopt.emit import quantized
from wsopt.emit.called import FIRST_OF
from wsopt.emit.operations import Operations
from wsopt.emit.plan import KernelPlan
from wsopt.emit.sums import accumulators, cut_along
from wsopt.emit.vectors import widened
from wsopt.program.facts import Product, Promotion
from wsopt.program.ids import OpKind, ValueId
from wsopt.program.program import TileOp
from wsopt.tensors.views import SLOT_BYTES, Role, View

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


def of_sets(plan: KernelPlan) -> list[View]:
    """The tensors of factors of which a K-block's slot has several for each row."""
    products = ((op, op.counts) for op in plan.program.of(OpKind.MMA))
    several = [op for op, counts in products if isinstance(counts, Product) and counts.sets > 1]
    names = {tile.subject for op in several for tile in op.inputs[_SIDES:]}
    return [one.view for ring in plan.program.rings for one in ring.members if one.name in names]


def read(operations: Operations, op: TileOp, place: int) -> Iterator[str]:
    """The line that reads what multiplies a product's partial sums of the K-block at this place, if anything does."""
    assert isinstance(op.counts, Product), f"{op.id} is a product"
    if op.counts.sets > 1:
        yield from _of_sets(operations, op, place)
        return
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


def _of_sets(operations: Operations, op: TileOp, place: int) -> Iterator[str]:
    """The lines that read a factor a row for each set of partial sums."""
    assert isinstance(op.counts, Product), f"{op.id} is a product"
    assert op.output is not None, f"{op.id} has a result"
    (tile,) = op.inputs[_SIDES:]
    ((buffer, box, _),) = operations.buffers(tile, place)
    sets, name = op.counts.sets, _name(operations, op.output)
    yield f"{name} = {quantized.of_groups(box.view, buffer)}{widened(box.view)}"
    yield from cut_along(name, _set_names(name, sets), sets)


def _set_names(name: str, sets: int) -> tuple[str, ...]:
    """The identifiers of what multiplies each set of partial sums."""
    return (name,) if sets == 1 else tuple(f"{name}_{number}" for number in range(sets))


def _name(operations: Operations, partial: ValueId) -> str:
    """The identifier of what multiplies partial sums."""
    number = f"_{partial.k_block}" if partial.k_block else ""
    return operations.plan.value(f"{partial.subject}_factor{number}")


def added(operations: Operations, op: TileOp) -> Iterator[str]:
    """The lines that add partial sums to the sums, times their factor if they have one."""
    assert isinstance(op.counts, Promotion), f"{op.id} adds partial sums"
    partials, totals = map(operations.registers, op.inputs)
    sets = operations.plan.program.value(op.inputs[0]).sets
    factors = _set_names(_name(operations, op.inputs[0]), sets)
    own = zip(totals, accumulators(operations.plan.s), strict=True)
    for partial, (name, (total, one)) in zip(partials, itertools.product(factors, own), strict=True):
        term = f"{partial} * {_factor(operations, op, name, one.layout)}" if op.counts.scaled else partial
        yield f"{total} = {total} + {term}"


def _factor(operations: Operations, op: TileOp, name: str, layout: str) -> str:
    """The factor of partial sums, in the layout of an accumulator where it is one a row."""
    partial, plan = op.inputs[0], operations.plan
    product = next(one for one in plan.program.of(OpKind.MMA) if one.output == partial)
    if not any(operations.place(tile)[1].by_rows for tile in product.inputs[_SIDES:]):
        return name
    alone = isinstance(product.counts, Product) and product.counts.sets == 1
    if layout != accumulators(plan.s)[0].layout or not alone:
        name = f"gl.convert_layout({name}, gl.SliceLayout(1, {layout}))"
    return f"gl.expand_dims({name}, 1)"
