"""How long a slot of a ring is taken: from its first copy until its readers have handed it back."""

from __future__ import annotations

import math

from wsopt.machine.types import Machine
from wsopt.program.program import OpKind, RingPlan, TileProgram


def releases(program: TileProgram, product: str) -> list[str]:
    """The operations that hand back what a product has read."""
    found = [e.target for e in program.edges if e.source == product]
    return [name for name in found if program.op(name).kind is OpKind.RELEASE]


def slot_lifetime(program: TileProgram, machine: Machine, plan: RingPlan) -> int:
    """Cycles from the first load of a slot to its return, at least: copy, product or arithmetic, release."""
    lifetimes = [0]
    handover = math.ceil(machine.latency.mbarrier_wake)
    for edge in program.edges:
        source, target = program.op(edge.source), program.op(edge.target)
        if source.name in plan.loads:
            for name in releases(program, target.name):
                release = program.op(name)
                lifetimes.append(source.latency + handover + target.latency + release.issue + release.latency)
    return max(lifetimes)


def ring_bound(program: TileProgram, machine: Machine, plan: RingPlan, depth: int) -> int:
    """Cycles an iteration that a ring of this depth takes: the least lives of an iteration's K-blocks over it.

    A slot of K-block c goes on to K-block (c + depth) mod copies, (c + depth) div copies iterations later. That
    renames the K-blocks, and the iterations add up to `depth`: so the K-blocks' lives add up to at most depth * II,
    at odd depths too, where the life of one K-block may be longer and that of another has to be shorter.
    """
    return math.ceil(slot_lifetime(program, machine, plan) * program.structure.copies / depth)
