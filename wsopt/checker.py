"""The checker: re-derives every property of a schedule from its tile program, without the solver.

One small check a property; each yields faults with the numbers that show them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from wsopt.entries import Table
from wsopt.errors import CheckError
from wsopt.machine.types import Machine
from wsopt.perf import timing
from wsopt.perf.effective_ii import effective_ii
from wsopt.program.conditions import Overlap
from wsopt.program.limits import MOST_SLOTS
from wsopt.program.over_rows import carried
from wsopt.program.program import Iteration, Live, OpKind, RingPlan, TileProgram
from wsopt.schedule import budget, memory
from wsopt.schedule.types import PartitionRole, Schedule
from wsopt.schedule.verified import SEAL, VerifiedSchedule

Faults = Iterator[str]


def _placement(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """Every operation of the loop once, inside an iteration, on the partition that issues it."""
    wanted = sorted(str(op.id) for op in program.loop)
    found = sorted(placed.op for placed in schedule.placed)
    if wanted != found:
        yield f"operations placed {found}, the loop has {wanted}"
        return
    for placed in schedule.placed:
        if not (0 <= placed.cycle < schedule.ii and placed.stage >= 0):
            yield f"{placed.op} at stage {placed.stage} cycle {placed.cycle} is outside an II of {schedule.ii}"
        own = budget.issuers(program, program.named(placed.op))
        if placed.partition not in own:
            yield f"emitter.v1: {placed.op} is issued by {placed.partition}, not by {' or '.join(own)}"


def _loaders(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """emitter.v1: all copies into one ring are started by one loading warp, and each warp has a ring; with the warps
    that issue products or start stores they fit a warpgroup.
    """
    for plan in budget.copied_rings(program):
        by = sorted({schedule.place(load).partition for load in plan.loads})
        if len(by) > 1:
            yield f"emitter.v1: copies into {plan.name} are started by {' and '.join(by)}; they share a barrier"
    used = {schedule.place(op.id).partition for op in program.of(OpKind.TMA_LOAD)}
    there = {p.name for p in schedule.partitions if p.role is PartitionRole.LOADER}
    if used != there:
        yield f"loading warps are {', '.join(sorted(there))}; copies are started by {', '.join(sorted(used))}"
    small = sum(p.warps for p in schedule.partitions if p.warps < machine.warps_per_warpgroup)
    if len(used) > 1 and schedule.buffers.inputs_by_loader:
        yield f"emitter.v1: the epilogue's inputs are brought by one of {len(used)} loading warps"
    if small > budget.MOST_HELPERS:
        yield f"emitter.v1: {small} warps that start copies, products or stores; they fit {budget.MOST_HELPERS}"


def _dependences(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """start(v) + distance * II >= start(u) + latency, with a barrier's hand-over from partition to partition."""
    for edge in program.edges:
        source = program.op(edge.source)
        wait = math.ceil(machine.latency.mbarrier_wake) if budget.crosses(program, edge) else 0
        ready = schedule.start(edge.source) + edge.wait(source) + wait
        begins = schedule.start(edge.target) + edge.distance * schedule.ii
        if begins < ready:
            yield f"{edge.target} starts at {begins}, {edge.source} is ready at {ready}"


def _exclusive(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """No two operations hold a unit, or their partition's thread, at once, modulo II."""
    ii = schedule.ii
    partitions = {one.name for one in schedule.partitions}
    for name, every in budget.holders(program).items():
        own = (schedule.place(op.id).partition == name or name not in partitions for op, _ in every)
        held = list(itertools.compress(every, own))
        total = sum(cycles for _, cycles in held)
        if total > ii:
            yield f"{name} is asked for {total} cycles of an II of {ii}"
        spans = [(op.id, schedule.place(op.id).cycle, cycles) for op, cycles in held if cycles]
        for (one, a, first), (other, b, second) in itertools.combinations(spans, 2):
            if (b - a) % ii < first or (a - b) % ii < second:
                yield f"{one} at {a} for {first} and {other} at {b} for {second} share {name}"


def _rings(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """A slot is handed back before the copies of the K-block that takes it next are issued."""
    if [name for name, _ in schedule.rings] != [plan.name for plan in program.rings]:
        yield f"rings {schedule.rings}, the tile program has {[plan.name for plan in program.rings]}"
        return
    if not program.rings and schedule.ii < (least := effective_ii(program, machine, 0)):
        yield f"II is {schedule.ii}, the loop has an effective II of {least}"
    for plan in program.rings:
        depth = schedule.depth(plan.name)
        if not 1 <= depth <= MOST_SLOTS:
            yield f"{plan.name} has {depth} slots, the emitter (emitter.v1) has 1 to {MOST_SLOTS}"
            continue
        yield from _retained(plan, depth, program)
        yield from _dynamic(program)
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


def _retained(plan: RingPlan, depth: int, program: TileProgram) -> Faults:
    """Parts that stay in a ring between two passes over rows have a slot each, and are a row's."""
    s, parts = program.structure, program.grid.column_tiles
    retained = s.retained
    if retained > depth:
        yield f"{plan.name} has {depth} slots, {retained} parts of rows stay in it"
    if retained > (parts if program.reads_twice else 0):
        yield f"{retained} parts of rows stay in {plan.name}; rows have {parts}, and two passes keep some"
    if s.in_registers and (not retained or retained + s.in_registers > parts):
        yield f"{s.in_registers} parts of rows stay in registers, {retained} in {plan.name}; rows have {parts}"
    if s.staggered and not retained:
        yield f"blocks are staggered, and no part of a row stays in {plan.name} from one pass to the next"


def _dynamic(program: TileProgram) -> Faults:
    """Tiles are taken at run time by persistent blocks of loops over tiles that carry nothing from tile to tile."""
    s = program.structure
    if s.dynamic and not (s.persistent and program.iteration is Iteration.TILE and not carried(program)):
        yield "tiles are taken at run time, where a loop is not over tiles, or carries from tile to tile"


def _k_block_starts(schedule: Schedule, program: TileProgram, plan: RingPlan) -> list[list[int]]:
    """When the loads of each K-block of an iteration are issued."""
    copies = range(program.structure.copies)
    return [[schedule.start(load) for load in plan.loads if load.k_block == copy] for copy in copies]


def _buffers(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """Shared memory is what the buffers add up to, and fits a block; so do the sets of sums in tensor memory. Where
    rows stream, a staging buffer was read before it is written again.
    """
    if schedule.buffers not in budget.buffer_options(program):
        yield f"{schedule.buffers} for {program.epilogue.stores} stores of {program.structure.subtiles} subtiles"
    if len(schedule.rings) == len(program.rings):  # else another check's
        used = memory.shared_memory(program, [slots for _, slots in schedule.rings], schedule.buffers)
        if used != schedule.shared_memory_bytes:
            yield f"shared memory is given as {schedule.shared_memory_bytes} bytes, the buffers take {used}"
        if used > (has := memory.shared_capacity(program.structure, machine)):
            yield f"shared memory: {used} bytes, a block has {has}"
    sets, columns = schedule.buffers.sums, program.tensor_columns
    if sets < 1 or (sets > 1 and not columns):
        yield f"{sets} sets of sums, with {columns} columns of tensor memory each"
    if sets * columns > machine.tensor_memory_columns:
        yield f"tensor memory: {sets * columns} columns, a block has {machine.tensor_memory_columns}"
    held = schedule.buffers.staging * schedule.ii
    for op in program.of(OpKind.TMA_STORE):
        if op.latency > held:
            yield f"{op.id} holds a staging buffer for {op.latency} cycles, it is written again after {held}"


def _partitions(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """As many consumers as the structure says, each of its warps, the loaders that copies are placed on, a warp that
    issues products where sums are in tensor memory, and store warps for all or none, in the emitter's order.
    """
    s = program.structure
    if schedule.structure != s:
        yield f"structure {schedule.structure}, the tile program was cut to {s}"
    asked = [(PartitionRole.CONSUMER, i, s.consumer_warps) for i in range(s.consumers)]
    asked += [(PartitionRole.TRANSFORM, i, machine.warps_per_warpgroup) for i in range(s.transforms)]
    asked += [(PartitionRole.CORRECTION, i, machine.warps_per_warpgroup) for i in range(s.corrections)]
    loaders = {schedule.place(op.id).partition for op in program.of(OpKind.TMA_LOAD)}
    helpers = [(PartitionRole.LOADER, i) for i in range(len(loaders))]
    helpers += [(PartitionRole.MMA_WARP, 0)] * bool(program.tensor_columns)
    helpers += [(PartitionRole.STORE_WARP, i) for i in range(s.consumers * schedule.buffers.store_warp)]
    asked += [(role, i, budget.HELPER_WARPS) for role, i in helpers]
    there = [(p.role, p.index, p.warps) for p in schedule.partitions]
    if there != asked:
        told, wanted = (", ".join(f"{r}{i} of {n} warps" for r, i, n in some) for some in (there, asked))
        yield f"emitter.v1: partitions are {told}; the structure and its buffers ask for {wanted}"


def _registers(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """Registers are of the hardware's granularity and range, hold the live tiles, and fit the launch's pool."""
    low, most = machine.setmaxnreg_min_registers, machine.setmaxnreg_max_registers
    need = budget.needed_registers(program, margin)
    for p in schedule.partitions:
        if p.registers % machine.register_granularity or not low <= p.registers <= most:
            yield f"{p.name} has {p.registers} registers a thread"
        if p.role is PartitionRole.CONSUMER and p.registers < need:
            yield f"{p.name} has {p.registers} registers a thread, its live tiles take {need}"
    if schedule.base_registers != budget.base_registers(program.structure, machine):
        yield f"base registers {schedule.base_registers}"
    warps = budget.launched_warps(program.structure, machine)
    pool = schedule.base_registers * warps * machine.threads_per_warp
    total = budget.taken_registers(schedule.partitions, machine)
    if total > pool:
        yield f"registers: {total}, the launch has {pool}"
    pool *= program.structure.blocks_an_sm
    if pool > machine.registers_per_sm:
        yield f"registers: the launch takes {pool}, an SM has {machine.registers_per_sm}"


def _slots_in_order(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """emitter.v1: a loader fills slot after slot, the next iteration's after this one's, each in one stage; and the
    slots of all its rings for a K-block before those for the next.
    """
    for plan in program.rings:
        k_blocks = _k_block_starts(schedule, program, plan)
        for number, k_block in enumerate(k_blocks):
            own = f"emitter.v1: the loads of K-block {number} of {plan.name}"
            stages = sorted({start // schedule.ii for start in k_block})
            if len(stages) > 1:
                yield f"{own} are in stages {stages}"
            in_text = [schedule.start(load) for load in budget.copies_in_order(plan, number)]
            if program.copies_in_order and in_text != sorted(in_text):
                yield f"{own} begin at {in_text}, in another order than the kernel has them"
            for other in (
                one for one in program.rings if _filled_by(schedule, one) == _filled_by(schedule, plan)
            ):
                others = _k_block_starts(schedule, program, other)
                after = [*others[1:], [start + schedule.ii for start in others[0]]][number]
                if max(k_block) > min(after):
                    slot = "slot" if other is plan else f"slot of {other.name}"
                    yield f"{own} end with {max(k_block)}, those of the next {slot} begin at {min(after)}"


def _filled_by(schedule: Schedule, plan: RingPlan) -> str:
    """The partition that fills a ring."""
    return schedule.place(plan.loads[0]).partition


def _overlaps(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """emitter.v1: a pass for every stage of a consumer; what has to be over in a pass is."""
    spare = program.least_iterations - bool(program.structure.tail)
    values = program.computes_with_products or program.feeds_products
    limits = (
        (True, spare, f"has more stages before its last than a tile has passes, {spare}"),
        (program.iteration is Iteration.TILE, 0, "begins a tile of rows before it has ended the one before"),
        (program.adds_partials, 0, "carries partial sums into the next pass"),
        (program.values_apart, 0, "begins a K-block in tensor memory before it has ended the one before"),
        (values, 1, "overlaps more than two iterations of a loop with values"),
    )
    for partition in schedule.partitions:
        before = max((p.stage for p in schedule.of(partition.name)), default=0)
        if partition.role in (PartitionRole.TRANSFORM, PartitionRole.CORRECTION) and before:
            yield f"emitter.v1: {partition.name} begins a K-block before it has ended the one before"
        if partition.role is PartitionRole.CONSUMER:
            for holds, most, told in limits:
                if holds and before > most:
                    yield f"emitter.v1: {partition.name} {told}: its last stage is {before}"


def _one_program(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """emitter.v1: in loops that compute values the consumers do the same, each some time after the first."""
    for consumer, own in budget.own_operations(program).items() if program.computes else ():
        found = {schedule.start(op.id) - schedule.start(replace(op.id, instance=0)) for op in own}
        if len(found) > 1:
            yield f"emitter.v1: operations of consumer {consumer} come {sorted(found)} after the first's"


def _live_tiles(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """At every moment of an interval the live tiles of a consumer, with its sums, fit its registers."""
    ii = schedule.ii
    for partition in schedule.partitions:
        own = [tile for tile in program.live if f"{PartitionRole.CONSUMER}{tile.consumer}" == partition.name]
        lives = [(*life(schedule, program, tile), tile.registers) for tile in own]
        have = partition.registers - program.accumulator_registers - margin
        for moment in sorted({begin % ii for begin, _, _ in lives}):
            # In an interval a tile is live as often as iterations have begun it, and not ended it.
            live = sum(((moment - begin) // ii - (moment - end) // ii) * count for begin, end, count in lives)
            if live > have:
                yield f"registers: tiles of {partition.name} take {live} at cycle {moment}, {have} are left"


def life(schedule: Schedule, program: TileProgram, tile: Live) -> tuple[int, int]:
    """From when to when a tile is in registers."""
    readers = map(program.op, tile.readers)
    ends = [schedule.start(op.id) + (op.latency if op.kind is OpKind.MMA else 0) for op in readers]
    return schedule.start(tile.maker), max(ends)


def _conditions(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """What the program's conditions ask for: fields of the structure and of the buffers, depths, the overlap."""
    asked = program.conditions
    if not (asked.admit(schedule.structure) and asked.allow(schedule.buffers)):
        yield f"{asked.text} is asked for; there are {schedule.structure} and {schedule.buffers}"
    loaders = sum(one.role is PartitionRole.LOADER for one in schedule.partitions)
    if asked.loaders not in (0, loaders):
        yield f"{asked.loaders} loading warps are asked for, there are {loaders}"
    for name, depth in schedule.rings:
        if asked.slots_of(name) not in (0, depth):
            yield f"{name} has {depth} slots, {asked.slots_of(name)} are asked for"
    for product, reader in program.first_products if asked.overlap is not Overlap.ANY else ():
        again = schedule.start(product.id) + schedule.ii
        own = (op for op in program.loop if op.consumer == product.consumer)
        ends = max(schedule.start(op.id) + (op.latency if op.kind is OpKind.MMA else op.issue) for op in own)
        if asked.overlap is Overlap.NEXT_FIRST and again > schedule.start(reader.id):
            yield f"{product.id} is issued again at {again}, after {reader.id} of the K-block before"
        if asked.overlap is Overlap.NONE and again < ends:
            yield f"{product.id} is issued again at {again}, the K-block before ends at {ends}"


def _prediction(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> Faults:
    """The prediction is what the formula gives."""
    slots = [depth for _, depth in schedule.rings]
    again = timing.predict(program, machine, schedule.ii, schedule.buffers, slots)
    if again != schedule.prediction:
        given, derived = schedule.prediction.microseconds, again.microseconds
        yield f"predicted {given} us, the formula gives {derived} us, or their parts differ"


Check = Callable[[Schedule, TileProgram, Machine, int], Faults]

CHECKS: tuple[Check, ...] = (
    _partitions,
    _loaders,
    _dependences,
    _exclusive,
    _rings,
    _slots_in_order,
    _overlaps,
    _one_program,
    _buffers,
    _registers,
    _live_tiles,
    _conditions,
    _prediction,
)
"""Every check of a schedule whose operations are all placed: till then there is nothing to look at."""


@dataclass(frozen=True, slots=True)
class Property:
    """A further property that schedules are to have; `check` yields the faults of one that lacks it."""

    name: str
    check: Check


PROPERTIES: Table[Property] = Table("property of schedules")
"""The properties that were added, by name."""


def faults(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> list[str]:
    """Everything that is wrong with a schedule, each with its numbers; empty if it is right.

    `margin` is registers a thread kept for the compiler beyond the live tiles.
    """
    checks = (*CHECKS, *(one.check for one in PROPERTIES.values()))
    misplaced = list(_placement(schedule, program, machine, margin))
    return misplaced or [fault for check in checks for fault in check(schedule, program, machine, margin)]


def verify(schedule: Schedule, program: TileProgram, machine: Machine, margin: int) -> VerifiedSchedule:
    """Accept a schedule, or raise CheckError with everything that is wrong with it."""
    found = [f"the model was solved without: {limit}" for limit in sorted(program.lifted)]
    found += faults(schedule, program, machine, margin)
    if found:
        raise CheckError(f"schedule of {schedule.name} rejected: " + "; ".join(found))
    return VerifiedSchedule(schedule, program, machine, SEAL)
