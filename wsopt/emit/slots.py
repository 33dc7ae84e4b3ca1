"""Slots of rings as a role counts them: variables for the slot of each K-block, and for the phase of its barriers.

Both follow from the number of the K-block by a division, but that is a chain of dependent instructions in front of
every wait. Counted on from K-block to K-block they are there before the wait is. Rings of one depth share a counter.

Where arithmetic waits for products the loop has no registers to keep them in, and other work to do while it divides:
there counted slots take a hundredth more (`docs/calibration/h200_short_loops.json`), and the division stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlotCounter:
    """The variables of rings of one depth, whose names begin with `prefix`; `depth` is the constant of their slots.
    Those of a counter that is not `kept` are expressions of the K-block's number.

    Places count K-blocks from the one that the role's pass is at: 0 is that one, -1 the one before it.
    """

    prefix: str
    depth: str
    kept: bool = True

    def slot(self, place: int) -> str:
        """The variable with the slot of a K-block."""
        if not self.kept:
            return f"{step_at(place)} % {self.depth}"
        return f"{self.prefix}slot{_ending(place)}"

    def phase(self, place: int) -> str:
        """The variable with the phase that is complete when the slot of a K-block is full."""
        if not self.kept:
            return f"({step_at(place)} // {self.depth}) & 1"
        return f"{self.prefix}phase{_ending(place)}"

    def both(self, place: int) -> str:
        """Both variables."""
        return f"{self.slot(place)}, {self.phase(place)}"

    def next(self, place: int, before: int) -> str:
        """The line that counts on: the K-block at `place` has the slot behind that of the one at `before`."""
        return f"{self.both(place)} = next_slot({self.both(before)}, {self.depth})"


@dataclass(frozen=True, slots=True)
class Window:
    """A counter's places that a pass looks at: slots from the place `slots` on, phases from `phases`, none later than
    the iteration's last K-block.
    """

    counter: SlotCounter
    slots: int = 0
    phases: int = 0


def _ending(place: int) -> str:
    if not place:
        return ""
    return ("_before" if place < 0 else "_after") + (f"_{abs(place)}" if abs(place) > 1 else "")


def step_at(place: int) -> str:
    """The number of the K-block at a place, of all that the role has met."""
    return f"(step {'+' if place > 0 else '-'} {abs(place)})" if place else "step"


def first_step(counted: bool) -> list[str]:
    """The line that begins at the first K-block, where a role's text needs its number."""
    return ["step = 0"] if counted else []


def next_step(counted: bool, copies: int = 1) -> list[str]:
    """The line that goes on by an iteration's K-blocks, likewise."""
    return [f"step += {copies}"] if counted else []


def first_slots(windows: Iterable[Window], copies: int = 1, *, step: bool = False) -> Iterator[str]:
    """The lines that begin at the first slot, or with `step` where the counter of K-blocks is; an iteration has so
    many `copies`. What the first passes hand on to older places has a value before it is right.
    """
    for window in (one for one in windows if one.counter.kept):
        counter = window.counter
        yield f"{counter.slot(0)} = " + (f"step % {counter.depth}" if step else "0")
        yield f"{counter.phase(0)} = " + (f"(step // {counter.depth}) & 1" if step else "0")
        yield from (counter.next(place, place - 1) for place in range(1, copies))
        for place in range(window.slots + copies, 0):
            yield f"{counter.both(place)} = {counter.both(0)}"


def next_slots(windows: Iterable[Window], copies: int = 1) -> Iterator[str]:
    """The lines at the end of a pass, which go on by an iteration's `copies`."""
    for window in (one for one in windows if one.counter.kept):
        counter = window.counter
        for place in range(window.slots, 0):
            name = counter.both if place >= window.phases else counter.slot
            yield f"{name(place)} = {name(place + copies)}"
        yield from (counter.next(place, place - 1 if place else copies - 1) for place in range(copies))


def windows(counters: Iterable[SlotCounter]) -> tuple[Window, ...]:
    """Each counter once, for passes that look at nothing but their own K-blocks."""
    return tuple(map(Window, dict.fromkeys(counters)))
