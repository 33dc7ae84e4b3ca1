"""Lower bounds of a structure's time, and budgets that rule it out, from unit loads and recurrences alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wsopt.machine.types import Machine
from wsopt.perf import timing
from wsopt.perf.contention import contended_interval, releases, ring_bound
from wsopt.perf.effective_ii import effective_iis, ramps
from wsopt.perf.epilogue import Epilogues, epilogues
from wsopt.perf.paths import Paths, paths_of
from wsopt.program.facts import Product
from wsopt.program.known import of_loop
from wsopt.program.limits import Limit
from wsopt.program.program import Iteration, OpKind, TileProgram
from wsopt.schedule import budget, memory
from wsopt.schedule.types import EpilogueBuffers
from wsopt.solve.conditions import k_block_alone, unmet
from wsopt.tensors.parts import parts

II_SLACK = 4
"""A schedule whose II is more than this many times its bound is of no use: another structure is better."""

_BESIDE_ACCUMULATORS = 32
"""Registers beside one tensor instruction's accumulators that ptxas has to start from: with 128 of them it
refused 152 and took 160 (`learn.py`, 2026-11).
"""


@of_loop
def unit_load(program: TileProgram) -> int:
    """Cycles an iteration for which the busiest unit, or the busiest partition's thread, is held, at least.

    Loading warps divide the rings: one of them has at least the copies of the busiest ring, and its share of all.
    """
    copies = [[program.op(load) for load in plan.loads] for plan in budget.copied_rings(program)]
    rings = [sum(op.issue for op in own if budget.takes_time(program, op)) for own in copies]
    loading = max(*rings, math.ceil(sum(rings) / budget.most_loaders(program)), 0) if rings else 0
    loaders = {name for op in program.of(OpKind.TMA_LOAD) for name in budget.issuers(program, op)}
    others = (held for name, held in budget.holders(program).items() if name not in loaders)
    return max(1, loading, *(sum(cycles for _, cycles in held) for held in others))


@of_loop
def recurrence(program: TileProgram) -> int:
    """Cycles an iteration that a cycle of dependences takes: latency around it over its distance.

    The loop's recurrences are pairs: a product and the operation that empties its registers for the next.
    """
    latency = {op.id: op.latency for op in program.loop}
    forth = {(edge.target, edge.source): latency[edge.source] for edge in program.edges if not edge.distance}
    around = (
        (edge.wait(program.op(edge.source)) + forth.get((edge.source, edge.target), 0)) / edge.distance
        for edge in program.edges
        if edge.distance
    )
    return math.ceil(max(around, default=0))


@of_loop
def promotion(program: TileProgram) -> int:
    """Cycles of a pass that partial sums may not outlive: the products before the last, that one's result,
    adding it up and handing back its slot.
    """
    if Limit.SUMS_IN_A_PASS in program.lifted:
        return 0
    products = {op.output: op for op in program.of(OpKind.MMA)}
    pairs = [(products[add.inputs[0]], add) for add in program.of(OpKind.ACCUMULATE)]
    passes = (
        product.copy * product.busy + product.latency + add.issue + releases(program, product.id)[0].issue
        for product, add in pairs
    )
    return max(passes, default=0)


def max_depth(program: TileProgram, machine: Machine, ring: int = 0, most: int = 0) -> int:
    """The deepest ring that shared memory allows beside the fewest buffers, one slot of every other ring among
    them, and the emitter, or if not the emitter `most` slots; 0 if not one slot fits.
    """
    least = budget.least_buffers(program)
    slots = [int(number != ring) for number in range(len(program.rings))]
    empty = memory.shared_memory(program, slots, least)
    slot = memory.shared_memory(program, 1, least) - empty
    plan = program.rings[ring]
    most = budget.SIGNALS if plan.signals else most or budget.most_slots(program)
    most = program.conditions.slots_of(plan.name) or most
    return max(0, min(most, (memory.shared_capacity(program.structure, machine) - empty) // slot))


def depths(program: TileProgram, machine: Machine, ring: int) -> range:
    """The depths that a ring may have: the one that is asked for, or from what it retains up to the deepest."""
    deepest = max_depth(program, machine, ring)
    least = max(1, program.structure.retained)
    return range(deepest if program.conditions.slots_of(program.rings[ring].name) else least, deepest + 1)


def max_depths(program: TileProgram, machine: Machine) -> list[int]:
    """The deepest of each ring, with one slot of every other."""
    return [max_depth(program, machine, number) for number in range(len(program.rings))]


def ii_lower_bound(program: TileProgram, machine: Machine, most: Sequence[int] | None = None) -> int:
    """The least II: unit loads, recurrences, and what the deepest ring allows; `most` are the deepest, if known.

    Of effective II it is the best ring's: of products the deepest, where rows stream one that device memory likes.
    """
    deepest = [max(1, depth) for depth in most or max_depths(program, machine)]
    slots = [ring_bound(program, machine, *one) for one in zip(program.rings, deepest, strict=True)]
    least_depth = max(1, program.structure.retained)
    depths: Sequence[int] = deepest[:1] or (0,)
    if program.iteration is Iteration.TILE and program.rings:
        depths = range(least_depth, deepest[0] + 1)
    effective = min(effective_iis(program, machine, depths), default=0)
    own = unit_load(program), recurrence(program), promotion(program), k_block_alone(program)
    least = max(*own, effective, *slots)
    return math.ceil(least / program.grain) * program.grain


def ii_bounds(program: TileProgram, machine: Machine) -> tuple[int, int]:
    """The range of II that the model looks at."""
    low = ii_lower_bound(program, machine)
    return low, low * II_SLACK


def infeasible(program: TileProgram, machine: Machine, margin: int) -> str:
    """The budget or the condition that rules the structure out, with its numbers; empty if none does."""
    told = unmet(program, machine)
    if told:
        return told
    s, based = program.structure, program.whole.products and Limit.BASE_REGISTERS not in program.lifted
    limits = (
        (
            memory.shared_memory(program, max(1, s.retained), budget.least_buffers(program)),
            memory.shared_capacity(s, machine),
            "shared memory: {} bytes, a block has {}",
        ),
        (
            max(budget.needed_registers(program, margin), machine.setmaxnreg_min_registers),
            budget.consumers_registers(program, machine),
            "registers: a consumer needs {} a thread, it can have {}",
        ),
        (
            program.tensor_columns,
            machine.tensor_memory_columns,
            "tensor memory: {} columns, a block has {}",
        ),
        (
            budget.launched_warps(s, machine),
            machine.max_warps_per_block,
            "warps: {}, a block has at most {}",
        ),
        (
            _widest_product(program) // 2 + _BESIDE_ACCUMULATORS if based else 0,
            budget.base_registers(s, machine),
            "emitter.v1: one tensor instruction needs {} registers, ptxas starts from {}",
        ),
    )
    return next((told.format(need, have) for need, have, told in limits if need > have), "")


def _widest_product(program: TileProgram) -> int:
    """Columns of the widest tensor instruction whose sums are in registers: each part of a product's columns has
    instructions of its own.
    """
    if program.tensor_columns:
        return 0
    columns = {op.counts.columns for op in program.of(OpKind.MMA) if isinstance(op.counts, Product)}
    return max((parts(each)[0].length for each in columns), default=0)


def buffers_with_ends(program: TileProgram, machine: Machine) -> dict[EpilogueBuffers, Epilogues]:
    """The choices of epilogue buffers with the epilogues that they have.

    Inputs that the loading warp brings are left out where the same with the consumer for it is no slower: that takes
    fewer bytes besides.
    """
    ends = {buffers: epilogues(program, machine, buffers) for buffers in budget.buffer_options(program)}

    def beaten(buffers: EpilogueBuffers) -> bool:
        own = ends.get(replace(buffers, inputs_by_loader=False)) if buffers.inputs_by_loader else None
        return own is not None and own.each <= ends[buffers].each and own.last <= ends[buffers].last

    return {buffers: found for buffers, found in ends.items() if not beaten(buffers)}


def _least_ends(program: TileProgram, machine: Machine) -> list[Epilogues]:
    """The shortest epilogues of all choices of buffers: of those under the next tile's products, and of others."""
    found = list(buffers_with_ends(program, machine).values())
    kinds = [[one for one in found if one.under is under] for under in (False, True)]
    return [
        Epilogues(min(one.each for one in kind), min(one.last for one in kind), kind[0].under)
        for kind in kinds
        if kind
    ]


@dataclass(frozen=True, slots=True)
class Room:
    """What a tile program has room for, in whatever order its tiles are taken: the deepest of each ring, the shortest
    epilogues, and the paths of its bytes.
    """

    depths: tuple[int, ...]
    ends: tuple[Epilogues, ...]
    paths: Paths


def room_of(program: TileProgram, machine: Machine) -> Room:
    """The room of a tile program that no budget rules out."""
    ends = tuple(_least_ends(program, machine))
    return Room(tuple(max_depths(program, machine)), ends, paths_of(program, machine))


def lower_bound_us(program: TileProgram, machine: Machine, least: int = 0, room: Room | None = None) -> float:
    """Microseconds that no schedule of this tile program can be faster than, within the model; `least` is a
    further bound of its II, in cycles, `room` its own, if it is known.
    """
    room = room or room_of(program, machine)
    fixed = timing.fixed_parts(program, machine, room.paths)
    contended = contended_interval(program, machine, room.depths)
    ii = max(least, ii_lower_bound(program, machine, room.depths), contended)
    # The shortest iterations outside the steady state are those of the deepest ring, whichever it is. What the tail
    # wave saves on II is the more the shallower the ring, but leaves no iteration shorter than there.
    deepest = ramps(program, machine, max((1, *room.depths)))
    ramp = deepest and replace(deepest, least=ii)
    cycles = min(timing.time_of(program, fixed, machine, e, ramp).at(ii) for e in room.ends)
    return timing.kernel_us(program, machine, fixed, cycles)


def fitted_bound_us(program: TileProgram, machine: Machine, least: int = 0) -> float:
    """The same over all depths of rings and all epilogue buffers that shared memory has room for together: rings that
    are each as deep as they can be seldom fit. It takes as long as dozens of predictions. Infinite if nothing fits.
    """
    own = unit_load(program), recurrence(program), promotion(program), k_block_alone(program)
    fixed, rooms = timing.fixed_parts(program, machine), dict[Epilogues, int]()
    for buffers, ends in buffers_with_ends(program, machine).items():
        room = memory.shared_capacity(program.structure, machine) - memory.shared_memory(program, 0, buffers)
        rooms[ends] = max(room, rooms.get(ends, room))
    best = math.inf
    for deepest, choices in _by_deepest(program, machine, max(least, *own)).items():
        ramp = ramps(program, machine, deepest)
        for ends, room in rooms.items():
            interval = next((interval for interval, used in choices if used <= room), None)
            if interval is not None:
                # Beside the interval the time depends on the deepest ring alone.
                held = ramp and ramp.held_to(interval)
                running = timing.time_of(program, fixed, machine, ends, held).at(interval)
                best = min(best, timing.kernel_us(program, machine, fixed, running))
    return best


def _by_deepest(program: TileProgram, machine: Machine, least: int) -> dict[int, list[tuple[int, int]]]:
    """By the slots of the deepest ring: effective intervals that no schedule goes below, each with the bytes of rings
    that allow it, the least interval first.
    """
    bounds, paced = list[dict[int, tuple[int, int]]](), False
    for number, plan in enumerate(program.rings):
        allowed, slot = depths(program, machine, number), plan.slot_bytes + 2 * memory.BARRIER_BYTES
        own = list(zip(allowed, effective_iis(program, machine, allowed), strict=True))
        paced |= any(ii for _, ii in own)
        bounds.append({d: (max(ii, ring_bound(program, machine, plan, d)), slot * d) for d, ii in own})
    found: dict[int, list[tuple[int, int]]] = {}
    for slots in itertools.product(*bounds) if paced else _cheapest(bounds):
        rings = [ring[depth] for ring, depth in zip(bounds, slots, strict=True)]
        interval = max(least, contended_interval(program, machine, slots), *(ii for ii, _ in rings), 0)
        found.setdefault(max(slots, default=0), []).append((interval, sum(taken for _, taken in rings)))
    return {deepest: sorted(choices) for deepest, choices in found.items()}


def _cheapest(bounds: Sequence[Mapping[int, tuple[int, int]]]) -> Iterator[tuple[int, ...]]:
    """Depths of rings whose bounds are all that an interval depends on: for each number of slots of the deepest ring,
    and each interval that some ring allows, those that allow it in the fewest bytes. All others take as many, or
    allow no less: of six rings they are hundreds of thousands.
    """
    if not bounds:
        yield ()
        return
    intervals = sorted({bound for ring in bounds for bound, _ in ring.values()})
    for deepest, most in itertools.product(sorted({depth for ring in bounds for depth in ring}), intervals):
        least = [
            min((d for d, (bound, _) in ring.items() if d <= deepest and bound <= most), default=0)
            for ring in bounds
        ]
        if not all(least):
            continue
        there = [number for number, ring in enumerate(bounds) if deepest in ring]
        for number in there if deepest not in least else there[:0]:
            yield *least[:number], deepest, *least[number + 1 :]
        if deepest in least:
            yield tuple(least)
