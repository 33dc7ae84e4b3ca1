"""A small deterministic simulation of events: threads that wait for one another, and units that serve in turn."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass, field

Until = float | Hashable
"""What a thread waits for: a time, or the key of an event."""

Thread = Generator[Until, float, None]
"""A thread: it yields what it waits for, and is sent the time at which it goes on."""


@dataclass(slots=True)
class Fifo:
    """A unit that serves first come, first served. Requests have to come in the order of time."""

    free: float = 0.0

    def take(self, time: float, cycles: float) -> float:
        """Hold the unit for so many cycles from `time` on, or from when it is free; when that ends."""
        self.free = max(self.free, time) + cycles
        return self.free


@dataclass(slots=True)
class Events:
    """The events of a simulation by key, each with its time, which may lie ahead of the threads."""

    happened: dict[Hashable, float] = field(default_factory=dict)
    _ready: list[tuple[float, int]] = field(default_factory=list)
    _parked: dict[Hashable, list[tuple[float, int]]] = field(default_factory=dict)

    def happens(self, key: Hashable, time: float) -> None:
        """Note an event, once; threads that wait for it go on then."""
        assert key not in self.happened, f"{key} happens once"
        self.happened[key] = time
        for since, number in self._parked.pop(key, ()):
            heapq.heappush(self._ready, (max(since, time), number))

    def run(self, threads: Sequence[Thread]) -> None:
        """Run all threads to their ends, always the one that is furthest behind, of several the first.

        What they ask of units comes in the order of time so. Raises RuntimeError if some wait for events that never
        happen.
        """
        self._ready = [(0.0, number) for number in range(len(threads))]
        begun = set[int]()
        while self._ready:
            time, number = heapq.heappop(self._ready)
            thread = threads[number]
            try:
                wanted = thread.send(time) if number in begun else next(thread)
            except StopIteration:
                continue
            begun.add(number)
            self._wait(wanted, time, number)
        if self._parked:
            raise RuntimeError(f"threads wait for {sorted(map(str, self._parked))}, which never happen")

    def _wait(self, wanted: Until, time: float, number: int) -> None:
        if isinstance(wanted, int | float):
            heapq.heappush(self._ready, (max(time, wanted), number))
        elif wanted in self.happened:
            heapq.heappush(self._ready, (max(time, self.happened[wanted]), number))
        else:
            self._parked.setdefault(wanted, []).append((time, number))
