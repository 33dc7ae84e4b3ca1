"""The steady state of a schedule as it runs: when its operations start once every thread goes on as soon as it can.

A schedule says from when on operations may start so that an interval can be kept; those who run it do not wait for
that. Their threads (`threads.py`) are run from an empty block on, until all that they do comes again.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from wsopt.perf.threads import Block, Run
from wsopt.schedule.verified import VerifiedSchedule

_ITERATIONS = 96
_LAST = 16
"""Iterations at the end of a run that are not looked at: nobody comes after them."""

_LONGEST_PERIOD = 16
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class SteadyState:
    """The steady state as it runs, in cycles: from iteration to iteration, and the start of each operation, by the
    text of its id, since the earliest of the same iteration. All comes again every `period` iterations, over which
    starts are medians; `period` is 0 where that was not seen, and they are over half of the run.
    """

    interval: float
    starts: Mapping[str, int]
    period: int


def steady_state(verified: VerifiedSchedule, iterations: int = _ITERATIONS) -> SteadyState:
    """The steady state of a schedule as it runs, as it is after so many iterations.

    For targets whose consumers issue their products: a thread that hands a slot back waits for what read it.
    """
    run = Run(Block(verified), iterations + _LAST)
    run.go()
    return steady(run.started, iterations)


def steady(started: Mapping[str, list[float]], iterations: int) -> SteadyState:
    """What the starts of all operations repeat in the second half of the first so many iterations."""
    started = {op: times[:iterations] for op, times in started.items()}
    half = iterations // 2
    periods = range(1, min(_LONGEST_PERIOD, half // 2) + 1)
    period = next((one for one in periods if _repeats(started, half, one)), 0)
    over = period or half
    rows = range(iterations - over, iterations)
    begin = {row: min(times[row] for times in started.values()) for row in rows}
    before = min(times[iterations - 1 - over] for times in started.values())
    starts = {op: statistics.median(times[row] - begin[row] for row in rows) for op, times in started.items()}
    return SteadyState(
        interval=(begin[iterations - 1] - before) / over,
        starts={op: round(start) for op, start in starts.items()},
        period=period,
    )


def _repeats(started: Mapping[str, list[float]], first: int, period: int) -> bool:
    """Whether all operations come again after so many iterations, all of them as much later."""
    later = [
        after - before
        for times in started.values()
        for before, after in zip(times[first:], times[first + period :], strict=False)
    ]
    return max(later) - min(later) < _TOLERANCE
