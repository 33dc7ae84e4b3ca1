"""What moves a window over images: convolutions as products of joined neighbours, and pools.

An image is [batch, channels, *extents], a convolution's weight [channels out, channels in of a group, *window].
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wsopt.importers.joins import joined
from wsopt.torch.repeats import written_out
from wsopt.torch.values import Shape, Untaken, Value
from wsopt.torch.writer import Writer, number

_ALIGNMENT = 16
"""Bytes, at multiples of which rows that are copied begin."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window of these extents: its steps from place to place, the steps between what it sees, and the room before
    and behind an image into which it may reach.
    """

    extents: Shape
    strides: Shape
    dilations: Shape
    low: Shape
    high: Shape

    @property
    def size(self) -> int:
        """Elements that it sees at once."""
        return math.prod(self.extents)

    @property
    def is_patches(self) -> bool:
        """Whether it sees each element once: steps as long as it is, and no room around the image."""
        return self.extents == self.strides and not self.reaches_out and set(self.dilations) <= {1}

    @property
    def reaches_out(self) -> bool:
        """Whether it sees what is not of the image."""
        return any((*self.low, *self.high))

    def places(self, image: Shape) -> Shape:
        """How many places it has along each extent of an image. Raises Untaken where there is none."""
        found = tuple(
            (extent + low + high - dilation * (own - 1) - 1) // stride + 1
            for extent, low, high, dilation, own, stride in zip(
                image, self.low, self.high, self.dilations, self.extents, self.strides, strict=True
            )
        )
        if min(found) < 1:
            raise Untaken(f"a window of {list(self.extents)} over an image of {list(image)}")
        return found

    def seen(self, w: Writer, padded: Value, places: Shape, first: int) -> Iterator[Value]:
        """For each element of the window what it sees there at all places, of an image with the room around it whose
        extents begin at dimension `first`.
        """
        for at in itertools.product(*map(range, self.extents)):
            found = padded
            for axis, (own, count) in enumerate(zip(at, places, strict=True)):
                start, stride = own * self.dilations[axis], self.strides[axis]
                stop = start + (count - 1) * stride + 1
                if (start, stop, stride) != (0, found.shape[first + axis], 1):
                    found = w.slice(found, first + axis, start, stop, stride)
            yield found

    def with_room(self, w: Writer, image: Value, behind: int = 0) -> Value:
        """An image with zeros around it; `behind` dimensions follow its extents."""
        ends = [(0, 0)] * behind + list(zip(self.low, self.high, strict=True))[::-1]
        return w.pad(image, ends) if self.reaches_out else image


# --- convolutions ---------------------------------------------------------------------------------------


def convolved(
    w: Writer, x: Value, weight: Value, bias: Value | None, window: Window, groups: int = 1
) -> Value:
    """A convolution: of one element a product of channels, of one channel a group a sum, of patches and else a
    product of joined neighbours.
    """
    x = written_out(w, x)
    batch, channels, *image = x.shape
    outer, rank = weight.shape[0], len(image)
    places = window.places(tuple(image))
    if window.size == 1 and groups == 1 and set(window.strides) == {1} and not window.reaches_out:
        flat = w.view(x, (batch, channels, math.prod(image)))
        found = w.matmul(w.view(weight, (1, outer, channels)), flat)
        return _biased(w, w.view(found, (batch, outer, *places)), bias)
    if channels == groups == outer:
        return _biased(w, _of_each_channel(w, x, weight, window, places), bias)
    rows = math.prod((batch, *places))
    if groups == 1 and window.is_patches:
        near = w.view(_patches(w, x, window, places), (rows, channels * window.size))
        found = w.matmul(near, w.view(weight, (outer, channels * window.size)), transpose_b=True)
    else:
        last, weight = _whole_rows(w, _moved(w, x, 1, rank + 1), weight, groups)
        padded = window.with_room(w, last, 1)
        found = _of_neighbours(w, list(window.seen(w, padded, places, 1)), weight, rows, groups)
    return _biased(w, _moved(w, w.view(found, (batch, *places, outer)), rank + 1, 1), bias)


def _whole_rows(w: Writer, last: Value, weight: Value, groups: int) -> tuple[Value, Value]:
    """An image and a weight with zeros behind their channels, so that those of a place begin at multiples of 16
    bytes, as rows that are copied have to.
    """
    missing = -last.shape[-1] % (8 * _ALIGNMENT // w.dtype(last).bits)
    if groups != 1 or not missing:
        return last, weight
    behind = [(0, 0)] * (len(weight.shape) - 2)
    return w.pad(last, [(0, missing)]), w.pad(weight, [*behind, (0, missing)])


def _of_neighbours(w: Writer, seen: Sequence[Value], weight: Value, rows: int, groups: int) -> Value:
    """A product of what a window sees at each place, joined along channels, which are last: [rows, channels out]."""
    outer, inner, *window = weight.shape
    turned = _moved(w, weight, 1, len(weight.shape) - 1)  # channels are last here, too
    wide = inner * math.prod(window)
    if groups == 1:
        near = w.view(joined(w, seen, len(seen[0].shape) - 1), (rows, wide))
        return w.matmul(near, w.view(turned, (outer, wide)), transpose_b=True)
    apart = [w.view(one, (rows, groups, inner)) for one in seen]
    near = w.permute(joined(w, apart, 2), (1, 0, 2))
    found = w.matmul(near, w.view(turned, (groups, outer // groups, wide)), transpose_b=True)
    return w.view(w.permute(found, (1, 0, 2)), (rows, outer))


def _of_each_channel(w: Writer, x: Value, weight: Value, window: Window, places: Shape) -> Value:
    """The convolution of each channel by itself: no product, but a sum of what its window sees times weights."""
    channels, rank = x.shape[1], len(places)
    flat = w.view(weight, (channels, window.size))
    terms = [
        w.elementwise(
            "mul", one, w.view(w.slice(flat, 1, at, at + 1) if window.size > 1 else flat, (channels, *(1,) * rank))
        )
        for at, one in enumerate(window.seen(w, window.with_room(w, x), places, 2))
    ]  # fmt: skip
    return functools.reduce(lambda a, b: w.elementwise("add", a, b), terms)


def _patches(w: Writer, x: Value, window: Window, places: Shape) -> Value:
    """Of an image what a window of patches sees: [batch, *places, channels, *window]."""
    batch, channels, *image = x.shape
    rank = len(image)
    for axis, (extent, own) in enumerate(zip(image, window.extents, strict=True)):
        if extent % own:
            x = w.slice(x, 2 + axis, 0, extent - extent % own)
    pairs = itertools.chain.from_iterable(zip(places, window.extents, strict=True))
    apart = w.view(x, (batch, channels, *pairs))
    order = [0, *range(2, 2 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2)]
    return w.permute(apart, order)


def spread(w: Writer, x: Value, weight: Value, bias: Value | None, window: Window) -> Value:
    """A transposed convolution whose windows do not overlap; its weight is [channels in, channels out, *window].

    Raises Untaken for others.
    """
    if not window.is_patches:
        raise Untaken(
            "a transposed convolution whose windows overlap or are cut off; strides as long as them are said"
        )
    x = written_out(w, x)
    batch, channels, *image = x.shape
    outer, rank = weight.shape[1], len(image)
    rows = w.view(_moved(w, x, 1, rank + 1), (math.prod((batch, *image)), channels))
    found = w.matmul(rows, w.view(weight, (channels, outer * window.size)))
    apart = w.view(found, (batch, *image, outer, *window.extents))
    pairs = itertools.chain.from_iterable((1 + axis, 2 + rank + axis) for axis in range(rank))
    turned = w.permute(apart, (0, 1 + rank, *pairs))
    grown = [extent * own for extent, own in zip(image, window.extents, strict=True)]
    return _biased(w, w.view(turned, (batch, outer, *grown)), bias)


def _biased(w: Writer, x: Value, bias: Value | None) -> Value:
    if bias is None:
        return x
    return w.elementwise("add", x, w.view(bias, (x.shape[1], *(1,) * (len(x.shape) - 2))))


def _moved(w: Writer, x: Value, axis: int, to: int) -> Value:
    """A tensor with one dimension moved to another place."""
    order = [one for one in range(len(x.shape)) if one != axis]
    return w.permute(x, (*order[:to], axis, *order[to:]))


# --- pools ----------------------------------------------------------------------------------------------


def largest_of(w: Writer, x: Value, window: Window) -> Value:
    """The largest of what a window sees of an image."""
    x = written_out(w, x)
    padded = window.with_room(w, x)
    if window.reaches_out:
        padded = w.elementwise("where", _inside(w, x, padded, window), padded, number(-math.inf))
    return _together(w, "maximum", padded, window, x)


def mean_of(w: Writer, x: Value, window: Window, *, counts_room: bool) -> Value:
    """The mean of what a window sees, with the zeros around an image or without."""
    x = written_out(w, x)
    padded = window.with_room(w, x)
    total = _together(w, "add", padded, window, x)
    if counts_room or not window.reaches_out:
        return w.elementwise("mul", total, number(1 / window.size))
    ones = w.elementwise("where", _inside(w, x, padded, window), number(1.0), number(0.0))
    return w.elementwise("div", total, _together(w, "add", ones, window, x))


def _together(w: Writer, op: str, padded: Value, window: Window, x: Value) -> Value:
    places = window.places(x.shape[2:])
    return functools.reduce(lambda a, b: w.elementwise(op, a, b), window.seen(w, padded, places, 2))


def _inside(w: Writer, x: Value, padded: Value, window: Window) -> Value:
    """Which elements of an image with room around it are the image's."""
    found = None
    for axis, (low, high, extent) in enumerate(zip(window.low, window.high, x.shape[2:], strict=True)):
        index = w.index(padded.shape, 2 + axis)
        for op, end, asked in (("greater_equal", low, low), ("less", low + extent, high)):
            if asked:
                one = w.elementwise(op, index, number(end))
                found = one if found is None else w.elementwise("logical_and", found, one)
    assert found is not None, "a window that reaches out has room on some side"
    return found


# --- other resolutions ----------------------------------------------------------------------------------


def enlarged(w: Writer, x: Value, times: Sequence[int]) -> Value:
    """Each element so many times, one behind the other, along each dimension."""
    apart = w.view(x, [extent for own in x.shape for extent in (own, 1)])
    grown = w.expand(apart, [extent for pair in zip(x.shape, times, strict=True) for extent in pair])
    return w.view(grown, [own * count for own, count in zip(x.shape, times, strict=True)])
