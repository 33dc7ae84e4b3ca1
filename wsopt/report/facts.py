"""Figures derived from a verified schedule: rings, budgets by part, time by part, limits of II.

Plain data without words around it, so that every kind of report shows the same figures.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum

from wsopt.perf.contention import held_cycles, iteration_lives, ring_bound
from wsopt.perf.epilogue import epilogue_cycles
from wsopt.program.ids import OpId
from wsopt.program.program import RingPlan, TileOp, TileProgram, Unit
from wsopt.program.types import Structure
from wsopt.program.units import UNITS
from wsopt.report.layout import counted
from wsopt.report.words import operand
from wsopt.schedule import budget, memory
from wsopt.schedule.types import Partition, PartitionRole
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.bound import promotion, recurrence


@dataclass(frozen=True, slots=True)
class Part:
    """A named part of a sum."""

    name: str
    amount: float


@dataclass(frozen=True, slots=True)
class RingFacts:
    """A ring: its slots, and the cycles that one is taken, from the issue of its first load to its return.

    `first` and `last` are the operations that the lifetime with the least slack lies between; `covers` is how
    long that slot may be taken with this depth, until the K-block that has it next is loaded: II a slot, with
    one K-block an iteration.
    """

    name: str
    depth: int
    slot_bytes: int
    first: OpId
    last: OpId
    lifetime: int
    covers: int

    @property
    def slack(self) -> int:
        """Cycles by which a load may be late before anyone waits for it."""
        return self.covers - self.lifetime


@dataclass(frozen=True, slots=True)
class RegisterFacts:
    """Registers a thread of one partition: the live tiles' parts, what it needs and what it has."""

    partition: Partition
    parts: tuple[Part, ...]

    @property
    def needs(self) -> int:
        """Registers that the parts take together."""
        return sum(int(part.amount) for part in self.parts)


def ring_facts(verified: VerifiedSchedule) -> tuple[RingFacts, ...]:
    """Every ring of the schedule."""
    return tuple(_ring(verified, plan) for plan in verified.program.rings)


def _ring(verified: VerifiedSchedule, plan: RingPlan) -> RingFacts:
    copies = verified.program.structure.copies
    return min((_life(verified, plan, copy) for copy in range(copies)), key=lambda life: life.slack)


def _life(verified: VerifiedSchedule, plan: RingPlan, copy: int) -> RingFacts:
    """How long one K-block's slot is taken, from which load to which release, and until it is filled again."""
    depth = verified.schedule.depth(plan.name)
    first = _first_load(verified, plan, copy)
    last = max(_of_copy(verified, plan.releases, copy), key=lambda op: (_returned(verified, op), op.id))
    issued = verified.schedule.start(first.id)
    later, k_block = budget.next_in_slot(copy, depth, verified.program.structure.copies)
    again = verified.schedule.start(_first_load(verified, plan, k_block).id) + later * verified.schedule.ii
    lifetime = _returned(verified, last) - issued
    return RingFacts(plan.name, depth, plan.slot_bytes, first.id, last.id, lifetime, again - issued)


def _first_load(verified: VerifiedSchedule, plan: RingPlan, copy: int) -> TileOp:
    """The load of a K-block that is issued first."""
    return min(_of_copy(verified, plan.loads, copy), key=lambda op: (verified.schedule.start(op.id), op.id))


def _of_copy(verified: VerifiedSchedule, ids: tuple[OpId, ...], copy: int) -> list[TileOp]:
    """The operations among `ids` that work on one K-block of the iteration."""
    return [op for op in map(verified.program.op, ids) if op.copy == copy]


def _returned(verified: VerifiedSchedule, release: TileOp) -> int:
    """Cycle at which the loader sees a slot free."""
    return verified.schedule.start(release.id) + release.issue + release.latency


def register_facts(verified: VerifiedSchedule, margin: int) -> tuple[RegisterFacts, ...]:
    """Registers of every partition; `margin` is what was kept for the compiler."""
    program = verified.program
    live = (
        Part("accumulators", program.accumulator_registers),
        max(
            Part("epilogue", program.epilogue.registers),
            Part("k_block", budget.k_block_registers(program)),
            key=lambda part: part.amount,
        ),
        Part("margin", margin),
    )
    return tuple(
        RegisterFacts(p, live if p.role is PartitionRole.CONSUMER else ())
        for p in verified.schedule.partitions
    )


def register_file(verified: VerifiedSchedule) -> int:
    """Registers of the SM's file that all partitions take, at the hardware's granularity of warpgroups."""
    return budget.taken_registers(verified.schedule.partitions, verified.machine)


def shared_memory_parts(verified: VerifiedSchedule) -> tuple[Part, ...]:
    """Bytes of shared memory by buffer, without empty ones; they add up to what the schedule takes."""
    buffers, program = verified.schedule.buffers, verified.program
    cost, s = program.epilogue, program.structure
    parts = [*_ring_parts(verified), _buffers("tiles held", s.stationary_sets, program.stationary_bytes)]
    for consumer in range(s.consumers):
        owner = f"of consumer {consumer}"
        staged = memory.buffer_bytes(program, buffers) - cost.input_bytes * buffers.inputs
        staged -= cost.vector_bytes
        count = max(1, buffers.staging)
        parts.append(_buffers(f"staging {owner}", count, staged // count))
        parts.append(_buffers(f"epilogue inputs {owner}", buffers.inputs, cost.input_bytes))
        parts.append(Part(f"vectors {owner}", cost.vector_bytes))
    slots = [depth for _, depth in verified.schedule.rings]
    parts.append(Part("barriers", memory.barrier_bytes(program, slots, buffers)))
    parts.append(Part("numbers of tiles", memory.number_bytes(program, slots)))
    parts.append(Part("exchange between warps beyond the reserve", memory.exchange_beyond_reserve(program)))
    parts.append(Part("sums over rows, between warps", s.consumers * program.over_rows_bytes))
    parts.append(Part("tiles that threads turn", s.consumers * program.turning_bytes))
    parts.append(Part("reserve for the compiler", memory.SHARED_MEMORY_RESERVE))
    return tuple(part for part in parts if part.amount)


def _ring_parts(verified: VerifiedSchedule) -> list[Part]:
    """The slots of every ring, by streamed tensor."""
    program, found = verified.program, []
    for plan in program.rings:
        depth, tensors = verified.schedule.depth(plan.name), dict[str, int]()
        for load in _of_copy(verified, plan.loads, 0):
            size = program.value(load.output).nbytes
            tensors[operand(load)] = tensors.get(operand(load), 0) + size
        found += [_buffers(f"{plan.name}: {name}", depth, size) for name, size in tensors.items()]
    return found


def _buffers(name: str, count: int, nbytes: int) -> Part:
    """Equal buffers as one part."""
    return Part(f"{name}, {count} x {nbytes:,}", count * nbytes)


def tile_epilogue(verified: VerifiedSchedule) -> int:
    """Cycles of a tile's epilogue that another tile follows, with its waits for buffers and for stores."""
    return epilogue_cycles(verified.program, verified.machine, verified.schedule.buffers)


def time_parts(verified: VerifiedSchedule) -> tuple[Part, ...]:
    """Cycles of the busiest SM by part; they add up to the prediction's."""
    p = verified.schedule.prediction
    further = "" if verified.program.structure.persistent else ", start of further waves"
    return (
        Part("start of the block", p.start),
        Part("fill of the ring", p.fill),
        Part("main loop", p.main),
        Part(f"epilogue not hidden{further}", p.epilogue),
        Part("last stores", p.tail),
        Part("power limit", p.power),
    )


def tiles_in_words(program: TileProgram) -> str:
    """How many tiles there are, and in how many parts each, or in whose shares."""
    if program.structure.shares:
        return f"equal shares of the K-blocks of {counted(program.tiles, 'tile')}"
    if program.structure.splits == 1:
        return counted(program.tiles, "tile")
    return f"{counted(program.tiles, 'part')} of {counted(program.grid.tiles, 'tile')}"


def places(verified: VerifiedSchedule) -> int:
    """Tiles, or parts of tiles, that all waves have room for."""
    each = verified.program.structure.places(verified.machine.sm_count)
    return verified.schedule.prediction.waves * each


def tensor_cycles(verified: VerifiedSchedule, iterations: float) -> float:
    """Cycles for which products hold the tensor core of the busiest SM, whose blocks have so many iterations each."""
    program = verified.program
    loops = min(program.structure.loops_an_sm, -(-program.tiles // verified.machine.sm_count))
    return loops * iterations * unit_load(verified, Unit.TENSOR)


def unit_load(verified: VerifiedSchedule, unit: str) -> int:
    """Cycles of one II for which a block holds a unit."""
    return held_cycles(verified.program)[unit]


def ii_limits(verified: VerifiedSchedule) -> tuple[Part, ...]:
    """Lower bounds of II by cause, in cycles; largest first."""
    program, schedule = verified.program, verified.schedule
    found = [Part(entry.words, unit_load(verified, unit)) for unit, entry in UNITS.items()]
    for partition in schedule.partitions:
        issue = sum(program.named(placed.op).issue for placed in schedule.of(partition.name))
        found.append(Part(f"issue of {partition.name}", issue))
    found.append(Part("recurrence", recurrence(program)))
    found.append(Part("partial sums within a pass", promotion(program)))
    for plan, (name, depth) in zip(program.rings, schedule.rings, strict=True):
        life = iteration_lives(program, verified.machine, plan, depth)
        least = ring_bound(program, verified.machine, plan, depth)
        found.append(Part(f"{name}: least lifetime {life:,} / {depth}", least))
    return tuple(sorted((part for part in found if part.amount), key=lambda part: (-part.amount, part.name)))


def kernel_limits(verified: VerifiedSchedule) -> tuple[Part, ...]:
    """Lower bounds of the kernel's time by cause, in microseconds; largest first."""
    p = verified.schedule.prediction
    found = [Part("the SMs", p.sm_us), Part("device memory", p.dram_us), Part("L2", p.l2_us)]
    return tuple(sorted(found, key=lambda part: -part.amount))


def structure_fields(structure: Structure) -> dict[str, int | str | bool]:
    """The fields of a structure as plain values, in their order."""
    values = {field.name: getattr(structure, field.name) for field in dataclasses.fields(structure)}
    return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}
