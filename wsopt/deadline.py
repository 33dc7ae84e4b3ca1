"""Time limit of a whole command: past it, work that a result needs raises, and what else is skipped is told."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from wsopt.errors import TimeOverError

Progress = Callable[[str, int, int], None]
_SEARCH_SHARE = 0.6
"""Of the time, what a search may take: the rest is for the compiler and the simulation."""

_BOUNDING_SHARE = 0.3
"""Of the time, after which pieces of a cut are no longer bounded before kernels are made of them."""

_SAMPLES_SHARE = 0.4
"""Of the time, what the searches at the samples of a range may take: covers and kernels come after them."""

_SIMULATION_SHARE = 0.95
"""Of the time, after which no further interleaving is begun that can be left out."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A command that may take so many `seconds` from when it `began`, infinitely many where nobody limits it.

    Another process gets it by the time of day, as monotonic clocks of machines have nothing in common.
    """

    seconds: float = math.inf
    began: float = field(default_factory=time.monotonic)

    def __reduce__(self) -> tuple[Callable[[float, float], Deadline], tuple[float, float]]:
        """How another process makes it: from its seconds and the time of day at which it began."""
        return _begun, (self.seconds, time.time() - (time.monotonic() - self.began))

    @property
    def end(self) -> float:
        """The moment at which the time is over, by the monotonic clock."""
        return self.began + self.seconds

    @property
    def bounding_end(self) -> float:
        """The moment from which on a piece of a cut gets its kernel without a bound before."""
        return self.began + _BOUNDING_SHARE * self.seconds

    @property
    def samples_end(self) -> float:
        """The moment at which the searches at a range's samples are to be done."""
        return self.began + _SAMPLES_SHARE * self.seconds

    @property
    def search_end(self) -> float:
        """The moment at which a search that has found something leaves the rest open."""
        return self.began + _SEARCH_SHARE * self.seconds

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.end

    @property
    def simulation_end(self) -> float:
        """The moment at which a simulation that has seen each strategy is enough."""
        return self.began + _SIMULATION_SHARE * self.seconds

    def share(self, tasks: int, at_once: int, end: float = math.inf) -> float:
        """Seconds for each of so many tasks, of which so many are done at once, until the time is over or a moment
        before it.
        """
        left = min(end, self.end) - time.monotonic()
        return max(0.0, left) / math.ceil(max(1, tasks) / max(1, at_once))

    def bounded(self, name: str, progress: Progress) -> Progress:
        """`progress` that raises TimeOverError, with the stage that is not done, once the time is over."""

        def show(stage: str, done: int, total: int) -> None:
            if self.over:
                steps = f" ({done:,} of {total:,} steps)" if total else ""
                raise TimeOverError(
                    f"graph {name}: the {self.seconds:g} s of --time-limit were over in the stage {stage}{steps}, "
                    "which cannot be left out; give it more time"
                )
            progress(stage, done, total)

        return show


def _begun(seconds: float, time_of_day: float) -> Deadline:
    return Deadline(seconds, time.monotonic() - (time.time() - time_of_day))


UNLIMITED = Deadline()
"""All the time that it takes."""
