"""Conditions that a program's schedule is asked to meet: what rules them out, what they bound, the constraint of an
overlap. Rings and epilogue buffers have what is asked for by the domains of their variables.
"""

from __future__ import annotations

from wsopt.machine.types import Machine
from wsopt.program.conditions import EVERY_RING, Conditions, Overlap
from wsopt.program.limits import MOST_SLOTS
from wsopt.program.program import OpKind, TileProgram
from wsopt.schedule import budget, memory
from wsopt.solve.variables import Model


def unmet(program: TileProgram, machine: Machine) -> str:
    """The program's condition that its structure cannot meet, with the budget and its numbers; empty if none."""
    asked, rings = program.conditions, [plan.name for plan in program.rings]
    if not asked:
        return ""
    if not budget.buffer_options(program):
        return f"epilogue buffers: no choice of them has {Conditions(buffers=asked.buffers).text}"
    if not rings and (asked.slots or asked.loaders):
        return "rings: the loop has none, for threads read what it takes"
    strange = [name for name, _ in asked.slots if name != EVERY_RING and name not in rings]
    if strange:
        return f"rings: there is no {strange[0]}; the loop's rings are {', '.join(rings)}"
    most = budget.most_loaders(program)
    if asked.loaders > most:
        return f"emitter.v1: {asked.loaders} loading warps, a block of this loop has {most} at most"
    if asked.overlap is not Overlap.ANY and not program.first_products:
        return "overlap: the loop has no product that anything waits for"
    return _too_deep(program, machine, {name: asked.slots_of(name) for name in rings}) if rings else ""


def _too_deep(program: TileProgram, machine: Machine, asked: dict[str, int]) -> str:
    """Why rings cannot have the slots asked for, where 0 is any number; empty if they can."""
    second = program.conditions.overlap is Overlap.NEXT_FIRST and any(
        reader.kind is OpKind.RELEASE for _, reader in program.first_products
    )
    slots = {name: count or max(program.structure.retained, 1 + second) for name, count in asked.items()}
    if second and min(slots.values()) < 2:
        return (
            "rings: the next K-block's product needs a slot before this one's is handed back, so 2 at least"
        )
    if min(slots.values()) < program.structure.retained:
        return f"rings: {program.structure.retained} parts of rows are retained, so as many slots at least"
    need = memory.shared_memory(program, tuple(slots.values()), budget.least_buffers(program))
    if need > (has := memory.shared_capacity(program.structure, machine)):
        told = ", ".join(f"{name} of {count}" for name, count in slots.items())
        return f"shared memory: {told} takes {need} bytes, a block has {has}"
    most = max(slots.values())
    return f"emitter.v1: a ring of {most} slots, the most are {MOST_SLOTS}" if most > MOST_SLOTS else ""


def k_block_alone(program: TileProgram) -> int:
    """Cycles of a consumer's K-block from its first product to its end, at least, where K-blocks are asked to follow
    each other; else 0. No II is shorter.
    """
    if program.conditions.overlap is not Overlap.NONE:
        return 0
    starts = {product.id: 0 for product, _ in program.first_products}
    for _ in program.ops:  # a path has no more operations than there are
        for edge in program.edges:
            if edge.source in starts and not edge.distance:
                ready = starts[edge.source] + program.op(edge.source).latency
                starts[edge.target] = max(starts.get(edge.target, 0), ready)
    ops = ((program.op(one), start) for one, start in starts.items())
    return max((start + (op.latency if op.kind is OpKind.MMA else op.issue) for op, start in ops), default=0)


def overlap(m: Model) -> None:
    """The overlap that is asked for: the next K-block's first product is issued before what reads this one's begins,
    or when all that a consumer does for this one has ended.
    """
    asked = m.program.conditions.overlap
    if asked is Overlap.ANY:
        return
    for product, reader in m.program.first_products:
        if asked is Overlap.NEXT_FIRST:
            m.cp.add(m.start[product.id] + m.ii <= m.start[reader.id])
            continue
        for other in m.program.loop:
            if other.consumer == product.consumer and other is not product:
                ends = other.latency if other.kind is OpKind.MMA else other.issue
                m.cp.add(m.start[product.id] + m.ii >= m.start[other.id] + m.t(ends))
