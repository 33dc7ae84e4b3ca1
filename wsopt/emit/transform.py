"""What a transform warpgroup does for a tile: it computes operands that products of the consumers take.

Tiles come through rings that the loader fills, and what is computed of them goes on through rings that this role
fills. A slot's tiles are handed over consumer by consumer: each consumer's rows have an arrival of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wsopt.emit import records, text
from wsopt.emit.arithmetic import Arithmetic
from wsopt.emit.functions import Function, function, seen
from wsopt.emit.instructions import Instruction, arrive, stage, write
from wsopt.emit.operations import Operations, sources
from wsopt.emit.plan import KernelPlan
from wsopt.emit.slots import first_slots, first_step, next_slots, next_step, windows
from wsopt.emit.stamps import Event, Point, Wait, between
from wsopt.program.ids import OpKind
from wsopt.program.program import TileOp
from wsopt.schedule.program_order import one_by_one
from wsopt.schedule.types import PartitionRole
from wsopt.tensors.views import K_BLOCK


def transform(plan: KernelPlan) -> Function:
    """The function of the role."""
    operations = [_operations(plan, op) for op in one_by_one(plan.verified, f"{PartitionRole.TRANSFORM}0")]
    traced = plan.trace is not None
    counters = windows(ring.counter for ring in plan.rings)
    k_blocks = "first, last" if plan.split else "k_iterations"
    body = f"for _ in range({k_blocks}):\n" + text.block(
        write([*_k_block(plan, operations), *next_step(traced), *next_slots(counters)])
    )
    begin = [
        *first_step(traced),
        *first_slots(counters),
        "# Computes operands of all tiles, which the consumers' products take from shared memory.",
    ]
    parameters = [*seen(plan, PartitionRole.TRANSFORM, own=False), *plan.counts]
    called = frozenset[str]().union(*(own.writer.called for own, _ in operations))
    return function(plan, PartitionRole.TRANSFORM, parameters, begin, body, called=called)


def _k_block(plan: KernelPlan, operations: list[tuple[Operations, TileOp]]) -> Iterator[Instruction]:
    """The operations of a K-block, each slot waited for once; with stamps if the kernel is traced."""
    met = set[str]()
    for own, op in operations:
        reached, start = (
            records.pass_stamp(plan, PartitionRole.TRANSFORM, Event(str(op.id), point)) for point in Point
        )
        yield from between(_operation(plan, own, op, met), reached, start)


def _operation(plan: KernelPlan, own: Operations, op: TileOp, met: set[str]) -> Iterator[Instruction]:
    """An operation; `met` are the rings whose slots the K-block has waited for."""
    if op.kind is OpKind.RELEASE:
        yield next(ring for ring in plan.rings if op.id in ring.plan.releases).release()
        return
    for ring in (own.place(tile)[0] for tile in op.inputs):
        if ring.name not in met:
            yield Wait(ring.wait_full())
        met.add(ring.name)
    yield from own.arithmetic(op, lambda _: 0, 0, masked=False)
    assert op.output is not None, "what is computed apart is left in a slot"
    filled, _, _ = own.place(op.output)
    if filled.name not in met:
        yield filled.wait_empty()
    met.add(filled.name)
    yield stage(own.slot(op.output, 0), plan.value(op.items[-1].name))
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
