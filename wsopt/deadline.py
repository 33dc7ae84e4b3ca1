"""The time that a whole command may take: what has to be done raises then, the rest is skipped and told."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from wsopt.errors import TimeOverError

Progress = Callable[[str, int, int], None]
_SEARCH_SHARE = 0.6
"""Of the time, what a search may take: the rest is for the compiler and the simulation."""

_SIMULATION_SHARE = 0.95
"""Of the time, after which no further interleaving is begun that can be left out."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A command that may take so many `seconds` from when it `began`, infinitely many where nobody limits it."""

    seconds: float = math.inf
    began: float = field(default_factory=time.monotonic)

    @property
    def end(self) -> float:
        """The moment at which the time is over, by the monotonic clock."""
        return self.began + self.seconds

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


UNLIMITED = Deadline()
"""All the time that it takes."""
