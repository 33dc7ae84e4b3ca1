"""The objective: the predicted time, and the preferences among equally fast schedules."""

from __future__ import annotations

import math
from typing import Any

from ortools.sat.python import cp_model

from wsopt.perf import timing
from wsopt.perf.contention import contended_interval
from wsopt.perf.effective_ii import ramps
from wsopt.perf.epilogue import Epilogues, epilogues
from wsopt.program.program import Iteration, Work
from wsopt.schedule.types import EpilogueBuffers
from wsopt.solve.bound import max_depths
from wsopt.solve.variables import Model

_LONGEST = 2**56
"""Shares of a cycle that a kernel takes at most: days."""


def time(m: Model) -> None:
    """The predicted time, as a multiple of cycles; what no schedule changes may be left out of it."""
    p, fixed = m.program, timing.fixed_parts(m.program, m.machine)
    if p.iteration is Iteration.TILE:
        m.time = p.tiles * m.unit * m.ii
        return
    ends = {b: epilogues(p, m.machine, b) for b in m.buffers}
    if p.work is not None:
        epilogue = sum(ends[b].each * chosen for b, chosen in m.buffers.items())
        m.time = time_of_values(p.work, m.unit, _interval(m, fixed), epilogue)
        return
    _of_products(m, fixed, ends)


def time_of_values(work: Work, unit: int, interval: Any, epilogue: Any) -> Any:
    """Cycles of the busiest SM in a loop that computes values and in its epilogues: of `interval` in units, and of
    `epilogue`, which are numbers or expressions of the model.
    """
    return round(work.k_iterations - work.tiles) * unit * interval + work.tiles * epilogue


def _of_products(m: Model, fixed: timing.Waves, ends: dict[EpilogueBuffers, Epilogues]) -> None:
    """The largest of the lines of the ring's depth and of the epilogue's buffers.

    Times count in shares of a cycle, in which a pass that ends early in its K-block, a K-block of an iteration and a
    consumer's part of a turn are whole numbers.
    """
    s = m.program.structure
    shares = (s.depth // s.tail if s.tail else 1) * s.copies * s.consumers
    interval = _interval(m, fixed)
    time = m.time = m.cp.new_int_var(0, _LONGEST, "time")
    for (_, slots), is_slots in m.slots.items():
        ramp = ramps(m.program, m.machine, slots)
        for buffers, chosen in m.buffers.items():
            for line in timing.time_of(m.program, fixed, m.machine, ends[buffers], ramp).lines:
                least = round(shares * line.slope) * interval + math.ceil(shares * line.base)
                m.cp.add(time >= least).only_enforce_if(is_slots, chosen)


def _interval(m: Model, fixed: timing.Waves) -> cp_model.IntVar:
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
    every = len(m.start)
    first = sum((every - number) * start for number, start in enumerate(m.start.values()))
    most_first = every * (every + 1) // 2 * m.horizon + 1
    starts = most_first * sum(m.start.values()) + first
    most_starts = most_first * (every * m.horizon + 1)
    counts = {b: b.staging + b.inputs + b.store_warp for b in m.buffers}
    buffers = sum(counts[b] * chosen for b, chosen in m.buffers.items())
    slots = max(counts.values()) + 1
    copied = slots * (_most_slots(m) + 1) ** 2
    return starts + most_starts * (buffers - slots * _slots(m) + copied * sum(m.copied.values()))


def _most_slots(m: Model) -> int:
    return sum(max_depths(m.program, m.machine))


def _slots(m: Model) -> cp_model.LinearExprT:
    """More is better: slots of the shallowest ring first, then of all."""
    most = _most_slots(m)
    shallowest = m.cp.new_int_var(0, most, "shallowest ring")
    m.cp.add_min_equality(shallowest, list(m.depth.values()))
    return (most + 1) * shallowest + sum(m.depth.values())
