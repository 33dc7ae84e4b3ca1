"""Cycles for which an iteration holds units, threads and slots of rings, and the norm of such bounds."""

from __future__ import annotations

import math

from wsopt.machine.types import Machine
from wsopt.program.ids import OpId, OpKind
from wsopt.program.program import RingPlan, TileOp, TileProgram
from wsopt.program.units import UNITS


def held_cycles(program: TileProgram) -> dict[str, int]:
    """Cycles an iteration for which each unit is held."""
    return {unit: sum(c for op in program.loop for held, c in op.held if held == unit) for unit in UNITS}


def issue_cycles(program: TileProgram) -> dict[int, int]:
    """Cycles an iteration for which each consumer's own thread is held."""
    return {consumer: sum(op.issue for op in own) for consumer, own in program.by_consumer.items()}


def norm(parts: tuple[float, ...], knee: float) -> float:
    """p-norm of contending lower bounds, with the exponent `knee`, in their unit. The largest is positive.

    Two equal bounds cost more than either alone; a dominant one costs itself.
    """
    largest = max(parts)
    return float(largest * sum([(part / largest) ** knee for part in parts]) ** (1 / knee))


def releases(program: TileProgram, product: OpId) -> list[TileOp]:
    """The operations that hand back what a product has read."""
    found = {e.target for e in program.edges if e.source == product and e.target.kind is OpKind.RELEASE}
    return [op for op in program.ops if op.id in found]


def slot_lifetime(program: TileProgram, machine: Machine, plan: RingPlan) -> int:
    """Cycles from the first load of a slot to its return, at least: copy, product or arithmetic, release."""
    lifetimes = [0]
    handover = math.ceil(machine.latency.mbarrier_wake)
    for edge in program.edges:
        if edge.source in plan.loads:
            source, target = program.op(edge.source), program.op(edge.target)
            before = source.latency + handover + target.latency
            lifetimes += [before + back.issue + back.latency for back in releases(program, target.id)]
    return max(lifetimes)


def ring_bound(program: TileProgram, machine: Machine, plan: RingPlan, depth: int) -> int:
    """Cycles an iteration that a ring of this depth takes: the least lives of an iteration's K-blocks over it.

    A slot of K-block c goes on to K-block (c + depth) mod copies, (c + depth) div copies iterations later. That
    renames the K-blocks, and the iterations add up to `depth`: so the K-blocks' lives add up to at most depth * II,
    at odd depths too, where the life of one K-block may be longer and that of another has to be shorter.
    """
    return math.ceil(slot_lifetime(program, machine, plan) * program.structure.copies / depth)
