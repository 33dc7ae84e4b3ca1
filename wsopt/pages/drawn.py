"""What a picture along time is made of: rows, bars on them, arrows between bars, and bands behind them.

Times are cycles of an SM. Pictures are plain data: the page draws them, and tests hold them against the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a picture: a unit or a role (`kind`), or what was measured of a role."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from `begin` to `end` on the row of this number, for an operation by its text, or for what `label` says.

    One that `waits` is time that a thread stands; one that `goes` on, or `comes`, is cut at an end of the interval.
    """

    row: int
    begin: float
    end: float
    op: str = ""
    iteration: int = 0
    label: str = ""
    waits: bool = False
    goes: bool = False
    comes: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """What one operation tells another through a barrier: from the row and time of its result to those of a start.

    `slack` are the cycles by which the result may come later.
    """

    source: str
    target: str
    from_row: int
    begin: float
    to_row: int
    end: float
    iteration: int
    slack: float


@dataclass(frozen=True, slots=True)
class Band:
    """A part of the time that has a name: `steady` for the steady state."""

    name: str
    kind: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of `total` cycles. `view` is what is shown first."""

    rows: tuple[Row, ...]
    bars: tuple[Bar, ...]
    arrows: tuple[Arrow, ...]
    bands: tuple[Band, ...]
    total: float
    view: tuple[float, float]
