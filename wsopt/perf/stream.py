"""Effective II of rows that stream through an SM, by the bytes that are on the way at once.

With few, a tile's copies wait for those before it to come back. With many, the copies of all SMs meet in device
memory with what they store, and each byte takes longer.
"""

from __future__ import annotations

import math

from wsopt.machine.types import Machine
from wsopt.perf.held import held_cycles, norm, slot_lifetime
from wsopt.program.program import TileProgram, Unit


def stream_effective_ii(program: TileProgram, machine: Machine, slots: int) -> int:
    """Cycles a tile of rows with a ring of so many slots, in whole grains of the model's time.

    A slot's copies are issued one after the other, and it is handed back when the last one was read.
    """
    memory, (ring,) = held_cycles(program)[Unit.MEMORY], program.rings
    shared = memory * _slowdown(machine, bytes_on_the_way(program, slots))
    copies = [op.busy for op in program.loop if op.id in ring.loads]
    life = slot_lifetime(program, machine, ring) + sum(copies) - max(copies)
    effective = norm((shared, life / slots), machine.stream_knee)
    return math.ceil(effective / program.grain) * program.grain


def bytes_on_the_way(program: TileProgram, slots: int) -> int:
    """Most bytes that are on the way to an SM with so many slots, without the padding of their tiles."""
    (ring,) = program.rings
    return round(slots * ring.slot_bytes * min(1.0, program.grid.columns / program.grid.tile_columns))


def _slowdown(machine: Machine, on_the_way: int) -> float:
    """How many times longer a byte of device memory takes with so many bytes on the way to each SM."""
    few, many = machine.stream_bytes_few, machine.stream_bytes_many
    share = min(1.0, max(0.0, (on_the_way - few) / (many - few)))
    return 1.0 + share * machine.stream_loss
