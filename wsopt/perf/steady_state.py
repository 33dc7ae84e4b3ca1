"""The steady state of a schedule as it runs: when its operations start once every thread goes on as soon as it can.

A schedule gives each operation a start at which its interval can be kept. Threads do not wait for that: each goes on
as soon as it can. So the threads of a block (`threads.py`) are run from its beginning, until their starts repeat.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from wsopt.perf.threads import Block, Run
from wsopt.schedule.verified import VerifiedSchedule

_ITERATIONS = 96
_LAST = 16
"""Iterations at the end of a run that are left out of account: no later ones contend with them."""

_LONGEST_PERIOD = 16
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class SteadyState:
    """The steady state as it runs, in cycles.

    `interval` is from one iteration to the next, on the average. `starts` are those of operations, by the text of
    their ids, since the earliest start of the same iteration. They are medians over the `period`, the iterations
    after which all starts repeat; where none was found it is 0, and they are medians over half of the run.
    """

    interval: float
    starts: Mapping[str, int]
    period: int


def steady_state(verified: VerifiedSchedule) -> SteadyState:
    """The steady state of a schedule as it runs, found in a simulation of many iterations.

    For targets whose consumers issue their products: a thread that hands a slot back waits for what read it.
    """
    run = Run(Block(verified), _ITERATIONS + _LAST)
    run.go()
    return steady(run.started, _ITERATIONS)


def steady(started: Mapping[str, list[float]], iterations: int) -> SteadyState:
    """The steady state in the second half of the first `iterations`, of which all operations have `started` then."""
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
    """Whether each start, from the iteration `first` on, repeats `period` iterations later, all after equal times."""
    later = [
        after - before
        for times in started.values()
        for before, after in zip(times[first:], times[first + period :], strict=False)
    ]
    return max(later) - min(later) < _TOLERANCE
