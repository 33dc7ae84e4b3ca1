"""Stamps of a traced kernel: readings of the SM's clock that one thread of a role writes down.

A traced kernel is the plain one with stamps between its instructions and one output more, the records. A stamp is a
read of the clock and a store under a mask: nothing waits for it, and its place follows from the tile and from `step`,
so that a loop carries nothing for it. Where each stamp lies among the records is said in `records.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from wsopt.emit.instructions import Instruction

WORDS = frozenset(
    (
        *("stamp", "records", "record", "passes", "until", "traced", "taken"),
        *("TRACED_BLOCKS", "TRACED_TILES", "TRACED_K_BLOCKS", "BLOCK_RECORDS"),
    )
)
"""Names that a traced kernel's text takes for itself, beside the constants of each role (`records.py`)."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Extent of a trace: the first `blocks` of the grid, their first `tiles`, the first `iterations` of each tile.

    One that is not `run` is read: stamps say whose lines are whose, also in kernels that no records fit.
    """

    blocks: int = 8
    tiles: int = 4
    iterations: int = 64
    run: bool = True


READ = Trace(1, 1, 1, run=False)
"""Stamps in a text that nobody runs."""


class Point(StrEnum):
    """Moment of an operation: its thread has come to its waits, or it has passed them and starts."""

    REACHED = "reached"
    START = "start"


@dataclass(frozen=True, slots=True)
class Event:
    """A place in a role's text that has a stamp: a moment of an operation, by the text of its id.

    `masked` is the loop over K-blocks that masks touch, where there is one.
    """

    op: str
    point: Point
    masked: bool = False


class Wait(str):
    """A line that waits: the operation that it belongs to starts behind it."""

    __slots__ = ()


def tile_stamp(number: int) -> str:
    """The stamp of an event that a tile has once."""
    return f"stamp(record + {number}, traced)"


def loop_stamp(function: str, step: str, number: int) -> str:
    """The stamp of an event of a pass of a role's function, whose counter of K-blocks is `step`."""
    return f"stamp(passes + {step} * {function.upper()}_PASS_STAMPS + {number}, {step} < until)"


def between(instructions: Iterable[Instruction], reached: str, start: str) -> Sequence[Instruction]:
    """The instructions of an operation with its stamps: before its waits if it has any, and behind them. Where a
    kernel is not traced they are empty.
    """
    found = list(instructions)
    if not start:
        return found
    waits = [place for place, one in enumerate(found) if isinstance(one, Wait)]
    if not waits:
        return [start, *found]
    return [*found[: waits[0]], reached, *found[waits[0] : waits[-1] + 1], start, *found[waits[-1] + 1 :]]
