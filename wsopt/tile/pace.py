"""What a streamed loop settles at: its clock under the power limit, its pace, and the latency of its copies."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.machine.types import Machine
from wsopt.tile.costs import (
    epilogue_cost,
    gpc_bytes,
    load_cycles,
    mma_cycles,
    operand_bytes,
    slab_lines,
    slot_bytes,
)
from wsopt.tile.types import Region, Sharing, Structure

_BUSIEST = 0.8
_HALVINGS = 20


@dataclass(frozen=True, slots=True)
class Pace:
    """What the streamed loop settles at: the clock that the power limit leaves it, and what that makes of copies.

    `slab` is cycles from one slab to the next at the least, `latency` those from the issue of a copy to its
    first bytes.
    """

    clock_mhz: float
    slab: float
    latency: float


def loop_pace(region: Region, s: Structure, machine: Machine) -> Pace:
    """What a structure's loop settles at.

    The path from L2 does not go with the SMs' clock, and a loop that waits for it leaves power for a higher
    one: the clock is where the two agree.
    """
    energy, lines = slab_energy(region, s, machine), slab_lines(region, s, machine)
    slots = ring_slots(region, s, machine)

    def held(clock: float) -> Pace:
        path = load_cycles(lines, machine, clock)
        slab, latency = _slab_pace(region, s, machine, path, slots)
        return Pace(clock, slab, latency)

    low, high = 0.0, machine.clock_mhz
    if power_clock(machine, held(high).slab, energy) >= high:
        return held(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if power_clock(machine, held(middle).slab, energy) > middle else (low, middle)
        )
    return held(high)


def _slab_pace(region: Region, s: Structure, machine: Machine, path: int, slots: int) -> tuple[float, float]:
    """Cycles from slab to slab, and the latency of copies, with the path from L2 held `path` cycles a slab.

    The path is a queue: its latency grows as in M/D/1 with the share of time that it is busy, held below
    four fifths, where the path itself is the limit. No more than a ring of slabs is ever in it: `slots` that
    each live as long as copy, product and return take are filled at a pace at which the latency lets them be.
    """
    crowd = (s.consumers if s.sharing is Sharing.ROWS else 1) * len(region.contractions)
    tensor = mma_cycles(region, s, machine) * crowd
    latency = machine.latency
    life = path + tensor + latency.wgmma_latency + latency.barrier + 2 * latency.mbarrier_wake

    def first_bytes(pace: float) -> float:
        busy = min(_BUSIEST, path / pace)
        return latency.tma_load_l2 * (1 + busy / (2 * (1 - busy)))

    low: float = max(path, tensor)
    high = max(low, (first_bytes(low) + life) / slots)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slots * middle < first_bytes(middle) + life else (low, middle)
    return high, first_bytes(high)


def power_clock(machine: Machine, cycles: float, energy: float) -> float:
    """The clock, in MHz, at which the power limit holds work of `energy` that takes `cycles`.

    A cycle's energy goes with the square of the voltage, and that with the clock f: energy x f^3 / cycles is
    the power, which has a limit. So the clock is the cube root of cycles over energy, up to the boost clock.
    """
    if not energy:
        return machine.clock_mhz
    return min(machine.clock_mhz, machine.power_clock_mhz * math.cbrt(cycles / energy))


def slab_energy(region: Region, s: Structure, machine: Machine) -> float:
    """Energy of one slab of a block, in cycles of work that the power limit holds at `power_clock_mhz`."""
    crowd = s.consumers if s.sharing is Sharing.ROWS else 1
    tensor = mma_cycles(region, s, machine) * crowd * len(region.contractions)
    return (
        machine.power_cycles_per_tensor_cycle * tensor
        + machine.power_cycles_per_shared_byte * operand_bytes(region, s, machine) * crowd
        + machine.power_cycles_per_l2_byte * slab_lines(region, s, machine)
        + machine.power_cycles_per_gpc_byte * gpc_bytes(region, s, machine)
    )


def ring_slots(region: Region, s: Structure, machine: Machine) -> int:
    """Slots of a ring that fit a block beside one epilogue buffer of each kind a consumer; at least one."""
    cost = epilogue_cost(region, s, machine)
    buffers = s.consumers * (cost.staged_bytes + cost.input_bytes) + machine.shared_memory_reserved_bytes
    return max(1, (machine.shared_memory_per_block_bytes - buffers) // slot_bytes(region, s))
