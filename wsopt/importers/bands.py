"""Arrays whose contents are known, said by indices: a causal mask becomes a comparison of them.

A kernel knows from such a comparison which blocks of keys a mask leaves out. Of an array in memory it knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from wsopt.torch.contents import said_indices
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer, number

Array = npt.NDArray[Any]

LEAST = -65504.0
"""The least number of f16. A float mask has this or less where it leaves something out, and 0 elsewhere."""
_SLOPES = (0, 1, -1)
"""By how much a bound may move from row to row where one row alone shows it."""


def said(w: Writer, found: Array) -> Value:
    """An array as a number, as a sum of indices, as a band of truth values, or as a choice by one of two numbers.

    Raises Untaken for any other.
    """
    if found.size == 0:
        raise Untaken("no elements")
    if found.dtype == np.bool_ and not _is_uniform(found):
        return _band(w, found)
    if found.dtype == np.bool_ or found.dtype.kind in "iu":
        return said_indices(w, found)
    wide = found.astype(np.float32)
    if _is_uniform(wide):
        return number(float(wide.flat[0]), found.shape)
    one, other = two_values(wide)
    condition = _band(w, wide == one)
    return w.elementwise("where", condition, number(one), number(other))


def is_mask(found: Array) -> bool:
    """Whether an array of floats has two values: 0, and one that no score is added to and stays."""
    try:
        return min(two_values(found.astype(np.float32))) <= LEAST and 0.0 in two_values(found)
    except Untaken:
        return False


def two_values(found: Array) -> tuple[float, float]:
    """The two values of an array, that of its first element first. Raises Untaken if it has others, or one alone."""
    first = found.flat[0]
    rest = found[found != first]
    if rest.size == 0 or not (rest == rest[0]).all():
        raise Untaken("numbers that follow no rule")
    return float(first), float(rest[0])


def _is_uniform(found: Array) -> bool:
    return bool((found == found.flat[0]).all())


def _band(w: Writer, found: Array) -> Value:
    """Truth values that, along one dimension, hold from a bound to a bound, both moving evenly along another one."""
    moving = [axis for axis in range(found.ndim) if not (found == found.take([0], axis)).all()]
    for row, column in _pairs(found.ndim, moving):
        plane = _plane(found, row, column)
        conditions = _conditions(plane)
        if conditions is not None:
            return _written(w, found.shape, row, column, conditions)
    raise Untaken("truth values that are no band of indices")


def _pairs(rank: int, moving: list[int]) -> Iterator[tuple[int | None, int]]:
    """Dimensions that may be a band's rows and columns: a band of one dimension has the same bounds in all rows."""
    if len(moving) == 1:
        yield None, moving[0]
    elif len(moving) == 2:
        yield moving[0], moving[1]
        yield moving[1], moving[0]


def _plane(found: Array, row: int | None, column: int) -> Array:
    """The truth values along rows and columns, other dimensions at their first index."""
    first = tuple(slice(None) if axis in (row, column) else 0 for axis in range(found.ndim))
    plane = found[first]
    if row is None:
        return plane.reshape(1, -1)
    return plane if row < column else plane.T


Bound = tuple[int, int]
"""A line: how much it moves from row to row, and where it stands in row 0."""


def _conditions(plane: Array) -> tuple[Bound | None, Bound | None] | None:
    """The first column of each row that holds, and the first behind it that does not; None where all columns do.

    Nothing at all for a plane that is no band.
    """
    rows, columns = plane.shape
    index = np.arange(columns)
    held = np.flatnonzero(plane.any(axis=1))
    low = plane.argmax(axis=1)[held]
    high = columns - plane[:, ::-1].argmax(axis=1)[held]
    for first in _lines(held, low, low > 0):
        for last in _lines(held, high, high < columns):
            at = np.arange(rows)[:, None]
            told = np.ones_like(plane)
            if first is not None:
                told &= index >= first[0] * at + first[1]
            if last is not None:
                told &= index < last[0] * at + last[1]
            if np.array_equal(told, plane):
                return first, last
    return None


def _lines(rows: Array, ends: Array, inside: Array) -> Iterator[Bound | None]:
    """The lines on which bounds may lie, judged by rows where they are inside of the plane; None where none is."""
    at, told = rows[inside], ends[inside]
    if at.size == 0:
        yield None
    elif at.size == 1:
        for slope in _SLOPES:
            yield slope, int(told[0]) - slope * int(at[0])
    else:
        slope = (int(told[1]) - int(told[0])) // (int(at[1]) - int(at[0]))
        yield slope, int(told[0]) - slope * int(at[0])


def _written(
    w: Writer,
    shape: tuple[int, ...],
    row: int | None,
    column: int,
    bounds: tuple[Bound | None, Bound | None],
) -> Value:
    """The comparisons that say a band."""
    first, last = bounds
    found = None
    if first is not None:
        found = w.elementwise("greater_equal", w.index(shape, column), _line(w, shape, row, first))
    if last is not None:
        end = (last[0], last[1] - 1)
        below = w.elementwise("less_equal", w.index(shape, column), _line(w, shape, row, end))
        found = below if found is None else w.elementwise("logical_and", found, below)
    assert found is not None, "truth values that differ have a bound"
    return found


def _line(w: Writer, shape: tuple[int, ...], row: int | None, line: Bound) -> Value:
    slope, start = line
    if row is None or slope == 0:
        return number(start)
    index = w.index(shape, row)
    moved = index if slope == 1 else w.elementwise("mul", index, number(slope))
    return moved if start == 0 else w.elementwise("add", moved, number(start))
