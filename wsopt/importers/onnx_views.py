"""What views, parts and joins of ONNX mean in our graphs."""

from __future__ import annotations

import itertools
import math

import numpy as np

from wsopt.importers.joins import joined
from wsopt.importers.onnx_table import Array, Call, Result, axis_of, entry, require_floats
from wsopt.importers.rows import rows_at
from wsopt.torch.values import Untaken, Value, plain_dims
from wsopt.torch.writer import Writer, number

# --- views ----------------------------------------------------------------------------------------------


@entry("Reshape")
def _reshape(call: Call) -> Value:
    x = call.value(0)
    wanted = list(call.integers("shape", 1) or ())
    if not call.attr("allowzero", 0):
        wanted = [x.shape[axis] if extent == 0 else extent for axis, extent in enumerate(wanted)]
    if -1 in wanted:
        wanted[wanted.index(-1)] = math.prod(x.shape) // -math.prod(wanted)
    return call.w.view(x, wanted)


@entry("Flatten")
def _flatten(call: Call) -> Value:
    x = call.value(0)
    axis = int(call.attr("axis", 1))
    axis = axis + len(x.shape) if axis < 0 else axis
    return call.w.view(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@entry("Unsqueeze")
def _unsqueeze(call: Call) -> Value:
    x, axes = call.value(0), call.integers("axes", 1) or ()
    rank = len(x.shape) + len(axes)
    new, extents = {axis % rank for axis in axes}, iter(x.shape)
    return call.w.view(x, [1 if axis in new else next(extents) for axis in range(rank)])


@entry("Squeeze")
def _squeeze(call: Call) -> Value:
    x, axes = call.value(0), call.integers("axes", 1)
    rank = len(x.shape)
    gone = {axis % rank for axis in axes} if axes else {a for a in range(rank) if x.shape[a] == 1}
    return call.w.view(x, [extent for axis, extent in enumerate(x.shape) if axis not in gone])


@entry("Transpose")
def _transpose(call: Call) -> Value:
    x = call.value(0)
    return call.w.permute(x, call.attr("perm", tuple(range(len(x.shape)))[::-1]))


@entry("Expand")
def _expand(call: Call) -> Value:
    x, wanted = call.value(0), call.integers("shape", 1) or ()
    rank = max(len(x.shape), len(wanted))
    own = (1,) * (rank - len(x.shape)) + x.shape
    asked = (1,) * (rank - len(wanted)) + tuple(wanted)
    return call.w.expand(x, [max(pair) for pair in zip(own, asked, strict=True)])


@entry("Tile")
def _tile(call: Call) -> Value:
    """The whole tensor so many times, one behind the other, along each dimension."""
    w, x, times = call.w, call.value(0), call.integers("repeats", 1) or ()
    apart = w.view(x, [extent for own in x.shape for extent in (1, own)])
    repeated = w.expand(apart, [n for pair in zip(times, x.shape, strict=True) for n in pair])
    return w.view(repeated, [extent * count for extent, count in zip(x.shape, times, strict=True)])


# --- parts ----------------------------------------------------------------------------------------------


def sliced(w: Writer, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    """Every `step`-th element along an axis, from `start` up to `stop`."""
    count = len(range(start, stop, step))
    if count == 0:
        raise Untaken("a part of no elements")
    if count == x.shape[axis]:
        return x
    return w.slice(x, axis, start, stop, step)


@entry("Slice")
def _slice(call: Call) -> Value:
    x = call.value(0)
    starts, ends = call.integers("starts", 1) or (), call.integers("ends", 2) or ()
    axes = call.integers("axes", 3) or tuple(range(len(starts)))
    steps = call.integers("steps", 4) or (1,) * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step < 1:
            raise Untaken(f"a step of {step}")
        extent = x.shape[axis]
        start, end, _ = slice(start, end).indices(extent)
        x = sliced(call.w, x, axis % len(x.shape), start, end, step)
    return x


@entry("Split")
def _split(call: Call) -> Result:
    x = call.value(0)
    axis = axis_of(call, len(x.shape), 0)
    sizes = call.integers("split", 1)
    if sizes is None:
        most = math.ceil(x.shape[axis] / call.results)
        sizes = tuple(min(most, x.shape[axis] - most * part) for part in range(call.results))
    ends = np.cumsum((0, *sizes)).tolist()
    return tuple(sliced(call.w, x, axis, *pair) for pair in itertools.pairwise(ends))


@entry("Gather")
def _gather(call: Call) -> Value:
    x = call.value(0)
    axis = axis_of(call, len(x.shape), 0)
    known = call.source.constant(call.operands[1])
    if known is not None and (found := _gathered(call.w, x, axis, known)) is not None:
        return found
    return rows_at(call.w, x, call.value(1), axis)


def _gathered(w: Writer, x: Value, axis: int, indices: Array) -> Value | None:
    """What known indices choose, where they are one index, or some with one step between them; else None."""
    extent, order = x.shape[axis], indices.reshape(-1).astype(np.int64)
    order = np.where(order < 0, order + extent, order)
    if order.size == 0 or order.min() < 0 or order.max() >= extent:
        raise Untaken("indices outside of the tensor")
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    first, steps = int(order[0]), np.diff(order)
    if not steps.any():
        one = sliced(w, x, axis, first, first + 1)
        without = w.view(one, (*x.shape[:axis], *(1 for _ in indices.shape), *x.shape[axis + 1 :]))
        return w.expand(without, shape)
    if (steps != steps[0]).any() or steps[0] < 1:
        return None
    return w.view(sliced(w, x, axis, first, int(order[-1]) + 1, int(steps[0])), shape)


# --- joins and borders ----------------------------------------------------------------------------------


@entry("Concat")
def _concat(call: Call) -> Value:
    values = call.values()
    return joined(call.w, values, axis_of(call, len(values[0].shape), 0))


@entry("Pad")
def _pad(call: Call) -> Value:
    w, x = call.w, call.value(0)
    rank = len(x.shape)
    if call.attr("mode", "constant") != "constant" or (call.number("value", 2) or 0.0) != 0.0:
        raise Untaken("a border of anything but zeros")
    pads = call.integers("pads", 1) or ()
    axes = call.integers("axes", 3) or tuple(range(rank))
    low, high = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        low[axis], high[axis] = pads[place], pads[place + len(axes)]
    if min(*low, *high) < 0:
        raise Untaken("a border that takes elements away")
    _, tensor = w.laid_out(x, range(rank))
    name = w.node("pad", [tensor], low=tuple(low), high=tuple(high))
    return Value(name, plain_dims(w.types[name].shape))


# --- elements by place ----------------------------------------------------------------------------------


@entry("OneHot")
def _one_hot(call: Call) -> Value:
    w, indices, ends = call.w, call.value(0), call.array(2, "its values")
    depth = int(call.array(1, "depth").item())
    axis = axis_of(call, len(indices.shape) + 1, -1)
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
    chosen = w.view(indices, (*indices.shape[:axis], 1, *indices.shape[axis:]))
    # An index below 0 counts from the end.
    positive = w.elementwise("add", chosen, number(depth))
    chosen = w.elementwise("where", w.elementwise("less", chosen, number(0)), positive, chosen)
    off, on = ends.tolist()
    return w.elementwise(
        "where", w.elementwise("equal", w.index(shape, axis), chosen), number(on), number(off)
    )


@entry("GatherElements")
def _gather_elements(call: Call) -> Value:
    """The element of each row that an index names: the sum of those at that place alone."""
    w, x, indices = call.w, call.value(0), call.value(1)
    require_floats(call, x)
    axis = axis_of(call, len(x.shape), 0)
    for other, extent in enumerate(indices.shape):
        if other != axis and extent != x.shape[other]:
            x = w.slice(x, other, 0, extent)
    named = _named(call, x, indices, axis)
    return w.reduce("reduce_sum", w.elementwise("where", named, x, number(0.0)), [axis], True)


@entry("ScatterElements")
def _scatter_elements(call: Call) -> Value:
    """A row with another element at the place that an index names."""
    w, x, indices, updates = call.w, call.value(0), call.value(1), call.value(2)
    axis = axis_of(call, len(x.shape), 0)
    if call.attr("reduction", "none") != "none":
        raise Untaken("elements that are added to a row, or joined with it otherwise")
    if any(indices.shape[other] != extent for other, extent in enumerate(x.shape) if other != axis):
        raise Untaken("elements that go into a part of the rows")
    return w.elementwise("where", _named(call, x, indices, axis), updates, x)


def _named(call: Call, x: Value, indices: Value, axis: int) -> Value:
    """Which elements of a tensor indices name along an axis, one a row. Raises Untaken for several."""
    if indices.shape[axis] != 1:
        raise Untaken(f"indices that name several places of a row: {list(indices.shape)} along {axis}")
    return call.w.elementwise("equal", call.w.index(x.shape, axis), indices)
