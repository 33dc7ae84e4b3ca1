"""What a transform warpgroup does for a tile: it computes operands that products of the consumers take.

Tiles come through rings that the loader fills, and what is computed of them goes on through rings that this role
fills. A slot's tiles are handed over consumer by consumer: each consumer's rows have an arrival of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wsopt.emit import text
from wsopt.emit.arithmetic import Arithmetic
from wsopt.emit.functions import Function, function, seen
from wsopt.emit.instructions import arrive, stage, write
from wsopt.emit.operations import Operations, sources
from wsopt.emit.plan import KernelPlan
from wsopt.program.ids import OpKind
from wsopt.program.program import TileOp
from wsopt.schedule.types import PartitionRole
from wsopt.tensors.views import K_BLOCK


def transform(plan: KernelPlan) -> Function:
    """The function of the role."""
    operations = [_operations(plan, op) for op in _ordered(plan)]
    body = "for _ in range(k_iterations):\n" + text.block(write([*_k_block(plan, operations), "step += 1"]))
    begin = [
        "step = 0",
        "# Computes operands of all tiles, which the consumers' products take from shared memory.",
    ]
    parameters = [*seen(plan, PartitionRole.TRANSFORM, own=False), *plan.counts]
    called = frozenset[str]().union(*(own.writer.called for own, _ in operations))
    return function(plan, PartitionRole.TRANSFORM, parameters, begin, body, called=called)


def _k_block(plan: KernelPlan, operations: list[tuple[Operations, TileOp]]) -> Iterator[str]:
    """The operations of a K-block, each slot waited for once."""
    met = set[str]()
    for own, op in operations:
        if op.kind is OpKind.RELEASE:
            yield next(ring for ring in plan.rings if op.id in ring.plan.releases).release("step")
            continue
        for ring in (own.place(tile)[0] for tile in op.inputs):
            if ring.name not in met:
                yield ring.wait_full("step")
            met.add(ring.name)
        yield from own.arithmetic(op, lambda _: 0, "step", masked=False)
        assert op.output is not None, "what is computed apart is left in a slot"
        filled, _, _ = own.place(op.output)
        if filled.name not in met:
            yield filled.wait_empty("step")
        met.add(filled.name)
        yield stage(own.slot(op.output, "step"), plan.value(op.items[-1].name))
        yield arrive(filled.full("step"))


def _ordered(plan: KernelPlan) -> list[TileOp]:
    """The role's operations in the order in which its thread meets them."""
    placed = plan.verified.schedule.of(f"{PartitionRole.TRANSFORM}0")
    return [
        plan.program.named(one.op) for one in sorted(placed, key=lambda one: (one.stage, one.cycle, one.op))
    ]


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
