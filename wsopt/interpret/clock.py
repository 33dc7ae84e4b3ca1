"""Vector clocks: the order of events that holds in every interleaving.

A component belongs to a partition (it counts the partition's operations) or to an mbarrier (it counts
the completed phases, so that the end of an asynchronous copy has a time too). An event at time `t` of
component `c` is ordered before all that a clock's owner does next iff the clock holds at least `t` at `c`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wsopt.interpret.faults import InterpreterError

if TYPE_CHECKING:
    from collections.abc import Iterable

CAPACITY = 384
Knowledge = Mapping[int, NDArray[np.int64]]
"""Times by block of the grid, in the components of each block's own clocks. Nobody changes one that exists."""


class Clock:
    """A mutable vector of times, with what is known of other blocks of the grid: nothing in most kernels."""

    __slots__ = ("others", "times")

    def __init__(self, times: NDArray[np.int64] | None = None, others: Knowledge | None = None) -> None:
        self.times = np.zeros(CAPACITY, np.int64) if times is None else times
        self.others = others

    def copy(self) -> Clock:
        """Return an independent clock of the same times."""
        return Clock(self.times.copy(), self.others)

    def join(self, other: Clock) -> None:
        """Learn all that `other` knows."""
        np.maximum(self.times, other.times, out=self.times)
        if other.others is not None and other.others is not self.others:
            self.others = merged(self.others or {}, other.others)

    def published(self, block: int) -> Knowledge:
        """Return all that this clock knows, for other blocks; its owner is in `block`."""
        return {**(self.others or {}), block: self.times.copy()}

    def learn(self, block: int, knowledge: Knowledge) -> None:
        """Learn what some block has published; the owner of this clock is in `block`."""
        if block in knowledge:
            np.maximum(self.times, knowledge[block], out=self.times)
        others = {number: times for number, times in knowledge.items() if number != block}
        self.others = merged(self.others or {}, others)

    def knows_of(self, block: int, component: int, time: int) -> bool:
        """Is an event of another block ordered before what this clock's owner does next?"""
        return (
            self.others is not None and block in self.others and bool(self.others[block][component] >= time)
        )

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


def merged(first: Knowledge, second: Knowledge) -> Knowledge:
    """Return what both know together."""
    result = dict(first)
    for block, times in second.items():
        known = result.get(block, times)
        result[block] = times if known is times else np.maximum(known, times)
    return result


def joined(clocks: Iterable[Clock]) -> Clock:
    """Return the join of several clocks."""
    result = Clock()
    for clock in clocks:
        result.join(clock)
    return result
