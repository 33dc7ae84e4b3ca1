"""The objective: the predicted time, its floor, and the preferences among equally fast schedules."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from ortools.sat.python import cp_model

from wsopt.machine.types import Machine
from wsopt.perf import timing
from wsopt.perf.contention import contended_interval, ring_bound
from wsopt.perf.effective_ii import Ramps, ramps
from wsopt.perf.epilogue import Epilogues, epilogues
from wsopt.perf.time import Waves
from wsopt.program.program import Iteration, TileProgram
from wsopt.schedule import memory
from wsopt.solve.bound import buffers_with_ends, depths, max_depths
from wsopt.solve.variables import Model

_LONGEST = 2**56
"""Shares of a cycle that a kernel takes at most: days."""


def time(m: Model) -> None:
    """The predicted time: the largest of its lines for the ring's depth and the epilogue's buffers."""
    p, fixed = m.program, timing.fixed_parts(m.program, m.machine)
    if (
        p.iteration is Iteration.TILE
    ):  # a norm of II and of what no schedule changes: the least II is the best
        m.time = p.tiles * m.unit * m.ii
        return
    ends = {b: epilogues(p, m.machine, b) for b in m.buffers}
    interval = _interval(m, fixed)
    m.time = m.cp.new_int_var(0, _LONGEST, "time")
    for (_, slots), is_slots in m.slots.items():
        ramp = ramps(p, m.machine, slots)
        for buffers, chosen in m.buffers.items():
            for slope, base in _lines(p, m.machine, fixed, ends[buffers], ramp):
                m.cp.add(m.time >= slope * interval + base).only_enforce_if(is_slots, chosen)


def _lines(
    program: TileProgram, machine: Machine, fixed: Waves, ends: Epilogues, ramp: Ramps | None
) -> list[tuple[int, int]]:
    """Slope, by an interval in units, and base of each line of the time.

    Times count in shares of a cycle, in which a pass that ends early in its K-block, a K-block of an iteration and a
    consumer's part of a turn are whole numbers.
    """
    s = program.structure
    shares = (s.depth // s.tail if s.tail else 1) * s.copies * s.consumers
    lines = timing.time_of(program, fixed, machine, ends, ramp).lines
    return [(round(shares * line.slope) * program.grain, math.ceil(shares * line.base)) for line in lines]


@dataclass(frozen=True, slots=True)
class Floor:
    """No schedule takes less than `time`, as the model counts it; an II up to `interval` cycles costs no more."""

    time: float
    interval: int


@functools.lru_cache(maxsize=64)
def floor_of_time(program: TileProgram, machine: Machine) -> Floor:
    """The least time of a loop that computes values, over all depths of the rings and all choices of epilogue buffers
    that shared memory has room for; what is placed where is left out. Infinite where nothing fits.

    Every II of another loop counts: its floor is 0.
    """
    if program.work is None:
        return Floor(0, 0)
    unit, fixed, best = program.grain, timing.fixed_parts(program, machine), Floor(math.inf, 0)
    options = buffers_with_ends(program, machine)
    lines = {b: _lines(program, machine, fixed, ends, None) for b, ends in options.items()}
    room = memory.shared_capacity(program.structure, machine)
    for slots in _shallowest(program, machine):
        contended = contended_interval(program, machine, slots)
        for buffers, own in lines.items():
            if memory.shared_memory(program, slots, buffers) <= room:
                time = max(slope * math.ceil(contended / unit) + base for slope, base in own)
                found = Floor(time, contended // unit * unit)
                best = min(best, found, key=lambda floor: floor.time)
    return best


def _shallowest(program: TileProgram, machine: Machine) -> Iterator[tuple[int, ...]]:
    """For each interval that rings may bound an iteration by, the longest first, the least slots of each that do no
    worse: more of them only take room.
    """
    bounds = [
        {depth: ring_bound(program, machine, plan, depth) for depth in depths(program, machine, number)}
        for number, plan in enumerate(program.rings)
    ]
    for bound in sorted({own for ring in bounds for own in ring.values()} or {0}, reverse=True):
        least = [min((depth for depth, own in ring.items() if own <= bound), default=0) for ring in bounds]
        if all(least):
            yield tuple(least)


def _interval(m: Model, fixed: Waves) -> cp_model.IntVar:
    """Effective II: II, or longer where units, threads and rings wait for one another."""
    depths = [[int(ring == name) * slots for name in m.depth] for ring, slots in m.slots]
    contended = [m.t(contended_interval(m.program, m.machine, depth)) for depth in depths]
    least = m.t(math.ceil(fixed.contended))
    interval = m.cp.new_int_var(least, max(least, m.t(m.interval[1]), *contended), "interval")
    m.cp.add(interval >= m.ii)
    for longer, is_slots in zip(contended, m.slots.values(), strict=True):
        m.cp.add(interval >= longer).only_enforce_if(is_slots)
    return interval


def ties(m: Model) -> cp_model.LinearExprT:
    """Among equally fast schedules: the fewest tiles copied, the deepest of rings that are alike, the fewest
    epilogue buffers, the earliest starts, those of operations that come first in the program before others'.

    The block has its shared memory to itself, so slots that nothing else needs buy tolerance of latency.
    """
    every, starts = len(m.start), list(m.start.values())
    first = sum((every - number) * start for number, start in enumerate(starts))
    most_first = every * (every + 1) // 2 * m.horizon + 1
    most_starts = most_first * (every * m.horizon + 1)
    counts = {b: b.staging + b.inputs + b.store_warp + b.inputs_by_loader for b in m.buffers}
    buffers, most_buffers = sum(counts[b] * is_b for b, is_b in m.buffers.items()), max(counts.values()) + 1
    # More slots are better: those of the shallowest ring first, then of all.
    most = sum(max_depths(m.program, m.machine))
    shallowest = m.cp.new_int_var(0, most, "shallowest ring")
    if m.depth:
        m.cp.add_min_equality(shallowest, m.depth.values())
    slots = (most + 1) * shallowest + sum(m.depth.values())
    copied = most_buffers * (most + 1) ** 2 * sum(m.copied.values())
    return most_first * sum(starts) + first + most_starts * (buffers - most_buffers * slots + copied)
