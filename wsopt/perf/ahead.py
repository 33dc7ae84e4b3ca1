"""Constants that a block copies before the kernel before it has ended: of how many slots of its ring.

What is copied then comes first, and consumers wait for their other operand, whose copies come behind those of all
constants that were asked for: of these no more than device memory brings until the kernel before has ended, and while
consumers have time. Where device memory bounds a kernel it is busy from there on, and consumers catch up: they have
the time by which the bytes take longer than they do.
"""

from __future__ import annotations

from wsopt.machine.types import Machine
from wsopt.program.program import TileProgram
from wsopt.schedule.types import Prediction

_HEAD_START_US = 2.0
"""Microseconds from the start of a block, where the kernel before leaves it room, to the end of its wait for it: the
median in a graph of kernels on an H200. There a product of 16 rows by weights of four bits took 16.1 us with the
constants of all nine slots copied before, and 14.4 with those of four; one of 8 bits, which device memory
bounds, 20.9 with all five and 21.3 with three (`docs/calibration/h200_ahead.json`). One row by weights of four bits,
whose bytes take hardly longer than its consumers, takes 13.8 us with all of nine, 12.9 of seven, 12.2 of five or four
(`docs/calibration/h200_ahead_of_one_row.json`).
"""


def slots_ahead(program: TileProgram, machine: Machine, prediction: Prediction, depth: int) -> int:
    """Slots of a ring of so many whose constants are copied before the kernel before has ended."""
    nbytes = _constant_bytes(program, machine)
    spare = _HEAD_START_US + max(0.0, prediction.dram_us - prediction.sm_us)
    brought = spare * 1e-6 * machine.dram_read_bandwidth
    return max(1, min(depth, round(brought / nbytes))) if nbytes else depth


def _constant_bytes(program: TileProgram, machine: Machine) -> float:
    """Bytes of constants that one slot of all blocks of a first wave takes out of device memory: what several blocks
    copy comes once, so that it is no more than what all tiles' parts have in one K-block.
    """
    s = program.structure
    blocks, k_blocks = min(program.tiles, s.places(machine.sm_count)), program.k_iterations * s.copies
    constants = (one for ring in program.rings for one in ring.members if one.view.constant)
    return sum(min(one.nbytes * blocks, one.view.nbytes / k_blocks) for one in constants)
