"""What a transform warpgroup does for a tile: it computes operands that products of the consumers take.

Tiles come through rings that the loader fills, and what is computed of them goes on through rings that this role
fills. A slot's tiles are handed over consumer by consumer: each consumer's rows have an arrival of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wsopt.emit import text
from wsopt.emit.arithmetic import Arithmetic
from wsopt.emit.instructions import arrive, stage, write
from wsopt.emit.operations import Operations, sources
from wsopt.emit.plan import KernelPlan
from wsopt.program.program import OpKind, TileOp
from wsopt.schedule.types import PartitionRole
from wsopt.tensors.views import K_BLOCK


def body(plan: KernelPlan, called: set[str]) -> str:
    """All that the role does for a tile; notes in `called` what that calls of the kernel's own functions."""
    lines = [*_k_block(plan, called), "step += 1"]
    return "for _ in range(k_iterations):\n" + text.block(write(lines))


def _k_block(plan: KernelPlan, called: set[str]) -> Iterator[str]:
    """The operations of a K-block in their scheduled order, each slot waited for once."""
    met = set[str]()
    for op in _ordered(plan):
        operations = _operations(plan, op)
        if op.kind is OpKind.RELEASE:
            yield operations.ring_handed_back(op).release("step")
            continue
        for ring in map(operations.ring, op.inputs):
            if ring.name not in met:
                yield ring.wait_full("step")
            met.add(ring.name)
        yield from map(str, operations.arithmetic(op, lambda _: 0, "step", masked=False))
        called |= operations.writer.called
        assert op.output is not None, "what is computed apart is left in a slot"
        filled = operations.ring(op.output)
        if filled.name not in met:
            yield filled.wait_empty("step")
        met.add(filled.name)
        yield stage(operations.slot(op.output, "step"), plan.value(op.items[-1].name))
        yield arrive(filled.full("step"))


def _ordered(plan: KernelPlan) -> list[TileOp]:
    """The role's operations in the order in which its thread meets them."""
    placed = plan.verified.schedule.of(f"{PartitionRole.TRANSFORM}0")
    return [
        plan.program.named(one.op) for one in sorted(placed, key=lambda one: (one.stage, one.cycle, one.op))
    ]


def _operations(plan: KernelPlan, op: TileOp) -> Operations:
    """The writer of an operation, for the rows of its consumer."""
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
    return Operations(plan, writer, index=str(op.id.instance))
