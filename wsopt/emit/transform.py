"""What a transform warpgroup does for a tile: it computes operands that products of the consumers take.

Tiles come through rings that the loader fills, and what is computed of them goes on through rings that this role
fills. A slot's tiles are handed over consumer by consumer: each consumer's rows have an arrival of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wsopt.emit import records, text, widening
from wsopt.emit.arithmetic import Arithmetic
from wsopt.emit.functions import Function, function, seen
from wsopt.emit.instructions import Instruction, arrive, stage, write
from wsopt.emit.operands import sources
from wsopt.emit.operations import Operations
from wsopt.emit.plan import KernelPlan
from wsopt.emit.ranges import scalar_loads, tile_range
from wsopt.emit.slots import first_slots, first_step, next_slots, next_step, windows
from wsopt.emit.stamps import Event, Point, Wait, between
from wsopt.program.ids import OpKind
from wsopt.program.program import TileOp
from wsopt.schedule.program_order import one_by_one
from wsopt.schedule.types import PartitionRole
from wsopt.tensors.views import K_BLOCK


def transform(plan: KernelPlan, index: int) -> Function:
    """The function of the role; where several warpgroups have it, each has its own."""
    order = one_by_one(plan.verified, f"{PartitionRole.TRANSFORM}{index}")
    operations = [_operations(plan, op) for op in order]
    counted = plan.trace is not None or not plan.counts_slots
    counters = windows(ring.counter for ring in plan.rings if ring.name in _own(plan, operations))
    body = f"for _ in range({_k_blocks(plan)}):\n" + text.block(
        write([*_k_block(plan, operations, index), *next_step(counted), *next_slots(counters)])
    )
    begin = [
        *first_step(counted),
        *first_slots(counters),
        "# Computes operands of all tiles, which the consumers' products take from shared memory.",
    ]
    parameters = [*seen(plan, PartitionRole.TRANSFORM, own=False, index=index)]
    if plan.ranged:
        begin.append("gdc_wait()")
        body = "\n".join([*scalar_loads(plan), tile_range(plan), body])
        parameters += [argument for name in plan.scalars for argument in plan.vectors[name].arguments]
    parameters += [*plan.order_table, *(plan.sizes if plan.ranged else plan.counts)]
    called = frozenset[str]().union(*(own.writer.called for own, _ in operations))
    return function(plan, PartitionRole.TRANSFORM, parameters, begin, body, called=called, index=index)


def _k_blocks(plan: KernelPlan) -> str:
    """The numbers of the K-blocks of what a block takes, for `range`."""
    if plan.ranged:
        return "0, end - begin" if plan.s.shares else "begin, end"
    return "first, last" if plan.split else "k_iterations"


def _own(plan: KernelPlan, operations: list[tuple[Operations, TileOp]]) -> set[str]:
    """The rings whose slots the role fills or empties, by name; all where nobody else has others."""
    if not plan.ranged:
        return {ring.name for ring in plan.rings}
    return {
        own.place(tile)[0].name
        for own, op in operations
        for tile in (*op.inputs, op.output)
        if tile is not None
    }


def _k_block(
    plan: KernelPlan, operations: list[tuple[Operations, TileOp]], index: int
) -> Iterator[Instruction]:
    """The operations of a K-block, each slot waited for once; with stamps if the kernel is traced."""
    met = set[str]()
    for own, op in operations:
        reached, start = (
            records.pass_stamp(plan, PartitionRole.TRANSFORM, Event(str(op.id), point), index)
            for point in Point
        )
        yield from between(_operation(plan, own, op, met), reached, start)


def _operation(plan: KernelPlan, own: Operations, op: TileOp, met: set[str]) -> Iterator[Instruction]:
    """An operation; `met` are the rings whose slots the K-block has waited for. The fence behind what is written has
    ended the loads of what was read.
    """
    if op.kind is OpKind.RELEASE:
        yield arrive(next(ring for ring in plan.rings if op.id in ring.plan.releases).empty())
        return
    for ring in (own.place(tile)[0] for tile in op.inputs):
        if ring.name not in met:
            yield Wait(ring.wait_full())
        met.add(ring.name)
    if op.items:
        yield from own.arithmetic(op, lambda _: 0, 0, masked=False)
    assert op.output is not None, "what is computed apart is left in a slot"
    filled, _, _ = own.place(op.output)
    if filled.name not in met:
        yield filled.wait_empty()
    met.add(filled.name)
    if op.items:
        yield stage(own.slot(op.output, 0), plan.value(op.items[-1].name))
    else:
        yield from widening.lines(plan, own, op)
    yield arrive(filled.full())


def _operations(plan: KernelPlan, op: TileOp) -> tuple[Operations, TileOp]:
    """An operation with its writer, for the rows of its consumer."""
    writer = Arithmetic(
        items=op.items,
        s=replace(plan.s, consumer_warps=plan.verified.machine.warps_per_warpgroup),
        name=plan.value,
        sources=sources(plan, op.items),
        tile=K_BLOCK,
        layout=plan.loop_layout,
        asynchronous=False,
        wanted=frozenset(item.name for item in op.items[-1:]),
        carried=False,
    )
    return Operations(plan, writer, (), index=str(op.id.instance)), op
