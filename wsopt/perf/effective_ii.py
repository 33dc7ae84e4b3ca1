"""Effective II of a loop of products by the slots of its ring, and its clock under the power limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.machine.types import Machine
from wsopt.perf.costs import gpc_cycles, load_cycles
from wsopt.perf.held import norm
from wsopt.perf.stream import stream_effective_ii
from wsopt.program.program import Demand, Iteration, TileProgram

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
    """Cycles for which a K-block's copies hold the way from L2: the SM's own, or its share of the GPC's.

    Few SMs have a larger share, up to the rate of one alone. They need not be neighbours, so a GPC's may have
    to fetch all that each of them reads.
    """
    own, gpc = load_cycles(demand.lines, machine, clock_mhz), gpc_cycles(demand.gpc, machine, clock_mhz)
    if demand.active == 1.0:
        return max(own, gpc)
    apart = gpc_cycles(demand.lines * demand.active, machine, clock_mhz)
    alone = demand.data / machine.tma_bytes_per_cycle
    return math.ceil(min(max(own, gpc), max(own * demand.active, min(gpc, apart), alone)))


def _knee(demand: Demand, machine: Machine) -> float:
    """Exponent of the p-norm of the loop's bounds."""
    return machine.copy_knee_alone if demand.alone else machine.copy_knee


def steady_loop(demand: Demand, machine: Machine, slots: int) -> SteadyLoop:
    """Clock and cycles from K-block to K-block at which a loop with a ring of so many slots settles.

    The way from L2 does not go with the SMs' clock, and a loop that waits for it leaves power for a higher
    one: the clock is where the two agree. From above, each step lowers it, and less with fewer slots; so that no
    ring is faster than a deeper one, the steps end where the next would change nothing, not where it is small.
    """
    clock, k_block = machine.sustained_clock_mhz, 0.0
    for _ in range(_CLOCK_STEPS):
        path = path_cycles(demand, machine, clock)
        k_block = _k_block_cycles(demand, machine, path, slots)
        clock = machine.power_clock(k_block + demand.between, demand.energy)
        if path_cycles(demand, machine, clock) == path:
            break
    return SteadyLoop(clock, k_block, norm((path, demand.tensor), _knee(demand, machine)))


def _k_block_cycles(demand: Demand, machine: Machine, path: int, slots: int) -> float:
    """Cycles from K-block to K-block whose copies hold the way from L2 for `path` cycles.

    Three things bound a loop: the way from L2, the tensor core, and the ring, whose slots each live as long
    as copy, product and return take. Copies come early and late, so a loop that two of them bound alike is
    slower than each: the bounds add up as a norm. A copy's bytes come as fast as to one SM alone; its first
    ones come later the more of the time the path is busy.
    """
    latency = machine.latency
    back = latency.mma_latency + latency.barrier + 2 * (latency.mbarrier_wake + latency.mbarrier_wait)
    first = machine.first_bytes(latency.tma_load_l2)
    bytes_alone = demand.data / machine.tma_bytes_per_cycle

    cycles: float = max(path, demand.tensor)
    for _ in range(_EFFECTIVE_II_STEPS):
        copy = first * (1 + machine.copy_queue * path / cycles) + bytes_alone
        ring = (copy + demand.tensor + back) / slots
        cycles = norm((path, demand.tensor, ring), _knee(demand, machine))
    return cycles


def effective_ii(program: TileProgram, machine: Machine, slots: int) -> int:
    """Cycles that an iteration takes at least with a ring of so many slots; 0 where rings have none."""
    if program.iteration is Iteration.TILE:
        return stream_effective_ii(program, machine, slots)
    if program.demand is None:
        return 0
    return math.ceil(program.structure.copies * steady_loop(program.demand, machine, slots).k_block)
