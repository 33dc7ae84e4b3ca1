"""Pipeline ramp: cycles of iterations outside the steady state, by the slots of the ring.

In the steady state an iteration of products takes II, which the ring's effective II is in. A block begins with all
slots free, and while it is in an epilogue its loader goes on: so many iterations as there are slots for need not wait
for one to come back. In the tail wave few SMs share the paths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from wsopt.machine.types import Machine
from wsopt.perf.effective_ii import steady_loop
from wsopt.perf.held import held_cycles, issue_cycles
from wsopt.program.program import TileProgram, Unit


@dataclass(frozen=True, slots=True)
class Line:
    """Cycles as a function of the initiation interval: `slope * ii + base`."""

    slope: float
    base: float

    def at(self, ii: float) -> float:
        """The cycles at this interval."""
        return self.slope * ii + self.base

    def plus(self, other: Line, times: float = 1.0) -> Line:
        """The sum with so many times the other."""
        return Line(self.slope + times * other.slope, self.base + times * other.base)


@dataclass(frozen=True, slots=True)
class Ramps:
    """Cycles of an iteration besides II, the one of the steady state; `slots` are those of the ring, in iterations.

    `product` is one whose K-blocks are all there, `ahead` one whose K-blocks need no slot to come back, `least` what
    the ring and the paths take in the steady state; `last` and `last_ahead` are `least` and `ahead` in the tail
    wave.
    """

    slots: float
    product: float
    ahead: float
    least: float
    last_ahead: float
    last: float

    def loop(self, passes: float) -> Line:
        """A tile's loop of so many iterations, all slots free before it; its first K-block's copy is left out."""
        return self._loop(passes, Line(1.0, 0.0), self.ahead)

    def last_loop(self, passes: float) -> Line:
        """A tile's loop in the tail wave."""
        return self._loop(passes, self.last_ramp, self.last_ahead)

    @property
    def last_ramp(self) -> Line:
        """An iteration in the tail wave: shorter than II by what its ring and its paths are."""
        return Line(1.0, self.last - self.least)

    def held_to(self, ii: float) -> Ramps:
        """The ramps of a loop of this interval; one below the ring's effective II saves nothing in the tail wave."""
        return self if ii >= self.least else replace(self, last=self.least)

    def slack(self, passes: float) -> Line:
        """Upper bound on the cycles of loading that the loader can hide under an epilogue, as a line in II."""
        slots = min(passes, self.slots)
        return Line(slots, -slots * self.product)

    def _loop(self, passes: float, ramp: Line, ahead: float) -> Line:
        slots = min(passes, self.slots)
        first, further = min(1.0, slots), max(0.0, slots - 1)
        free = Line(0.0, first * self.product + further * ahead)
        return free.plus(ramp, passes - first - further)


def ramps(program: TileProgram, machine: Machine, slots: int) -> Ramps | None:
    """The iterations of a loop of products with a ring of so many slots; one of none counts as one of one. None where
    rings have no effective II of their own.
    """
    s, demand, last_demand = program.structure, program.demand, program.last_demand
    if demand is None or last_demand is None:
        return None
    slots = max(1, slots)
    steady = last = steady_loop(demand, machine, slots)
    if last_demand != demand:
        last = steady_loop(last_demand, machine, slots)
    units = [cycles for unit, cycles in held_cycles(program).items() if unit != Unit.TMA]
    product = max(*units, *issue_cycles(program).values())
    least = math.ceil(s.copies * steady.k_block)
    return Ramps(
        slots=slots / s.copies,
        product=product,
        ahead=max(product, s.copies * steady.ahead),
        least=least,
        last_ahead=max(product, s.copies * min(last.ahead, steady.ahead)),
        last=min(least, max(product, math.ceil(s.copies * last.k_block))),
    )
