"""The checker: re-derives every property of a schedule from its tile program, without the solver.

One small check a property; each yields faults with the numbers that show them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from wsopt.entries import Table
from wsopt.errors import CheckError
from wsopt.machine.types import Machine
from wsopt.perf import timing
from wsopt.perf.effective_ii import effective_ii
from wsopt.program.program import Iteration, Live, OpKind, RingPlan, TileProgram
from wsopt.program.types import Space
from wsopt.program.units import UNITS
from wsopt.schedule import budget
from wsopt.schedule.types import PartitionRole, Schedule
from wsopt.schedule.verified import SEAL, VerifiedSchedule

Faults = Iterator[str]


def _placement(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """Every operation of the loop once, inside an iteration, on a partition that exists."""
    wanted = sorted(str(op.id) for op in program.loop)
    found = sorted(placed.op for placed in schedule.placed)
    if wanted != found:
        yield f"operations placed {found}, the loop has {wanted}"
        return
    names = {partition.name for partition in schedule.partitions}
    for placed in schedule.placed:
        if placed.partition not in names:
            yield f"{placed.op} is on {placed.partition}, there are {sorted(names)}"
        if not (0 <= placed.cycle < schedule.ii and placed.stage >= 0):
            yield f"{placed.op} at stage {placed.stage} cycle {placed.cycle} is outside an II of {schedule.ii}"
        consumer = program.named(placed.op).consumer
        if consumer is not None and placed.partition != budget.issuer(program, consumer):
            yield f"{placed.op} belongs to consumer {consumer} and is on {placed.partition}"


def _dependences(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """start(v) + distance * II >= start(u) + latency, with the barrier's hand-over after a copy."""
    for edge in program.edges:
        source = program.op(edge.source)
        wait = math.ceil(machine.latency.mbarrier_wake) if source.kind is OpKind.TMA_LOAD else 0
        ready = schedule.start(edge.source) + source.latency + wait
        begins = schedule.start(edge.target) + edge.distance * schedule.ii
        if begins < ready:
            yield f"{edge.target} starts at {begins}, {edge.source} is ready at {ready}"


def _overlap(a: int, size_a: int, b: int, size_b: int, ii: int) -> bool:
    """Whether [a, a + size_a) and [b, b + size_b) meet modulo ii."""
    return (b - a) % ii < size_a or (a - b) % ii < size_b


def _units(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """No two operations hold a unit at once, modulo II."""
    for unit in UNITS:
        held = [(op.id, cycles) for op in program.loop for held, cycles in op.held if held == unit]
        if sum(cycles for _, cycles in held) > schedule.ii:
            yield f"{unit} is asked for {sum(c for _, c in held)} cycles of an II of {schedule.ii}"
        for (one, first), (other, second) in combinations(held, 2):
            a, b = schedule.place(one).cycle, schedule.place(other).cycle
            if _overlap(a, first, b, second, schedule.ii):
                yield f"{one} at {a} for {first} and {other} at {b} for {second} share {unit}"


def _issue(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """A partition issues one operation at a time."""
    for partition in schedule.partitions:
        for one, other in combinations(schedule.of(partition.name), 2):
            first, second = program.named(one.op), program.named(other.op)
            if not (first.issue and second.issue):
                continue
            if _overlap(one.cycle, first.issue, other.cycle, second.issue, schedule.ii):
                yield f"{partition.name} issues {one.op} at {one.cycle} and {other.op} at {other.cycle} at once"


def _rings(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """A slot is handed back before the copies of the K-block that takes it next are issued."""
    if [name for name, _ in schedule.rings] != [plan.name for plan in program.rings]:
        yield f"rings {schedule.rings}, the tile program has {[plan.name for plan in program.rings]}"
        return
    for plan in program.rings:
        depth = schedule.depth(plan.name)
        if depth > budget.MOST_SLOTS:
            yield f"emitter.v1: {plan.name} has {depth} slots, at most {budget.MOST_SLOTS}"
        if depth < 1:
            yield f"{plan.name} has {depth} slots"
            continue
        effective = effective_ii(program, machine, depth)
        if schedule.ii < effective:
            yield f"II is {schedule.ii}, {plan.name} with {depth} slots has an effective II of {effective}"
        k_blocks = _k_block_starts(schedule, program, plan)
        for release in plan.releases:
            op = program.op(release)
            freed = schedule.start(release) + op.issue + op.latency
            later, k_block = budget.next_in_slot(op.copy, depth, program.structure.copies)
            issued, again = min(k_blocks[op.copy]), min(k_blocks[k_block]) + later * schedule.ii
            if freed > again:
                lives, allowed = freed - issued, again - issued
                yield f"a slot of {plan.name} lives {lives} cycles, {depth} slots allow {allowed}"


def _k_block_starts(schedule: Schedule, program: TileProgram, plan: RingPlan) -> list[list[int]]:
    """When the loads of each K-block of an iteration are issued."""
    starts: list[list[int]] = [[] for _ in range(program.structure.copies)]
    for load in plan.loads:
        starts[program.op(load).copy].append(schedule.start(load))
    return starts


def _shared_memory(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """Shared memory is what the buffers add up to, and fits a block."""
    if schedule.buffers not in budget.buffer_options(program):
        yield f"{schedule.buffers} for {program.epilogue.stores} stores of {program.structure.subtiles} subtiles"
    if len(schedule.rings) != len(program.rings):
        return  # another check's
    used = budget.shared_memory(program, [slots for _, slots in schedule.rings], schedule.buffers)
    if used != schedule.shared_memory_bytes:
        yield f"shared memory is given as {schedule.shared_memory_bytes} bytes, the buffers take {used}"
    if used > machine.shared_memory_per_block_bytes:
        yield f"shared memory: {used} bytes, a block has {machine.shared_memory_per_block_bytes}"


def _tensor_memory(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """The sets of sums are as many as a block may keep, and fit its tensor memory."""
    sets, columns = schedule.buffers.sums, sum(v.shape[1] for v in program.values if v.space is Space.TENSOR)
    if sets < 1 or (sets > 1 and not columns):
        yield f"{sets} sets of sums, with {columns} columns of tensor memory each"
    if sets * columns > machine.tensor_memory_columns:
        yield f"tensor memory: {sets * columns} columns, a block has {machine.tensor_memory_columns}"


def _staging(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """Where rows stream, a staging buffer was read before it is written again."""
    for op in program.loop:
        held = schedule.staging * schedule.ii
        if op.kind is OpKind.TMA_STORE and op.latency > held:
            yield f"{op.id} holds a staging buffer for {op.latency} cycles, it is written again after {held}"


def _partitions(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """As many consumers as the structure says, each of its warps, one loader, a warp that issues products where sums
    are in tensor memory, and store warps for all or none.
    """
    s = program.structure
    if schedule.structure != s:
        yield f"structure {schedule.structure}, the tile program was cut to {s}"
    consumers = [p for p in schedule.partitions if p.role is PartitionRole.CONSUMER]
    if [(p.index, p.warps) for p in consumers] != [(i, s.consumer_warps) for i in range(s.consumers)]:
        yield f"consumers {consumers}, the structure has {s.consumers} of {s.consumer_warps} warps"
    loaders = [p for p in schedule.partitions if p.role is PartitionRole.LOADER]
    if len(loaders) != 1:
        yield f"{len(loaders)} loaders"
    elif (loaders[0].index, loaders[0].warps) != (0, budget.LOADER_WARPS):
        yield f"{loaders[0]}, the emitter has loader 0 of {budget.LOADER_WARPS} warps"
    mma_warps = [(p.index, p.warps) for p in schedule.partitions if p.role is PartitionRole.MMA_WARP]
    if mma_warps != [(0, budget.MMA_WARPS)] * bool(program.tensor_columns):
        yield f"warps that issue products {mma_warps}, with sums in {program.tensor_columns} columns of tensor memory"
    store_warps = [(p.index, p.warps) for p in schedule.partitions if p.role is PartitionRole.STORE_WARP]
    asked = s.consumers if schedule.buffers.store_warp else 0
    if store_warps != [(i, budget.STORE_WARPS) for i in range(asked)]:
        yield f"store warps {store_warps} of so many warps, the buffers ask for {asked} of {budget.STORE_WARPS}"
    roles = [p.role for p in schedule.partitions]
    if roles != sorted(roles, key=list(PartitionRole).index):
        order = "consumers first, then the loader, the warp that issues products, store warps"
        yield f"emitter.v1: partitions are {', '.join(roles)}: {order}"


def _registers(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """Registers are of the hardware's granularity and range, hold the live tiles, and fit the launch's pool."""
    low = machine.setmaxnreg_min_registers
    for p in schedule.partitions:
        if (
            p.registers % machine.register_granularity
            or not low <= p.registers <= machine.setmaxnreg_max_registers
        ):
            yield f"{p.name} has {p.registers} registers a thread"
        need = budget.needed_registers(program, margin)
        if p.role is PartitionRole.CONSUMER and p.registers < need:
            yield f"{p.name} has {p.registers} registers a thread, its live tiles take {need}"
    if schedule.base_registers != budget.base_registers(program.structure, machine):
        yield f"base registers {schedule.base_registers}"
    total = budget.taken_registers(schedule.partitions, machine)
    warps = budget.launched_warps(program.structure, machine)
    pool = budget.pool_registers(schedule.base_registers, warps, machine)
    if total > pool:
        yield f"registers: {total}, the launch has {pool}"
    if pool > machine.registers_per_sm:
        yield f"registers: the launch takes {pool}, an SM has {machine.registers_per_sm}"


def _emitter(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """emitter.v1: loads on the loader, a slot's in one stage, slots in order; a pass for every stage;
    partials stay within a pass.
    """
    loaders = {p.name for p in schedule.partitions if p.role is PartitionRole.LOADER}
    for plan in program.rings:
        yield from _slots_in_order(schedule, program, plan)
        for copy in range(program.structure.copies):
            loads = [load for load in plan.loads if program.op(load).copy == copy]
            stages = {schedule.place(load).stage for load in loads}
            if len(stages) > 1:
                yield f"emitter.v1: the loads of K-block {copy} of {plan.name} are in stages {sorted(stages)}"
        for load in plan.loads:
            if schedule.place(load).partition not in loaders:
                yield f"emitter.v1: {load} is issued by {schedule.place(load).partition}"
    yield from _one_program(schedule, program)
    spare = program.k_iterations - bool(program.structure.tail)
    for partition in schedule.partitions:
        before = max((p.stage for p in schedule.of(partition.name)), default=0)
        if partition.role is PartitionRole.CONSUMER and before > spare:
            yield f"emitter.v1: {partition.name} has {before} stages before its last, a tile {spare} passes"
        if program.iteration is Iteration.TILE and partition.role is PartitionRole.CONSUMER and before:
            yield f"emitter.v1: {partition.name} begins a tile of rows before it has ended the one before"
        values = program.computes_with_products or program.feeds_products
        if values and partition.role is PartitionRole.CONSUMER and before > 1:
            yield f"emitter.v1: {partition.name} overlaps {before + 1} iterations, loops with values take two"
    if program.adds_partials:
        for partition in schedule.partitions:
            late = [
                p.op
                for p in schedule.of(partition.name)
                if p.stage and program.named(p.op).kind is not OpKind.TMA_LOAD
            ]
            if late:
                yield f"emitter.v1: {late[0]} carries partial sums into the next pass of {partition.name}"


def _one_program(schedule: Schedule, program: TileProgram) -> Faults:
    """emitter.v1: in loops that compute values the consumers do the same, each some time after the first."""
    if not program.of(OpKind.ELEMENTWISE):
        return
    for consumer, own in program.by_consumer.items():
        found = {schedule.start(op.id) - schedule.start(replace(op.id, instance=0)) for op in own}
        if len(found) > 1:
            yield f"emitter.v1: operations of consumer {consumer} come {sorted(found)} after the first's"


def _slots_in_order(schedule: Schedule, program: TileProgram, plan: RingPlan) -> Faults:
    """emitter.v1: the loader fills slot after slot, and the next iteration's after this one's."""
    k_blocks = _k_block_starts(schedule, program, plan)
    following = [*k_blocks[1:], [start + schedule.ii for start in k_blocks[0]]]
    for number, (k_block, after) in enumerate(zip(k_blocks, following, strict=True)):
        if max(k_block) > min(after):
            yield (
                f"emitter.v1: the loads of K-block {number} of {plan.name} end with {max(k_block)}, "
                f"those of the next slot begin at {min(after)}"
            )


def _live_tiles(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """At every moment of an interval the live tiles of a consumer, with its sums, fit its registers."""
    for partition in schedule.partitions:
        own = [tile for tile in program.live if f"{PartitionRole.CONSUMER}{tile.consumer}" == partition.name]
        spans = [(*_life(schedule, program, tile), tile.registers) for tile in own]
        have = partition.registers - program.accumulator_registers - margin
        for moment in sorted({start % schedule.ii for start, _, _ in spans}):
            live = sum(
                registers
                * sum(begin <= moment + k * schedule.ii < end for k in range(-1, end // schedule.ii + 1))
                for begin, end, registers in spans
            )
            if live > have:
                yield f"registers: tiles of {partition.name} take {live} at cycle {moment}, {have} are left"


def _life(schedule: Schedule, program: TileProgram, tile: Live) -> tuple[int, int]:
    """From when to when a tile is in registers."""
    starts = [schedule.start(reader) for reader in tile.readers]
    ends = [
        start + (program.op(reader).latency if program.op(reader).kind is OpKind.MMA else 0)
        for start, reader in zip(starts, tile.readers, strict=True)
    ]
    return schedule.start(tile.maker), max(ends)


def _prediction(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """The prediction is what the formula gives."""
    slots = [depth for _, depth in schedule.rings]
    again = timing.predict(program, machine, schedule.ii, schedule.buffers, slots)
    if again != schedule.prediction:
        given, derived = schedule.prediction.microseconds, again.microseconds
        yield f"predicted {given} us, the formula gives {derived} us, or their parts differ"


Check = Callable[[Schedule, TileProgram, Machine, int], Faults]

CHECKS: tuple[Check, ...] = (
    _placement,
    _partitions,
    _dependences,
    _units,
    _issue,
    _rings,
    _shared_memory,
    _tensor_memory,
    _staging,
    _registers,
    _live_tiles,
    _emitter,
    _prediction,
)
"""Every check; the first has to pass before the others have anything to look at."""


@dataclass(frozen=True, slots=True)
class Property:
    """A property that schedules are to have besides, and what is wrong with one that lacks it."""

    name: str
    check: Check


PROPERTIES: Table[Property] = Table("property of schedules")
"""The properties that were added, by name."""


def faults(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> list[str]:
    """Everything that is wrong with a schedule, each with its numbers; empty if it is right.

    `margin` is registers a thread kept for the compiler beyond the live tiles.
    """
    found = list(_placement(schedule, program, machine, margin))
    if found:
        return found
    checks = (*CHECKS, *(one.check for one in PROPERTIES.values()))
    return [fault for check in checks for fault in check(schedule, program, machine, margin)]


def verify(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> VerifiedSchedule:
    """Accept a schedule, or raise CheckError with everything that is wrong with it."""
    found = faults(schedule, program, machine, margin)
    if found:
        raise CheckError(f"schedule of {schedule.name} rejected: " + "; ".join(found))
    return VerifiedSchedule(schedule, program, machine, SEAL)
