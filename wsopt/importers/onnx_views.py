"""What views, parts and joins of ONNX mean in our graphs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from wsopt.graph.ops import OPS
from wsopt.importers.onnx_table import Array, Call, Result, axis_of, entry
from wsopt.importers.repeats import written_out
from wsopt.importers.rows import rows_at
from wsopt.torch.values import Untaken, Value, plain_dims
from wsopt.torch.writer import Writer

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
    x, times = call.value(0), call.integers("repeats", 1) or ()
    if any(extent > 1 and count > 1 for extent, count in zip(x.shape, times, strict=True)):
        raise Untaken("it repeats more than one element one behind the other")
    return call.w.expand(x, [extent * count for extent, count in zip(x.shape, times, strict=True)])


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


def joined(w: Writer, values: Sequence[Value], axis: int) -> Value:
    """Tensors one behind the other along an axis."""
    if len(values) == 1:
        return values[0]
    most = len(OPS["concat"].operands)
    if len(values) > most:
        parts = [joined(w, values[n : n + most], axis) for n in range(0, len(values), most)]
        return joined(w, parts, axis)
    if any(not isinstance(value.tensor, str) for value in values):
        raise Untaken("a number among tensors that are joined")
    if not all(value.whole for value in values):
        values = [written_out(w, value) for value in values]
    return w.concat(values, axis)


@entry("Pad")
def _pad(call: Call) -> Value:
    w, x = call.w, call.value(0)
    rank = len(x.shape)
    if call.attr("mode", "constant") != "constant" or (call.number("value", 2) or 0.0) != 0.0:
        raise Untaken("a border of anything but zeros")
    pads = call.integers("pads", 1) or ()
    axes = call.integers("axes", 3) or tuple(range(rank))
    low, high = [0] * rank, [0] * rank
    for number, axis in enumerate(axes):
        low[axis], high[axis] = pads[number], pads[number + len(axes)]
    if min(*low, *high) < 0:
        raise Untaken("a border that takes elements away")
    _, tensor = w.laid_out(x, range(rank))
    name = w.node("pad", [tensor], low=tuple(low), high=tuple(high))
    return Value(name, plain_dims(w.types[name].shape))
