"""The loops of a plan's consumer: one over all K-blocks of a tile, some where masks are at work, passes over rows."""

from __future__ import annotations

from dataclasses import replace

from wsopt.emit import tensor_values
from wsopt.emit.consumer import Consumer
from wsopt.emit.instructions import Loop
from wsopt.emit.operations import Operations
from wsopt.emit.operations_of import operations_of
from wsopt.emit.plan import KernelPlan
from wsopt.emit.row_passes import loops_over_rows
from wsopt.emit.stretches import Stretch
from wsopt.emit.unroll import unrolled
from wsopt.schedule.passes import in_pass
from wsopt.schedule.types import PartitionRole


def consumer_of(plan: KernelPlan) -> Consumer:
    """A consumer with the loops over a tile's K-blocks, one after the other. What cannot run at any extents is left
    out.
    """
    consumer = Consumer(plan, operations_of(plan), plan.live)
    if not plan.in_loop:
        return consumer
    if plan.program.long_rows:
        loops = loops_over_rows(consumer.operations)
        return replace(consumer, stretches=tuple(Stretch("0", "ROW_PARTS", loop) for loop in loops))
    plain = _loop(consumer.operations)
    if plan.program.bounds.every or plan.owes_ends:
        return _with_masks(replace(consumer, least=plain.least), plain)
    passes = plan.k_blocks if plan.s.copies == 1 else f"{plan.k_blocks} // {plan.s.copies}"
    end = f"{passes} - {plain.peeled}" if plain.peeled else passes
    only = Stretch("begin", "end", plain) if plan.ranged else Stretch("0", end, plain)
    return replace(consumer, least=plain.least, stretches=(only,))


def _with_masks(consumer: Consumer, plain: Loop) -> Consumer:
    """The consumer with the loops of a tile of which masks touch some K-blocks: for those at its beginning that masks
    touch, the `plain` one for those that none does, and one for the last ones.
    """
    plan, live = consumer.plan, consumer.live
    overlapped = any(p.stage for p in in_pass(plan.verified, f"{PartitionRole.CONSUMER}0"))
    masked = _loop(consumer.operations, masked=True)
    if live.most_whole < (plain.least if overlapped else 1):
        return replace(consumer, stretches=(Stretch("begin", "end", masked),))
    has_lower = any(bound.stream > 0 for bound in plan.program.bounds.every)
    start, behind = ("whole_begin", "whole_end") if has_lower else ("begin", "gl.maximum(whole_end, begin)")
    if live.most_whole <= plain.first:
        plain = replace(plain, steady=())
    found = [Stretch("begin", "whole_begin", masked)] if live.begins else []
    found.append(Stretch(start, "whole_end", plain, guarded=overlapped))
    # Whole K-blocks may be too few for the overlapped loop.
    if live.ends or (overlapped and plain.least > max(1, live.least_whole)):
        found.append(Stretch("whole_end" if overlapped else behind, "end", masked))
    short = overlapped and plain.least > live.least_whole
    return replace(consumer, stretches=tuple(found), may_fall_short=short)


def _loop(operations: Operations, *, masked: bool = False) -> Loop:
    """A consumer's loop as scheduled, or with masks, one K-block after the other."""
    if operations.plan.values_apart:
        return tensor_values.passes(operations, masked=masked)
    return unrolled(operations, masked=masked, overlapped=not masked)
