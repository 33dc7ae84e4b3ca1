"""What a streamed loop settles at: its clock under the power limit, and its pace by the slots of its ring."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.frontend.types import Region
from wsopt.machine.types import Machine
from wsopt.perf.costs import (
    epilogue_cost,
    gpc_bytes,
    gpc_cycles,
    k_block_lines,
    load_cycles,
    mma_cycles,
    operand_bytes,
    promotion_cycles,
    slot_bytes,
)
from wsopt.perf.held import norm
from wsopt.perf.stream import stream_pace
from wsopt.program.program import TileProgram
from wsopt.program.structures import column_role, row_role
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.views import Role

_CLOCK_STEPS = 12
_PACE_STEPS = 5
"""Steps of two fixed points. A clock's change halves with each step at least, a pace's falls to a tenth."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The clock that the power limit leaves a loop, and the cycles from one K-block to the next at that clock.

    `ahead` are those where no K-block waits for a slot.
    """

    clock_mhz: float
    k_block: float
    ahead: float


@dataclass(frozen=True, slots=True)
class Demand:
    """What one K-block of a block asks for: bytes of lines, and of those its GPC fetches; cycles of the tensor core.

    `data` are the bytes themselves, which one SM alone gets at its own rate, of whatever lines they are a part;
    `energy` is in cycles of the tensor core, `between` the cycles outside the loop for each of its K-blocks.
    `alone` where one consumer at a time has products under way: what it waits for, nobody fills. `active` is the
    share of the SMs that are at work.
    """

    lines: float
    data: float
    gpc: float
    tensor: float
    energy: float
    between: float
    alone: bool
    active: float = 1.0

    def path(self, machine: Machine, clock_mhz: float) -> int:
        """Cycles for which the K-block's copies hold the way from L2: the SM's own, or its share of the GPC's.

        Few SMs have a larger share, up to the rate of one alone. They need not be neighbours, so a GPC's may have
        to fetch all that each of them reads.
        """
        own, gpc = load_cycles(self.lines, machine, clock_mhz), gpc_cycles(self.gpc, machine, clock_mhz)
        if self.active == 1.0:
            return max(own, gpc)
        apart = gpc_cycles(self.lines * self.active, machine, clock_mhz)
        alone = self.data / machine.tma_bytes_per_cycle
        return math.ceil(min(max(own, gpc), max(own * self.active, min(gpc, apart), alone)))

    def knee(self, machine: Machine) -> float:
        """The exponent of the norm in which what bounds the loop adds up."""
        return machine.copy_knee_alone if self.alone else machine.copy_knee


def k_block_demand(region: Region, s: Structure, machine: Machine) -> Demand:
    """What one K-block of a block asks for."""
    contention = s.at_once
    lines, gpc = k_block_lines(region, s, machine), gpc_bytes(region, s, machine)
    tensor = mma_cycles(region, s, machine) * contention * len(region.contractions)
    energy = (
        machine.tensor_energy(region.operand_dtype.value) * tensor
        + machine.power_cycles_per_alu_cycle * promotion_cycles(region, s, machine) * contention
        + machine.power_cycles_per_shared_byte * operand_bytes(region, s, machine) * contention
        + machine.power_cycles_per_l2_byte * lines
        + machine.power_cycles_per_gpc_byte * gpc
    )
    return Demand(
        lines=lines,
        data=slot_bytes(region, s),
        gpc=gpc_bytes(region, s, machine, waited_for=True),
        tensor=tensor,
        energy=energy,
        between=_between(region, s, machine),
        alone=s.sharing is Sharing.TURNS or s.consumers == 1,
    )


def loop_pace(demand: Demand, machine: Machine, slots: int) -> Pace:
    """What a loop with a ring of so many slots settles at.

    The way from L2 does not go with the SMs' clock, and a loop that waits for it leaves power for a higher
    one: the clock is where the two agree. From above, each step lowers it, and less with fewer slots; so that no
    ring is faster than a deeper one, the steps end where the next would change nothing, not where it is small.
    """
    clock, k_block = machine.sustained_clock_mhz, 0.0
    for _ in range(_CLOCK_STEPS):
        path = demand.path(machine, clock)
        k_block = _k_block_cycles(demand, machine, path, slots)
        clock = machine.power_clock(k_block + demand.between, demand.energy)
        if demand.path(machine, clock) == path:
            break
    return Pace(clock, k_block, norm((path, demand.tensor), demand.knee(machine)))


def _k_block_cycles(demand: Demand, machine: Machine, path: int, slots: int) -> float:
    """Cycles from K-block to K-block whose copies hold the way from L2 for `path` cycles.

    Three things bound a loop: the way from L2, the tensor core, and the ring, whose slots each live as long
    as copy, product and return take. Copies come early and late, so a loop that two of them bound alike is
    slower than each: the bounds add up as a norm. A copy's bytes come as fast as to one SM alone; its first
    ones come later the more of the time the path is busy.
    """
    latency = machine.latency
    back = latency.wgmma_latency + latency.barrier + 2 * (latency.mbarrier_wake + latency.mbarrier_wait)
    first = machine.first_bytes(latency.tma_load_l2)
    bytes_alone = demand.data / machine.tma_bytes_per_cycle

    pace: float = max(path, demand.tensor)
    for _ in range(_PACE_STEPS):
        copy = first * (1 + machine.copy_queue * path / pace) + bytes_alone
        ring = (copy + demand.tensor + back) / slots
        pace = norm((path, demand.tensor, ring), demand.knee(machine))
    return pace


def _between(region: Region, s: Structure, machine: Machine) -> float:
    """Cycles outside the loop for each of its K-blocks: starts and ends of blocks, epilogues that others wait for."""
    row, column = row_role(s.swap), column_role(s.swap)
    tiles = math.ceil(region.extent(row) / s.tile_rows) * math.ceil(region.extent(column) / s.columns)
    rounds = math.ceil(region.extent(Role.BATCH) * tiles / machine.sm_count)
    first = machine.first_bytes(machine.latency.tma_load_dram)
    once = machine.block_start_cycles + first + machine.latency.tma_store
    cost = epilogue_cost(region, s, machine)
    each = cost.together if s.sharing is Sharing.ROWS else 0
    outside = once + rounds * each if s.persistent else rounds * (once + machine.block_turnover_cycles + each)
    return outside / (rounds * math.ceil(region.extent(Role.STREAM) / s.depth))


def ring_slots(region: Region, s: Structure, machine: Machine) -> int:
    """Slots of a ring that fit a block beside the fewest bytes of epilogue buffers a consumer; at least one."""
    cost = epilogue_cost(region, s, machine)
    apart = cost.staged_bytes + cost.input_bytes
    lent = cost.staged_bytes - cost.lent_bytes + s.pieces * cost.input_bytes
    buffers = s.consumers * (cost.vector_bytes + min(apart, lent)) + machine.shared_memory_reserved_bytes
    return max(1, (machine.shared_memory_per_block_bytes - buffers) // slot_bytes(region, s))


def iteration_pace(program: TileProgram, machine: Machine, slots: int) -> int:
    """Cycles that an iteration takes at least with a ring of so many slots; 0 where a loop computes values."""
    if program.region.streams_rows:
        return stream_pace(program, machine, slots)
    if program.region.body:
        return 0
    s = program.structure
    return math.ceil(s.copies * loop_pace(k_block_demand(program.region, s, machine), machine, slots).k_block)
