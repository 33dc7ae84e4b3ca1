"""Least time of a loop that computes values over all rings and buffers that fit shared memory."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

from wsopt.machine.types import Machine
from wsopt.perf.contention import contended_interval
from wsopt.perf.epilogue import epilogue_cycles
from wsopt.program.program import TileProgram
from wsopt.schedule import budget
from wsopt.solve.bound import max_depths
from wsopt.solve.objective import time_of_values


@dataclass(frozen=True, slots=True)
class Floor:
    """No schedule takes less than `time`, as the model counts it; an II up to `interval` cycles costs no more."""

    time: float
    interval: int


@functools.lru_cache(maxsize=64)
def floor_of_time(program: TileProgram, machine: Machine) -> Floor:
    """The least over all depths of the rings and all choices of epilogue buffers that shared memory has room for.

    What is placed where is left out. Infinite where nothing fits.
    """
    assert program.work is not None, "loops that compute values have work"
    unit = program.grain
    options = {b: epilogue_cycles(program, machine, b) for b in budget.buffer_options(program)}
    best = Floor(math.inf, 0)
    for depths in itertools.product(*(range(1, deepest + 1) for deepest in max_depths(program, machine))):
        fitting = [
            cycles
            for buffers, cycles in options.items()
            if budget.shared_memory(program, depths, buffers) <= machine.shared_memory_per_block_bytes
        ]
        if fitting:
            contended = contended_interval(program, machine, depths)
            time = time_of_values(program.work, unit, math.ceil(contended / unit), min(fitting))
            found = Floor(time, contended // unit * unit)
            best = min(best, found, key=lambda floor: floor.time)
    return best
