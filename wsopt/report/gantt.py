"""A Gantt chart of one period in characters: bars on named rows over an axis of cycles, wrapped at its end.

A pure function of its rows. A bar is drawn to scale and at least one character wide; a label that does not
fit inside stands beside its bar, and what has no room left on a line goes to a further line of the same row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

MIN_COLUMNS = 24
"""Fewest characters that the time axis may have."""

_STEPS = (1, 2, 5)
_LINE, _OPEN, _CLOSE, _ON, _BACK, _NARROW = "━", "┣", "┫", "▶", "◀", "┃"


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from `start` for `length` cycles; what passes the end of the period goes on at its beginning."""

    label: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Row:
    """A named line of the chart."""

    name: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A bar, or the part of one on one side of the period's end, in columns: `first` to before `last`."""

    label: str
    first: int
    last: int
    comes: bool
    goes: bool

    @property
    def text(self) -> str:
        """The bar, with its label where that fits inside."""
        size = self.last - self.first
        left = _BACK if self.comes else _OPEN
        right = _ON if self.goes else _CLOSE
        if size == 1:
            return _NARROW if not (self.comes or self.goes) else (left if self.comes else right)
        inside = self.label if len(self.label) <= size - 2 else ""
        return left + inside.ljust(size - 2, _LINE) + right

    @property
    def fits(self) -> bool:
        """Whether the label stands inside the bar."""
        return len(self.label) <= self.last - self.first - 2


def pieces(bar: Bar, period: int, columns: int) -> tuple[Piece, ...]:
    """A bar to scale, in two pieces where it passes the period's end.

    Raises ValueError for a bar that starts outside the period, is empty, or is longer than the period.
    """
    if not (0 <= bar.start < period and 0 < bar.length <= period):
        raise ValueError(f"bar {bar.label}: {bar.length} cycles from {bar.start} in a period of {period}")
    end = bar.start + bar.length
    if end <= period:
        return (_piece(bar.label, bar.start, end, period, columns, False, False),)
    return (
        _piece(bar.label, bar.start, period, period, columns, False, True),
        _piece(bar.label, 0, end - period, period, columns, True, False),
    )


def _piece(label: str, start: int, end: int, period: int, columns: int, comes: bool, goes: bool) -> Piece:
    first = start * columns // period
    return Piece(label, first, max(first + 1, end * columns // period), comes, goes)


def _written(piece: Piece, columns: int) -> tuple[int, str]:
    """Where a piece starts and what is written for it, its label beside it if that does not fit inside."""
    if piece.fits or not piece.label:
        return piece.first, piece.text
    after, before = columns - piece.last, piece.first
    if after >= min(len(piece.label), before):
        return piece.first, piece.text + piece.label[:after]
    label = piece.label[:before]
    return piece.first - len(label), label + piece.text


def _lanes(row: Row, period: int, columns: int) -> list[str]:
    """The lines of a row: every piece on the first line where it does not touch what stands there."""
    lanes: list[list[str]] = [[" "] * columns]
    for bar in row.bars:
        for piece in _labelled(pieces(bar, period, columns)):
            first, text = _written(piece, columns)
            _put(lanes, first, text, columns, contention=len(text) > piece.last - piece.first)
    return ["".join(lane).rstrip() for lane in lanes]


def _labelled(found: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Of a bar in two pieces, one that has no room for the label goes without where the other has."""
    if not any(piece.fits for piece in found):
        return found
    return tuple(piece if piece.fits else replace(piece, label="") for piece in found)


def _put(lanes: list[list[str]], first: int, text: str, columns: int, contention: bool) -> None:
    """Write `text` on the first line that has room; beside a label outside its bar one blank is kept."""
    for lane in lanes:
        room = lane[max(0, first - contention) : first + len(text) + contention]
        if all(cell == " " for cell in room):
            break
    else:
        lane = [" "] * columns
        lanes.append(lane)
    lane[first : first + len(text)] = text


def tick_step(period: int, columns: int) -> int:
    """Cycles between ticks: 1, 2 or 5 times a power of ten, with room for a label and two blanks."""
    room = len(f"{period:,}") + 2
    scale = 1
    while True:
        for factor in _STEPS:
            if factor * scale * columns >= room * period:
                return factor * scale
        scale *= 10


def _ticks(period: int, columns: int) -> Iterator[tuple[int, str]]:
    """Columns and labels of the axis: regular ticks as far as their labels leave room, and the end."""
    room = columns - len(f"{period:,}")
    for cycle in range(0, period, tick_step(period, columns)):
        column, label = cycle * columns // period, f"{cycle:,}"
        if column + len(label) <= room:
            yield column, label
    yield columns, f"{period:,}"


def _axis(period: int, columns: int) -> tuple[str, str]:
    """The line of labels and the line of ticks; the last label ends at the last tick."""
    labels = [" "] * (columns + 1)
    ruler = ["─"] * (columns + 1)
    for column, label in _ticks(period, columns):
        ruler[column] = "├" if column == 0 else "┤" if column == columns else "┼"
        first = min(column, columns + 1 - len(label))
        labels[first : first + len(label)] = label
    return "".join(labels), "".join(ruler)


def chart(rows: Sequence[Row], period: int, width: int) -> list[str]:
    """The lines of a chart of one period of `period` cycles, none longer than `width` characters.

    Raises ValueError where names leave the axis less than `MIN_COLUMNS`, and for bars outside the period.
    """
    margin = max(len("cycle"), *(len(row.name) for row in rows)) + 2
    columns = width - margin - 1
    if columns < MIN_COLUMNS:
        raise ValueError(
            f"a chart of {width} characters leaves {columns} for its axis, it needs {MIN_COLUMNS}"
        )
    labels, ruler = _axis(period, columns)
    lines = ["cycle".ljust(margin) + labels, " " * margin + ruler]
    for row in rows:
        for place, lane in enumerate(_lanes(row, period, columns)):
            lines.append((("" if place else row.name).ljust(margin) + lane).rstrip())
    return lines
