"""Cycles for which an iteration holds units, threads and slots of rings, and what it takes where they contend.

Effective initiation interval of loops with arithmetic: contention for units and threads, and energy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from wsopt.machine.cost import unit_cycles
from wsopt.machine.types import Machine
from wsopt.machine.types import Unit as MachineUnit
from wsopt.perf.costs import PROMOTION, SCALED_PROMOTION
from wsopt.program.facts import Arithmetic, Beside, Product, Promotion, Transform
from wsopt.program.ids import OpId, OpKind, ValueKind
from wsopt.program.known import of_loop
from wsopt.program.program import ARITHMETIC, RingPlan, TileOp, TileProgram, Unit
from wsopt.program.units import UNITS
from wsopt.schedule.budget import issuers, takes_time

_LOOPS_KNEE = 6.0
"""Exponent of the norm where the loops are of several blocks, which wait for no slot of another's, as of resident
blocks (`effective_ii.py`): with it products of 16 rows by weights of 4 and 8 bits, of two blocks an SM, are predicted
11 % too slow and 5 % too fast (measured: `docs/calibration/h200_ahead.json`).
"""

_ROWS_LOSS = 0.12
"""Share by which an iteration takes longer for each further block of an instruction's rows that a consumer of a loop
that computes values has, where several contend: 256 x 64 x 64 by two of them took 2,197 cycles where 128 x 64 x 128,
as much arithmetic, took 1,977; 384 x 64 x 32 by three, and kernels of short loops, were 8 to 15 % too fast without it
(`docs/calibration/h200_rows_of_consumers.json`).
"""

_VALUES_KNEE = 2.2
"""The same of loops that compute values: what one of them takes by itself, and what all of them hold of each unit,
hardly overlap. With it kernels of ten graphs with 2 to 4 blocks an SM are predicted within 6 % on the mean
(`docs/calibration/h200_blocks_of_values.json`).
"""


@of_loop
def held_cycles(program: TileProgram) -> Mapping[str, int]:
    """Cycles an iteration for which each unit is held."""
    found = Counter[str]()
    for unit, cycles in (held for op in program.loop for held in op.held):
        found[unit] += cycles
    return MappingProxyType({unit: found[unit] for unit in UNITS})


@of_loop
def issue_cycles(program: TileProgram) -> Mapping[str, int]:
    """Cycles an iteration for which the thread of each partition is held that multiplies or computes, by its name."""
    found = Counter[str]()
    for op in (op for op in program.ops if op.apart or op.consumer is not None):
        (partition,) = issuers(program, op)
        found[partition] += op.issue * (op.apart or takes_time(program, op))
    return MappingProxyType(dict(found))


def busiest(program: TileProgram, machine: Machine, without: Unit) -> int:
    """Cycles an iteration for which the busiest unit, one left out, the schedulers or the busiest thread is held."""
    loops = program.structure.loops_an_sm
    units = [loops * cycles for unit, cycles in held_cycles(program).items() if unit != without]
    schedulers = math.ceil(loops * scheduler_cycles(program, machine))
    return max(*units, schedulers, *issue_cycles(program).values())


def norm(parts: tuple[float, ...], knee: float) -> float:
    """p-norm of contending lower bounds, with the exponent `knee`, in their unit; 0 where no bound is above it.

    Two equal bounds cost more than either alone; a dominant one costs itself.
    """
    largest = max(parts)
    if not largest:
        return 0.0
    return float(largest * math.fsum([(part / largest) ** knee for part in parts]) ** (1 / knee))


def releases(program: TileProgram, product: OpId) -> list[TileOp]:
    """The operations that hand back what a product has read."""
    found = {e.target for e in program.edges if e.source == product and e.target.kind is OpKind.RELEASE}
    return [op for op in program.ops if op.id in found]


def slot_lifetime(program: TileProgram, machine: Machine, plan: RingPlan) -> int:
    """Cycles from the first load of a slot to its return, at least: copy, product or arithmetic, release."""
    return _lifetime(program, machine, plan.loads)


@of_loop
def _lifetime(program: TileProgram, machine: Machine, loads: tuple[OpId, ...]) -> int:
    lifetimes, ops = [0], {op.id: op for op in program.ops}
    handover = math.ceil(machine.latency.mbarrier_wake)
    for edge in program.edges:
        if edge.source in loads:
            source, target = ops[edge.source], ops[edge.target]
            before = source.latency + handover + target.latency
            lifetimes += [before + back.issue + back.latency for back in releases(program, target.id)]
    return max(lifetimes)


def products_of_others(program: TileProgram, plan: RingPlan) -> int:
    """Cycles for which the tensor core works for other consumers on a slot that one has read.

    All consumers read a slot, and their products follow one another. Of two slots the next one is filled meanwhile;
    an only one goes back behind the last.
    """
    return _of_others(program, plan.loads)


@of_loop
def _of_others(program: TileProgram, loads: tuple[OpId, ...]) -> int:
    held: dict[OpId, list[int]] = {load: [] for load in loads}
    for edge in program.edges:
        if edge.source in held and edge.target.kind is OpKind.MMA:
            held[edge.source].append(program.op(edge.target).busy)
    return max((sum(busy) - min(busy) for busy in held.values() if busy), default=0)


def iteration_lives(program: TileProgram, machine: Machine, plan: RingPlan, depth: int) -> int:
    """Cycles that the slots of an iteration's K-blocks live in a ring of this depth, at least, all told."""
    others = products_of_others(program, plan) if depth == 1 else 0
    return (slot_lifetime(program, machine, plan) + others) * program.structure.copies


def ring_bound(program: TileProgram, machine: Machine, plan: RingPlan, depth: int) -> int:
    """Cycles an iteration that a ring of this depth takes: the least lives of an iteration's K-blocks over it.

    A slot of K-block c goes on to K-block (c + depth) mod copies, (c + depth) div copies iterations later. That
    renames the K-blocks, and the iterations add up to `depth`: so the K-blocks' lives add up to at most depth * II,
    at odd depths too, where the life of one K-block may be longer and that of another has to be shorter.
    """
    return math.ceil(iteration_lives(program, machine, plan, depth) / depth)


def contended_interval(
    program: TileProgram, machine: Machine, slots: Sequence[int] = (), loops: int = 0
) -> int:
    """Effective initiation interval: cycles of an iteration in the long run; 0 for loops of products alone.

    `slots` are those of each ring; a ring of 0, or all where they are left out, keeps nobody waiting. Of the blocks
    of an SM so many `loops` run, or all.

    Loops that compute values or operands, and those that add up partial sums, have roles with work of their own. A
    schedule has everyone on time, and the tightest of them is the order to keep. On the machine consumers
    drift, and who comes while a unit is held waits: what each unit takes by itself (the tensor core is handed
    over besides), and the busiest role's own thread, add up as a norm. So does the ring that is waited for the
    longest, where the loop computes values; that of products has an effective II of its own (`perf/effective_ii.py`).
    All blocks of an SM hold its units; threads and rings are each block's own. What a block that computes values
    takes by itself is one more bound, for its waits are filled by others alone. A thread that issues all of a block
    contends with nobody: its schedule has its waits, and no more than the largest of these counts.
    """
    # Of other loops depths are nothing that is asked for, so that what is found once holds for all.
    asked = tuple(slots) if program.computes_with_products else ()
    return _contended(program, machine, asked, loops or program.structure.loops_an_sm)


@of_loop
def _contended(program: TileProgram, machine: Machine, slots: tuple[int, ...], loops: int) -> int:
    computes, threads = program.computes_with_products, issue_cycles(program)
    apart = any(op.apart for op in program.ops)
    if not (computes or apart or program.feeds_products or program.adds_partials):
        return 0
    if computes and loops > 1:
        alone = _contended(program, machine, slots, 1)
        return math.ceil(beside_others(program, machine, alone, 1, loops=loops))
    held = {unit: loops * cycles for unit, cycles in held_cycles(program).items()}
    thread = max(threads.values(), default=0)
    depths = zip(program.rings, slots, strict=True) if slots else ()
    ring = max((ring_bound(program, machine, plan, depth) for plan, depth in depths if depth), default=0)
    in_registers = not program.values_apart  # else one warp issues all of them, one behind the other
    if in_registers and (computes or program.feeds_products) and program.structure.consumers * loops > 1:
        # The tensor core goes from one consumer to the next, whose products wait for the end of those before. Partial
        # sums are added up under the products of the same consumer.
        held[Unit.TENSOR] += loops * sum(op.latency - op.busy for op in program.of(OpKind.MMA))
    parts = (
        *map(float, held.values()),
        loops * scheduler_cycles(program, machine),
        float(thread),
        float(ring),
    )
    if computes and len(threads) == 1:
        return math.ceil(max(parts))
    knee = machine.consumer_knee if loops == 1 else _LOOPS_KNEE
    return math.ceil(norm(parts, knee) * (1 + _ROWS_LOSS * further_rows(program)))


def further_rows(program: TileProgram) -> int:
    """Blocks of an instruction's rows that a warp has beside its first, where loops compute values in registers."""
    s = program.structure
    if not program.computes_with_products or program.values_apart:
        return 0
    return max(1, s.rows // (_WARP_ROWS * s.consumer_warps)) - 1


_WARP_ROWS = 16
"""Rows of the sums of one instruction that a warp holds (PTX ISA, matrix fragments)."""


def beside_others(
    program: TileProgram,
    machine: Machine,
    alone: float,
    iterations: float,
    *,
    loops: int,
    issued: float = 0.0,
) -> float:
    """Cycles of what takes a block of a loop that computes values `alone` so many, where an SM has as many `loops`:
    so many iterations, and as many instructions besides as a scheduler issues in `issued` cycles.
    """
    held = [loops * iterations * cycles for cycles in held_cycles(program).values()]
    slots = loops * (iterations * scheduler_cycles(program, machine) + issued)
    return norm((alone, slots, *held), _VALUES_KNEE)


def scheduler_cycles(program: TileProgram, machine: Machine) -> float:
    """Cycles an iteration for which the SM's schedulers are taken where products read registers; else 0, for pipes
    bound the arithmetic.

    A warpgroup has a warp on each scheduler, which issues one instruction a cycle. A tensor instruction whose left
    operand is in registers takes it for as long as it reads them: no other consumer's arithmetic goes on meanwhile
    (`docs/calibration/h200_issue_slots.json`).
    """
    issued, reads = 0.0, 0.0
    for op in program.loop:
        match op.counts:
            case (Arithmetic() as work) | Transform(work=work) | Beside(work=work):
                issued += unit_cycles(machine, work.mix, work.elements).get(MachineUnit.ISSUE, 0.0)
            case Promotion(elements=elements, scaled=scaled):
                mix = SCALED_PROMOTION if scaled else PROMOTION
                issued += unit_cycles(machine, mix, elements).get(MachineUnit.ISSUE, 0.0)
            case Product(registers=True, warps=warps):
                each = op.instructions * warps // machine.warps_per_warpgroup
                reads += each * machine.mma_least_cycles_registers
    return issued + reads if reads else 0.0


def iteration_energy(program: TileProgram, machine: Machine) -> float:
    """Energy of one iteration of a loop that computes values, in cycles of the tensor core with bf16. Rows of a tile
    that lie beyond the tensors' are zeros: what consumers do with those, the same for each, costs next to nothing.
    """
    products, grid = program.of(OpKind.MMA), program.grid
    there = min(1.0, grid.rows / (grid.row_tiles * grid.tile_rows))
    arithmetic = math.fsum(
        cycles * (1.0 if op.apart else there)
        for op in program.loop
        for unit, cycles in op.held
        if unit in ARITHMETIC
    )
    return (
        machine.tensor_energy(program.whole.dtype.value) * there * sum(op.busy for op in products)
        + machine.power_cycles_per_shared_byte * sum(_operand_bytes(program, op, machine) for op in products)
        + machine.power_cycles_per_l2_byte * sum(plan.slot_bytes for plan in program.rings)
        + machine.power_cycles_per_alu_cycle * arithmetic
    )


def _operand_bytes(program: TileProgram, product: TileOp, machine: Machine) -> int:
    """Bytes that a product reads from shared memory: its columns' tile anew for each instruction's rows.

    The left operand is in registers, where the loop made it, or a tile that the block holds.
    """
    s, (left, right) = program.structure, product.inputs
    own = program.stationary_bytes // s.consumers if left.kind is ValueKind.STATIONARY else 0
    return own + s.rows // machine.mma_rows * program.value(right).nbytes
