"""Where tensors between kernels lie: one workspace, in which a tensor takes the place of those that are read no more.

Kernels run one after the other, and one that a launch lets begin early waits for the end of the one before it before
it reads what that may write, or writes itself. So a tensor's place is its own from the kernel that writes it to the
last one that reads it, both included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from wsopt.solve.worker import has_solution, solved

ALIGNMENT = 256
"""Bytes of which each place is a multiple: what a tensor that is allocated alone begins at."""
_LIMIT = 4.0
"""Deterministic time of the model."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A tensor's bytes, and the first and the last step at which it has to be kept."""

    nbytes: int
    first: int
    last: int

    @property
    def units(self) -> int:
        """The place it takes, in units of the alignment."""
        return math.ceil(self.nbytes / ALIGNMENT)


def places(lifetimes: Sequence[Lifetime]) -> tuple[int, ...]:
    """Offsets in bytes, such that tensors that are kept at the same step do not overlap and the end is the lowest."""
    if not lifetimes:
        return ()
    first = _stacked(lifetimes)
    top = max(place + one.units for place, one in zip(first, lifetimes, strict=True))
    model = cp_model.CpModel()
    end = model.new_int_var(_most_at_once(lifetimes), top, "end")
    begins = [model.new_int_var(0, top - one.units, f"begin_{n}") for n, one in enumerate(lifetimes)]
    rows = [
        model.new_fixed_size_interval_var(begin, one.units, f"row_{n}")
        for n, (begin, one) in enumerate(zip(begins, lifetimes, strict=True))
    ]
    steps = [
        model.new_fixed_size_interval_var(one.first, one.last - one.first + 1, f"steps_{n}")
        for n, one in enumerate(lifetimes)
    ]
    model.add_no_overlap_2d(rows, steps)
    for begin, place, one in zip(begins, first, lifetimes, strict=True):
        model.add(begin + one.units <= end)
        model.add_hint(begin, place)
    model.minimize(end)
    solver, status = solved(model, _LIMIT)
    found = [solver.value(b) for b in begins] if has_solution(status) else first
    return tuple(begin * ALIGNMENT for begin in found)


def _most_at_once(lifetimes: Sequence[Lifetime]) -> int:
    """The units that are needed at the step at which most are."""
    steps = range(max(one.last for one in lifetimes) + 1)
    return max(sum(one.units for one in lifetimes if one.first <= step <= one.last) for step in steps)


def _stacked(lifetimes: Sequence[Lifetime]) -> list[int]:
    """Places that do not overlap: each the lowest that is free, larger tensors first."""
    found: dict[int, int] = {}
    for n in sorted(range(len(lifetimes)), key=lambda n: (-lifetimes[n].units, n)):
        one = lifetimes[n]
        together = sorted(
            (found[m], found[m] + lifetimes[m].units)
            for m in found
            if lifetimes[m].first <= one.last and one.first <= lifetimes[m].last
        )
        place = 0
        for begin, end in together:
            if place + one.units <= begin:
                break
            place = max(place, end)
        found[n] = place
    return [found[n] for n in range(len(lifetimes))]
