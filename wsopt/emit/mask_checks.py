"""Conditions of a graph's masks at a call's extents, which the launcher checks.

Where masks end every row before the streamed axis does, nothing else leaves out what a K-block holds beyond that end.
And where a number in them was taken for minus infinity, a row of nothing but that number would be another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

from wsopt.emit.integers import Integer, Name, add, maximum, minimum, multiply
from wsopt.emit.recipe import Check, Relation
from wsopt.program.ranges import Bounds
from wsopt.tensors.views import Bound

_ROWS, _STREAM = Name("row_extent"), Name("stream_extent")
_LAST_ROW, _LAST = add(_ROWS, -1), add(_STREAM, -1)


def mask_checks(bounds: Bounds) -> tuple[Check, ...]:
    """All that has to hold of the masks at the extents of a call."""
    return (*_ends(bounds), *_full_rows(bounds))


def _ends(bounds: Bounds) -> Iterator[Check]:
    """The mask that keeps the fewest elements keeps none beyond the end, for any row."""
    if bounds.masked:
        edges = [bound for bound in bounds.every if bound.stream < 0]
        last = _least(maximum(_edge(b, 0), _edge(b, _LAST_ROW)) if b.row else b.constant for b in edges)
        yield _check(bounds, last, _LAST, "the masks do not end every row before the axis ends, as they do")


def _full_rows(bounds: Bounds) -> Iterator[Check]:
    """The last row has an element that all masks keep; of the first one they know that already."""
    if not bounds.full_rows:
        return
    told = "the masks leave rows without an element, as they do not"
    for bound in bounds.every:
        if bound.stream == 0 and bound.row < 0:
            yield _check(bounds, 0, _edge(bound, _LAST_ROW), told)
    lower = [bound for bound in bounds.every if bound.stream > 0]
    upper = [bound for bound in bounds.every if bound.stream < 0]
    if any(b.row < 0 or b.constant < 0 for b in lower) or any(b.row < 0 for b in upper):
        start: Integer = 0
        first = reduce(maximum, [multiply(-1, _edge(b, _LAST_ROW)) for b in lower], start)
        last = _least([*(_edge(b, _LAST_ROW) for b in upper), _LAST])
        yield _check(bounds, first, last, told)


def _check(bounds: Bounds, left: Integer, right: Integer, told: str) -> Check:
    """A check of left <= right, with the extents in its words."""
    compiled = f"at {bounds.rows} and {bounds.stream}: compile the graph at these extents"
    message = ("with ", _ROWS, " rows and ", _STREAM, f" elements of the streamed axis {told} {compiled}")
    return Check(left, Relation.AT_MOST, right, message)


def _least(values: Iterable[Integer]) -> Integer:
    return reduce(minimum, values)


def _edge(bound: Bound, row: Integer) -> Integer:
    return add(multiply(bound.row, row), bound.constant)
