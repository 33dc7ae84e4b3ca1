"""Effective II of a loop by the slots of its ring: of products, with its clock under the power limit, and of rows.
And pipeline ramps: the iterations of a loop of products outside the steady state.

In the steady state an iteration of products takes II, which the ring's effective II is in. A block begins with all
slots free, and while it is in an epilogue its loader goes on: so many iterations as there are slots for need not wait
for one to come back. In the tail wave few SMs share the paths.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from wsopt.machine.types import Machine
from wsopt.perf.contention import busiest, contended_interval, held_cycles, norm, slot_lifetime
from wsopt.perf.copies import load_cycles
from wsopt.perf.instructions import tile_instructions
from wsopt.perf.side_by_side import dispatched, held_by_blocks
from wsopt.program.demand import Demand
from wsopt.program.ids import OpKind
from wsopt.program.known import of_program
from wsopt.program.limits import MOST_SLOTS
from wsopt.program.program import Iteration, RingPlan, TileProgram, Unit

_CLOCK_STEPS = 12
_EFFECTIVE_II_STEPS = 5
"""Steps of two fixed points. A clock's change halves with each step at least, a K-block's cycles to a tenth."""


@dataclass(frozen=True, slots=True)
class SteadyLoop:
    """The clock that the power limit leaves a loop, and the cycles from one K-block to the next at that clock.

    `ahead` are those where no K-block waits for a slot.
    """

    clock_mhz: float
    k_block: float
    ahead: float


def path_cycles(demand: Demand, machine: Machine, clock_mhz: float) -> int:
    """Cycles for which the copies of a K-block, one of each of the SM's blocks, hold the way from L2: the SM's own,
    or its share of the GPC's.

    Few SMs have a larger share, up to the rate of one alone. They need not be neighbours, so a GPC's may have
    to fetch all that each of them reads.
    """
    lines = demand.blocks * demand.lines
    own, gpc = (
        load_cycles(lines, machine, clock_mhz),
        load_cycles(demand.blocks * demand.gpc, machine, clock_mhz, distinct=True),
    )
    if demand.active == 1.0:
        return max(own, gpc)
    apart = load_cycles(lines * demand.active, machine, clock_mhz, distinct=True)
    alone = demand.touched / machine.tma_bytes_per_cycle
    return math.ceil(min(max(own, gpc), max(own * demand.active, min(gpc, apart), alone)))


@functools.lru_cache(maxsize=1024)  # a program is asked for it with the same slots by price, bound and ramps
def steady_loop(demand: Demand, machine: Machine, slots: int) -> SteadyLoop:
    """Clock and cycles from K-block to K-block at which a loop with a ring of so many slots settles.

    The way from L2 does not go with the SMs' clock, and a loop that waits for it leaves power for a higher
    one: the clock is where the two agree. From above, each step lowers it, and less with fewer slots; so that no
    ring is faster than a deeper one, the steps end where the next would change nothing, not where it is small.
    """
    clock, k_block = machine.sustained_clock_mhz, 0.0
    knee = machine.copy_knee_alone if demand.alone else machine.copy_knee
    path = path_cycles(demand, machine, clock)
    for _ in range(_CLOCK_STEPS):
        k_block = _k_block_cycles(
            demand.data, demand.tensor, demand.thread, demand.late, machine, path, slots, knee, demand.blocks
        )
        clock = machine.power_clock(k_block + demand.between, demand.blocks * demand.energy)
        before, path = path, path_cycles(demand, machine, clock)
        if path == before:
            break
    together = norm((before, demand.blocks * demand.tensor), knee)
    return SteadyLoop(clock, k_block, norm((together, demand.thread), machine.copy_knee))


@functools.lru_cache(maxsize=1024)  # orders of tiles differ in energy, and few of them in cycles of the path
def _k_block_cycles(
    data: float,
    tensor: float,
    thread: float,
    late: float,
    machine: Machine,
    path: int,
    slots: int,
    knee: float,
    blocks: int,
) -> float:
    """Cycles from K-block to K-block whose copies hold the way from L2 for `path` cycles; the others are a demand's,
    and each of so many blocks of an SM has as much for the tensor core.

    Four things bound a loop: a consumer's own thread, the way from L2, the tensor core, and the ring, whose slots
    each live as long as copy, product and return take. Copies come early and late, so a loop that two of them bound
    alike is slower than each: the bounds add up as a norm. A copy's bytes come as fast as to one SM alone; its first
    ones come later the more of the time the path is busy.
    """
    latency = machine.latency
    back = latency.mma_latency + latency.barrier + 2 * (latency.mbarrier_wake + latency.mbarrier_wait) + late
    first = machine.first_bytes(latency.tma_load_l2)
    bytes_alone = data / machine.tma_bytes_per_cycle

    cycles: float = max(path, blocks * tensor, thread)
    for _ in range(_EFFECTIVE_II_STEPS):
        copy = first * (1 + machine.copy_queue * path / cycles) + bytes_alone
        ring = (copy + tensor + back) / slots
        cycles = norm((norm((path, blocks * tensor, ring), knee), thread), machine.copy_knee)
    return cycles


def effective_ii(program: TileProgram, machine: Machine, slots: int) -> int:
    """Cycles that an iteration takes at least with a ring of so many slots; 0 where rings have none."""
    (found,) = effective_iis(program, machine, (slots,))
    return found


def effective_iis(program: TileProgram, machine: Machine, slots: Iterable[int]) -> list[int]:
    """Cycles that an iteration takes at least with a ring of each of these depths; 0 where rings have none."""
    if program.iteration is Iteration.TILE:
        stream = Stream.of(program, machine)
        return [stream.effective_ii(number) for number in slots]
    demand, copies = program.demand, program.structure.copies
    return [
        0 if demand is None else math.ceil(copies * steady_loop(demand, machine, number).k_block)
        for number in slots
    ]


# --- rows that stream -----------------------------------------------------------------------------------


_WIDE_LOSS = 0.004
"""Share by which consumers of eight warps keep device memory from its rate: nine kernels took 1.002 to 1.017 times as
long with them as with four, where eight whose warps had not changed took 1.004 to 1.009 times as long that day
(`docs/calibration/h200_long_rows.json`, `warps`).
"""


_READ_KNEE = 5.0
"""Exponent of the norm by which instructions and bytes that are read alone add up: a cross-entropy over pieces of
flat rows of 50,257 columns by three consumers took 1.09 of its bytes' time with instructions of 0.94 of it, one over
128,256 columns by two 1.04 with 0.8 (`docs/calibration/h200_parts_by_threads.json`).
"""

_STORED_KNEE = 6.0
"""Exponent of the norm of a tile's copies and the instructions of those that store it: bias and gelu, whose
instructions take as long as its bytes, took 1.12 to 1.18 times as long as those with rings, where logarithms of sums
of rows, which store nothing, took as long (`docs/calibration/h200_blocks_warps.json`,
`docs/rows/h200_beyond_memory.json`).
"""


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows that stream, whatever their ring: the cycles of a tile in device memory, its share of the loss to reads
    that meet writes, the cycles that a slot lives, those in which the SM's schedulers issue its instructions, and
    those of the loading warp, or of blocks side by side, at least.
    """

    program: TileProgram
    machine: Machine
    memory: int
    mixed: float
    life: int
    issued: float
    least: float

    @classmethod
    def of(cls, program: TileProgram, machine: Machine) -> Stream:
        """The stream of a program. A slot's copies are issued one after the other, and it is handed back when the
        last one was read. Blocks of one tile each have no ring.
        """
        resident = program.structure.resident
        memory, life = held_cycles(program)[Unit.MEMORY], 0
        issued, least = 0.0 if resident else _issued(program, machine), 0.0
        for ring in program.rings:
            copies = [op.busy for op in program.loop if op.id in ring.loads]
            life = slot_lifetime(program, machine, ring) + sum(copies) - max(copies)
            least = max(least, _asked(program, machine, ring)) if program.structure.dynamic else least
        if resident:
            least = max(least, held_by_blocks(program, machine), dispatched(program, machine))
        return cls(program, machine, memory, _mixed(program, memory), life, issued, least)

    def effective_ii(self, slots: int) -> int:
        """Cycles a tile with a ring of so many slots, in whole grains of the model's time.

        With few bytes on the way a tile's copies wait for those before it to come back. With many, the copies of all
        SMs meet in device memory with what they store, and each byte takes longer; reads alone do not. Both are of
        blocks that drift apart: where they take their tiles at run time little of it is left, and a tile takes at
        least as long as its number takes to come and its copies to start. A ring is filled ahead while consumers
        compute, and what they store comes with them.
        """
        machine, dynamic = self.machine, self.program.structure.dynamic
        loss = machine.dynamic_stream_loss if dynamic else machine.stream_loss
        knee = machine.dynamic_stream_knee if dynamic else machine.stream_knee
        few, many = machine.stream_bytes_few, machine.stream_bytes_many
        share = min(1.0, max(0.0, (bytes_on_the_way(self.program, slots) - few) / (many - few)))
        wide = self.program.structure.consumer_warps > machine.warps_per_warpgroup
        shared = self.memory * (1.0 + share * loss * self.mixed) * (1.0 + _WIDE_LOSS * wide)
        copied = norm((shared, self.life / max(1, slots)), knee)
        stored, read = (norm((copied, self.issued), knee) for knee in (_STORED_KNEE, _READ_KNEE))
        computed = self.mixed * stored + (1 - self.mixed) * read
        effective = max(computed, self.issued, self.least)
        return math.ceil(effective / self.program.grain) * self.program.grain


def stream_effective_ii(program: TileProgram, machine: Machine, slots: int) -> int:
    """Cycles a tile of rows with a ring of so many slots, in whole grains of the model's time."""
    return Stream.of(program, machine).effective_ii(slots)


@of_program
def beyond_memory(program: TileProgram, machine: Machine) -> int:
    """Cycles by which a tile of rows takes its SM longer than device memory with the best of rings: II has them, and
    they are none of device memory's. Blocks side by side have no ring: their II is one norm of both.
    """
    if program.structure.resident:
        return 0
    slot_bytes = max(1, sum(ring.slot_bytes for ring in program.rings))
    deepest = max(1, min(MOST_SLOTS, machine.shared_memory_per_block_bytes // slot_bytes))
    memory = min(effective_iis(program, machine, range(1, deepest + 1)))
    return max(0, busiest(program, machine, Unit.MEMORY) - memory)


def _issued(program: TileProgram, machine: Machine) -> float:
    """Cycles in which the SM's schedulers issue the instructions of all consumers for a tile, one of a warp each.

    A consumer alone hardly fills them. Several do, whose warps share them, and pipes that none of them fills, as far
    as warps of few instructions at a time can.
    """
    slots = machine.schedulers_per_sm * machine.threads_per_warp
    return tile_instructions(program, machine) / (slots * _ISSUED)


_ISSUED = 0.8
"""Share of the schedulers' slots that warps fill together at most. A cross-entropy whose warps have 213 instructions
for two rows' parts of 4,096 elements fills 0.73 of them, and is as slow as that.
"""


def _asked(program: TileProgram, machine: Machine, ring: RingPlan) -> float:
    """Cycles of the loading warp for a tile whose number it asks for: it waits for it, and has copies to start."""
    number = machine.next_tile_cycles / (program.grid.column_tiles if program.long_rows else 1)
    return number + sum(op.issue for op in program.loop if op.id in ring.loads)


def _mixed(program: TileProgram, memory: int) -> float:
    """Share of the loss to reads that meet writes: all where half of the memory's cycles or more are stores', as in
    the kernels that it was fitted to, none where nothing is stored.
    """
    stored = sum(dict(op.held).get(Unit.MEMORY, 0) for op in program.of(OpKind.TMA_STORE))
    return min(1.0, 2 * stored / memory) if stored else 0.0


def bytes_on_the_way(program: TileProgram, slots: int) -> int:
    """Most bytes that are on the way to an SM with so many slots, without the padding of their tiles.

    Parts of rows that are retained hold a slot each while as many others are treated, of two passes over all parts;
    nothing is on the way to it meanwhile.
    """
    grid = program.grid
    free = slots - program.structure.retained**2 / (2 * grid.column_tiles)
    slot_bytes = sum(ring.slot_bytes for ring in program.rings)
    return round(free * slot_bytes * min(1.0, grid.columns / grid.tile_columns))


# --- outside the steady state ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """Cycles as a function of the initiation interval: `slope * ii + base`."""

    slope: float
    base: float

    def at(self, ii: float) -> float:
        """The cycles at this interval."""
        return self.slope * ii + self.base

    def plus(self, other: Line, times: float = 1.0) -> Line:
        """The sum with so many times the other."""
        return Line(self.slope + times * other.slope, self.base + times * other.base)


@dataclass(frozen=True, slots=True)
class Ramps:
    """Cycles of an iteration besides II, the one of the steady state; `slots` are those of the ring, in iterations.

    `product` is one whose K-blocks are all there, `ahead` one whose K-blocks need no slot to come back, `least` what
    the ring and the paths take in the steady state; `last` and `last_ahead` are `least` and `ahead` in the tail
    wave.
    """

    slots: float
    product: float
    ahead: float
    least: float
    last_ahead: float
    last: float

    def loop(self, passes: float, *, last: bool = False) -> Line:
        """A tile's loop of so many iterations, all slots free before it; its first K-block's copy is left out. With
        `last` one in the tail wave.
        """
        slots = min(passes, self.slots)
        first, further = min(1.0, slots), max(0.0, slots - 1)
        free = Line(0.0, first * self.product + further * (self.last_ahead if last else self.ahead))
        return free.plus(self.last_ramp if last else Line(1.0, 0.0), passes - first - further)

    @property
    def last_ramp(self) -> Line:
        """An iteration in the tail wave: shorter than II by what its ring and its paths are."""
        return Line(1.0, self.last - self.least)

    def held_to(self, ii: float) -> Ramps:
        """The ramps of a loop of this interval; one below the ring's effective II saves nothing in the tail wave."""
        return self if ii >= self.least else replace(self, last=self.least)

    def slack(self, passes: float) -> Line:
        """Upper bound on the cycles of loading that the loader can hide under an epilogue, as a line in II."""
        slots = min(passes, self.slots)
        return Line(slots, -slots * self.product)


def ramps(program: TileProgram, machine: Machine, slots: int) -> Ramps | None:
    """The iterations of a loop of products with a ring of so many slots; one of none counts as one of one. None where
    rings have no effective II of their own.
    """
    s, demand, last_demand = program.structure, program.demand, program.last_demand
    if demand is None or last_demand is None:
        return None
    slots = max(1, slots)
    steady = last = steady_loop(demand, machine, slots)
    if last_demand != demand:
        last = steady_loop(last_demand, machine, slots)
    product, least = busiest(program, machine, Unit.TMA), math.ceil(s.copies * steady.k_block)
    # Free slots and paths make no iteration shorter than what roles that contend take.
    own = max(product, contended_interval(program, machine))
    return Ramps(
        slots=slots / s.copies,
        product=product,
        ahead=max(own, s.copies * steady.ahead),
        least=least,
        last_ahead=max(own, s.copies * min(last.ahead, steady.ahead)),
        last=min(least, max(own, math.ceil(s.copies * last.k_block))),
    )
