"""Lower bounds of a structure's time, and budgets that rule it out, from unit loads and recurrences alone."""

from __future__ import annotations

import math
from dataclasses import replace

from wsopt.machine.types import Machine
from wsopt.perf import timing
from wsopt.perf.contention import contended_interval
from wsopt.perf.effective_ii import effective_ii
from wsopt.perf.epilogue import Epilogues, epilogues
from wsopt.perf.held import held_cycles, issue_cycles, releases, ring_bound
from wsopt.perf.ramps import Ramps, ramps
from wsopt.program.conditions import EVERY_RING, Conditions, Overlap
from wsopt.program.program import Iteration, OpKind, TileProgram
from wsopt.schedule import budget

II_SLACK = 4
"""A schedule whose II is more than this many times its bound is of no use: another structure is better."""

_BESIDE_ACCUMULATORS = 32
"""Registers beside one tensor instruction's accumulators that ptxas has to start from: with 128 of them it
refused 152 and took 160 (`learn.py`, 2026-11).
"""


def unit_load(program: TileProgram) -> int:
    """Cycles an iteration for which the busiest unit, or the busiest consumer's issue, is held."""
    loads = sum(op.issue for op in program.loop if op.kind is OpKind.TMA_LOAD)
    return max(*held_cycles(program).values(), *issue_cycles(program).values(), loads, 1)


def recurrence(program: TileProgram) -> int:
    """Cycles an iteration that a cycle of dependences takes: latency around it over its distance.

    The loop's recurrences are pairs: a product and the operation that empties its registers for the next.
    """
    latency = {op.id: op.latency for op in program.loop}
    back = [edge for edge in program.edges if edge.distance > 0]
    forward = {(e.source, e.target) for e in program.edges if e.distance == 0}
    bounds = [0]
    for edge in back:
        around = latency[edge.source]
        if edge.source != edge.target and (edge.target, edge.source) in forward:
            around += latency[edge.target]
        bounds.append(math.ceil(around / edge.distance))
    return max(bounds)


def promotion(program: TileProgram) -> int:
    """Cycles of a pass that partial sums may not outlive: the products before the last, that one's result,
    adding it up and handing back its slot.
    """
    products = {op.output: op for op in program.loop if op.kind is OpKind.MMA}
    adds = [op for op in program.loop if op.kind is OpKind.ACCUMULATE]
    found = [0]
    for add in adds:
        product = products[add.inputs[0]]
        release = releases(program, product.id)[0]
        found.append(product.copy * product.busy + product.latency + add.issue + release.issue)
    return max(found)


def alone(program: TileProgram) -> int:
    """Cycles of a consumer's K-block from its first product to its end, at least, where K-blocks are asked to follow
    each other; else 0.
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
    return max(start + (op.latency if op.kind is OpKind.MMA else op.issue) for op, start in ops)


def max_depth(program: TileProgram, machine: Machine, ring: int = 0) -> int:
    """The deepest ring that shared memory allows beside the fewest buffers, one slot of every other ring among
    them, and the emitter; 0 if not one slot fits.
    """
    least = budget.least_buffers(program)
    slots = [int(number != ring) for number in range(len(program.rings))]
    empty = budget.shared_memory(program, slots, least)
    slots[ring] = 1
    slot = budget.shared_memory(program, slots, least) - empty
    most = program.conditions.slots_of(program.rings[ring].name) or budget.MOST_SLOTS
    return max(0, min(most, (machine.shared_memory_per_block_bytes - empty) // slot))


def depths(program: TileProgram, machine: Machine, ring: int) -> range:
    """The depths that a ring may have: the one that is asked for, or all up to the deepest."""
    deepest = max_depth(program, machine, ring)
    return range(deepest if program.conditions.slots_of(program.rings[ring].name) else 1, deepest + 1)


def max_depths(program: TileProgram, machine: Machine) -> list[int]:
    """The deepest of each ring, with one slot of every other."""
    return [max_depth(program, machine, number) for number in range(len(program.rings))]


def ii_lower_bound(program: TileProgram, machine: Machine) -> int:
    """The least II: unit loads, recurrences, and what the deepest ring allows."""
    slots = [
        ring_bound(program, machine, plan, max(1, deepest))
        for plan, deepest in zip(program.rings, max_depths(program, machine), strict=True)
    ]
    least = max(
        unit_load(program),
        recurrence(program),
        promotion(program),
        alone(program),
        _best_effective_ii(program, machine),
        *slots,
    )
    return math.ceil(least / program.grain) * program.grain


def _best_effective_ii(program: TileProgram, machine: Machine) -> int:
    """The effective II of the best ring: of products the deepest, where rows stream one that device memory likes."""
    if not program.rings:
        return 0
    deepest = max(1, max_depth(program, machine))
    depths = range(1, deepest + 1) if program.iteration is Iteration.TILE else (deepest,)
    return min(effective_ii(program, machine, depth) for depth in depths)


def ii_bounds(program: TileProgram, machine: Machine) -> tuple[int, int]:
    """The range of II that the model looks at."""
    low = ii_lower_bound(program, machine)
    return low, low * II_SLACK


def unmet(program: TileProgram, machine: Machine) -> str:
    """The program's condition that its structure cannot meet, with the budget and its numbers; empty if none."""
    asked, rings = program.conditions, [plan.name for plan in program.rings]
    if not asked:
        return ""
    if not budget.buffer_options(program):
        return f"epilogue buffers: no choice of them has {Conditions(buffers=asked.buffers).text}"
    strange = [name for name, _ in asked.slots if name != EVERY_RING and name not in rings]
    if strange:
        return f"rings: there is no {strange[0]}; the loop's rings are {', '.join(rings)}"
    if asked.overlap is not Overlap.ANY and not program.first_products:
        return "overlap: no product of the loop begins a K-block, or nothing waits for one"
    second = asked.overlap is Overlap.NEXT_FIRST and _reads_until_release(program)
    slots = [asked.slots_of(name) or 1 + second for name in rings]
    if second and min(slots) < 2:
        return (
            "rings: the next K-block's product needs a slot before this one's is handed back, so 2 at least"
        )
    need = budget.shared_memory(program, slots, budget.least_buffers(program))
    have = machine.shared_memory_per_block_bytes
    if need > have:
        held = ", ".join(f"{name} of {counted}" for name, counted in zip(rings, slots, strict=True))
        return f"shared memory: {held} takes {need} bytes, a block has {have}"
    if max(slots) > budget.MOST_SLOTS:
        return f"emitter.v1: a ring of {max(slots)} slots, the emitter has 1 to {budget.MOST_SLOTS}"
    return ""


def _reads_until_release(program: TileProgram) -> bool:
    """Whether what waits for a product is the hand-back of its own slot."""
    return any(reader.kind is OpKind.RELEASE for _, reader in program.first_products)


def infeasible(program: TileProgram, machine: Machine, margin: int) -> str:
    """The budget that rules the structure out, with its numbers; empty if none does."""
    s = program.structure
    told = unmet(program, machine)
    if told:
        return told
    if max_depth(program, machine) < 1:
        need = budget.shared_memory(program, 1, budget.least_buffers(program))
        return f"shared memory: {need} bytes, a block has {machine.shared_memory_per_block_bytes}"
    need = budget.needed_registers(program, margin)
    have = budget.consumer_registers(s, machine)
    if need > have:
        return f"registers: a consumer needs {need} a thread, it can have {have}"
    if program.tensor_columns > machine.tensor_memory_columns:
        have = machine.tensor_memory_columns
        return f"tensor memory: {program.tensor_columns} columns, a block has {have}"
    warps = budget.launched_warps(s, machine)
    if warps > machine.max_warps_per_block:
        return f"warps: {warps}, a block has at most {machine.max_warps_per_block}"
    if not program.whole.products:
        return ""
    operand = s.columns // 2 + _BESIDE_ACCUMULATORS
    base = budget.base_registers(s, machine)
    if operand > base:
        return f"emitter.v1: one tensor instruction needs {operand} registers, ptxas starts from {base}"
    return ""


def most_ahead(program: TileProgram, machine: Machine, ii: float) -> Ramps | None:
    """The shortest iterations outside the steady state that any ring has, where that takes `ii`.

    They are those of the deepest ring. What the tail wave saves on II is the more the shallower the ring, but
    leaves no iteration shorter than there.
    """
    deepest = ramps(program, machine, max(1, max_depth(program, machine)))
    return deepest and replace(deepest, least=ii)


def _least_ends(program: TileProgram, machine: Machine) -> list[Epilogues]:
    """The shortest epilogues of all choices of buffers: of those under the next tile's products, and of others."""
    found = [epilogues(program, machine, buffers) for buffers in budget.buffer_options(program)]
    kinds = [[one for one in found if one.under is under] for under in (False, True)]
    return [
        Epilogues(min(one.each for one in kind), min(one.last for one in kind), kind[0].under)
        for kind in kinds
        if kind
    ]


def lower_bound_us(program: TileProgram, machine: Machine, least: int = 0) -> float:
    """Microseconds that no schedule of this tile program can be faster than, within the model; `least` is a
    further bound of its II, in cycles.
    """
    fixed = timing.fixed_parts(program, machine)
    contended = contended_interval(program, machine, max_depths(program, machine))
    ii = max(least, ii_lower_bound(program, machine), contended)
    ramp = most_ahead(program, machine, ii)
    cycles = min(
        timing.time_of(program, fixed, machine, e, ramp).at(ii) for e in _least_ends(program, machine)
    )
    cycles += timing.power_cycles(fixed, machine, cycles)
    floors = timing.memory_floors_us(program, machine)
    return max(machine.seconds(cycles) * 1e6, *floors) + machine.kernel_launch_us
