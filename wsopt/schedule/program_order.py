"""Program order: in which order a partition's threads issue the operations of its loop, by the emitted text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wsopt.program.ids import OpId, OpKind, ValueKind
from wsopt.program.program import Edge, TileOp
from wsopt.program.types import Structure
from wsopt.schedule.passes import in_pass
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule

_ARITHMETIC = (OpKind.ELEMENTWISE, OpKind.RESCALE, OpKind.ACCUMULATE)


@dataclass(frozen=True, slots=True)
class Step:
    """An operation in program order: pass n has it for iteration n - `stage`."""

    op: TileOp
    stage: int


def consumer_order(verified: VerifiedSchedule, *, overlapped: bool = True) -> tuple[Step, ...]:
    """The operations of the first consumer's pass in program order; all consumers do the same.

    Slots that only a synchronous read uses are handed back right behind that read: nothing waits for what the
    schedule puts between the two.
    """
    placed, ii = in_pass(verified, f"{PartitionRole.CONSUMER}0"), verified.schedule.ii
    if not overlapped:
        alone = sorted(placed, key=lambda p: (p.stage * ii + p.cycle, p.op))
        placed = tuple(replace(p, stage=0) for p in alone)
    found, behind = list[Step](), 0
    for step in (Step(verified.program.named(p.op), p.stage) for p in placed):
        if step.op.kind is OpKind.RELEASE and not step.op.inputs and behind:
            found.insert(behind, step)
            continue
        found.append(step)
        if step.op.kind is OpKind.ELEMENTWISE and not step.op.items:
            behind = len(found)
    return tuple(found)


def one_by_one(verified: VerifiedSchedule, partition: str) -> tuple[TileOp, ...]:
    """The operations of a partition that does one K-block after the other, in program order."""
    placed = sorted(verified.schedule.of(partition), key=lambda one: (one.stage, one.cycle, one.op))
    return tuple(verified.program.named(one.op) for one in placed)


def begins_before_return(order: Sequence[Step], step: Step, after: Step | None, s: Structure) -> bool:
    """Whether a product only begins before its thread comes to `after`, and the rest is issued behind that: the
    return of a slot of the iteration before, in a loop of products alone whose structure has it so.

    For one of an earlier iteration products between would be counted, which the prologue has whole and later
    passes in parts: no steady state.
    """
    alone = all(one.op.kind in (OpKind.MMA, OpKind.RELEASE) for one in order)
    if not s.early_release or not alone or after is None or after.op.kind is not OpKind.RELEASE:
        return False
    return after.stage == step.stage + 1


def goes_on(order: Sequence[Step], step: Step, edges: Sequence[Edge]) -> bool:
    """Whether an operation is arithmetic behind arithmetic, and its thread waits for nothing between the two: the
    compiler mixes their instructions.
    """
    place = order.index(step)
    pair = order[max(0, place - 1) : place + 1]
    if not all(one.op.kind in _ARITHMETIC for one in pair) or len(pair) < 2:
        return False
    reads = any(value.kind is ValueKind.TILE for value in step.op.inputs)
    waits = _products(step, edges)
    return not reads and all(_met(order, place, edges, product, behind) for product, behind in waits)


def _products(step: Step, edges: Sequence[Edge]) -> list[tuple[OpId, int]]:
    """The products that a step waits for, and how many passes ago their iterations were at stage 0."""
    into = (edge for edge in edges if edge.target == step.op.id and edge.source.kind is OpKind.MMA)
    return [(edge.source, step.stage + edge.distance) for edge in into]


def _met(order: Sequence[Step], place: int, edges: Sequence[Edge], product: OpId, behind: int) -> bool:
    """Whether an earlier step has waited for a product: one before it in the pass, or any in the pass before."""
    return any(
        source == product and passes + (at >= place) <= behind
        for at, one in enumerate(order)
        for source, passes in _products(one, edges)
    )
