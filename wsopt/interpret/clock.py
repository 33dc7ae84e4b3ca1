"""Vector clocks: the order of events that holds in every interleaving.

A component belongs to a partition (it counts the partition's operations) or to an mbarrier (it counts
the completed phases, so that the end of an asynchronous copy has a time too). An event at time `t` of
component `c` is ordered before all that a clock's owner does next iff the clock holds at least `t` at `c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wsopt.interpret.faults import InterpreterError

if TYPE_CHECKING:
    from collections.abc import Iterable

CAPACITY = 384


class Clock:
    """A mutable vector of times."""

    __slots__ = ("times",)

    def __init__(self, times: NDArray[np.int64] | None = None) -> None:
        self.times = np.zeros(CAPACITY, np.int64) if times is None else times

    def copy(self) -> Clock:
        """Return an independent clock of the same times."""
        return Clock(self.times.copy())

    def join(self, other: Clock) -> None:
        """Learn all that `other` knows."""
        np.maximum(self.times, other.times, out=self.times)

    def tick(self, component: int) -> int:
        """Advance a component by one; return its new time."""
        self.times[component] += 1
        return int(self.times[component])

    def set(self, component: int, time: int) -> None:
        """Set a component's time."""
        self.times[component] = time

    def at(self, component: int) -> int:
        """Return the time that this clock knows of a component."""
        return int(self.times[component])

    def knows(self, component: int, time: int) -> bool:
        """Is the event at `time` of `component` ordered before what this clock's owner does next?"""
        return bool(self.times[component] >= time)


class Components:
    """Hands out the components of one program's clocks."""

    def __init__(self) -> None:
        self._next = 0

    def new(self) -> int:
        """Return a component that nobody has."""
        if self._next == CAPACITY:
            raise InterpreterError(f"more than {CAPACITY} partitions and barriers in one program")
        self._next += 1
        return self._next - 1


def joined(clocks: Iterable[Clock]) -> Clock:
    """Return the join of several clocks."""
    result = Clock()
    for clock in clocks:
        result.join(clock)
    return result
