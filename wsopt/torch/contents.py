"""Integers and truth values whose contents are known, said as numbers and as indices along dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from wsopt.torch.affine import Affine, constant
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer, number

Array = npt.NDArray[Any]


def said_indices(w: Writer, found: Array) -> Value:
    """An array of integers or truth values as one number, or as a sum of indices times numbers.

    Raises Untaken for any other.
    """
    return said_affine(w, affine_of(found), truth=found.dtype == np.bool_)


def affine_of(found: Array) -> Affine:
    """An array of integers or truth values as an affine function of its indices. Raises Untaken for any other."""
    if found.size == 0:
        raise Untaken("no elements")
    first = int(found.flat[0])
    if found.dtype == np.bool_:
        if not (found == found.flat[0]).all():
            raise Untaken("truth values that differ")
        return constant(first, found.shape)
    steps = tuple(_step(found, axis) for axis in range(found.ndim))
    told = np.full(found.shape, first, np.int64)
    for axis, step in _moving(steps):
        along = np.arange(found.shape[axis]) * step
        told += along.reshape([-1 if other == axis else 1 for other in range(found.ndim)])
    if not np.array_equal(told, found):
        raise Untaken("integers that are no indices")
    return Affine(found.shape, first, steps)


def said_affine(w: Writer, found: Affine, *, truth: bool) -> Value:
    """Integers as one number, or as a sum of indices times numbers; or one truth value. Raises Untaken where nodes
    would hold more than they can.
    """
    if found.is_constant:
        return number(bool(found.first) if truth else found.first, found.shape)
    sums = [_scaled(w, w.index(found.shape, axis), step) for axis, step in _moving(found.steps)]
    total = sums[0]
    for one in sums[1:]:
        total = w.elementwise("add", total, one)
    return total if found.first == 0 else w.elementwise("add", total, number(found.first))


def _moving(steps: Sequence[int]) -> Iterator[tuple[int, int]]:
    return ((axis, step) for axis, step in enumerate(steps) if step)


def _step(found: Array, axis: int) -> int:
    """By how much the first elements along a dimension differ."""
    if found.shape[axis] == 1:
        return 0
    line = np.moveaxis(found, axis, 0).reshape(found.shape[axis], -1)[:2, 0]
    return int(line[1]) - int(line[0])


def _scaled(w: Writer, index: Value, step: int) -> Value:
    return index if step == 1 else w.elementwise("mul", index, number(step))
