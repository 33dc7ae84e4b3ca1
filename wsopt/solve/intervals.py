"""The least II that has a schedule, by asking for one II after the other.

With II fixed a model has no products of variables and is decided in a hundredth of the work that it takes with
II free, so asking often is cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_TRIES = 200
"""How many II are asked for where one says nothing of others: more than separate a bound from what it bounds."""

Probe = Callable[[int], bool | None]


@dataclass(frozen=True, slots=True)
class Least:
    """No II below `bound` has a schedule; `found` says whether `bound` itself has one."""

    bound: int
    found: bool


def least_interval(probe: Probe, low: int, most: int, unit: int, *, steady: bool) -> Least:
    """Ask `probe` for multiples of `unit` from `low` to `most`: whether one has a schedule, or None if undecided.

    If it is `steady`, every II above one with a schedule has one too, and steps double until one is found, then
    halve. Otherwise each is asked for in turn. An undecided one ends it.
    """
    step, high = unit, most + unit
    for _ in range(_TRIES):
        if low >= high:
            break
        at = min(low + step - unit, low + (high - unit - low) // (2 * unit) * unit)
        answer = probe(at)
        if answer is None:
            break
        if answer:
            high, step = at, high
        else:
            low, step = at + unit, step * 2 if steady else step
    return Least(low, low == high <= most)
