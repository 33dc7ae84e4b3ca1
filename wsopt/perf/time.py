"""What the predicted time of a kernel is made of: parts that no schedule changes, and lines in II."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.perf.contention import norm
from wsopt.perf.effective_ii import Line


@dataclass(frozen=True, slots=True)
class Waves:
    """The parts of the time that no schedule of this tile program changes, in cycles.

    `energy` is what an SM takes on the average, in cycles of its tensor core; `contended` is what an iteration
    takes at least where units and threads wait for one another. `between` is what a tile of such a loop takes
    beside its epilogue and all iterations but the `first`; `code` is the loops' instructions coming to an SM. Where
    device memory bounds the loop, the clock of the SMs, and with it the energy, does not count: it is not
    `clocked`. `floors` are microseconds of the bytes on the paths that all SMs share, in `idle` of which device
    memory has nothing to do before and behind loops of products.
    """

    waves: int
    start: float
    fill: float
    tail: float
    energy: float
    handover: float
    between: float = 0.0
    contended: float = 0.0
    first: float = 0.0
    code: float = 0.0
    clocked: bool = True
    floors: tuple[float, float] = (0.0, 0.0)
    idle: float = 0.0


NOTHING = Line(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Time:
    """Cycles of the busiest SM by II, not below `least`: `before`, `apart`, the norm of `lines` with the exponent
    `knee`, that of the `last` round's where it is another one, and `after`. `loop` are those of the loops alone, if
    they are not the norms themselves.
    """

    lines: tuple[Line, ...]
    loop: Line | None = None
    knee: float = math.inf
    before: float = 0.0
    after: float = 0.0
    least: float = 0.0
    apart: Line = NOTHING
    last: tuple[Line, ...] = ()

    def at(self, ii: float) -> float:
        """Cycles from the first block's start to the last store, whatever the clock."""
        own = max(ii, self.least)
        return self.before + self.apart.at(own) + self._norm(own) + self.after

    def main(self, ii: float) -> float:
        """Those of these cycles that are spent in loops, and until blocks that begin later are in theirs."""
        return self.apart.at(ii) + self._norm(ii) if self.loop is None else self.loop.at(ii)

    def _norm(self, ii: float) -> float:
        """The norm of lines, and that of the last round's."""
        rounds = (tuple(line.at(ii) for line in lines) for lines in (self.lines, self.last) if lines)
        return math.fsum(max(parts) if self.knee == math.inf else norm(parts, self.knee) for parts in rounds)
