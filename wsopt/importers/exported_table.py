"""Operations of FX graphs that an import says, and that the backend of torch.compile leaves to Inductor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from wsopt.graph.types import DType
from wsopt.importers.joins import joined
from wsopt.importers.rows import rows_at
from wsopt.importers.windows import Window, convolved, enlarged, largest_of, mean_of, spread
from wsopt.torch.operations import TABLE
from wsopt.torch.table import Entry, as_value, check_real
from wsopt.torch.values import Shape, Untaken, Value
from wsopt.torch.writer import Writer, number

aten = torch.ops.aten

# --- elements by place ----------------------------------------------------------------------------------


def _embedding(w: Writer, table: Value, indices: Value, *_of_training: Any) -> Value:
    return rows_at(w, table, indices, 0)


def _index(w: Writer, x: Value, chosen: Sequence[Value | None]) -> Value:
    """A tensor looked up at positions, or at any indices along one dimension."""
    given = [axis for axis, one in enumerate(chosen) if one is not None]
    indices = chosen[given[0]]
    if len(given) == 1 and isinstance(indices, Value) and w.dtype(indices).is_integer:
        return rows_at(w, x, indices, given[0])
    found: Value = TABLE[aten.index.Tensor](w, x, chosen)
    return found


def _argmax(w: Writer, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    check_real(w, "argmax", x)
    if dim is None:
        return w.view(w.reduce("reduce_argmax", w.view(x, (math.prod(x.shape),)), [0], False), w.shape)
    return w.reduce("reduce_argmax", x, [dim], keepdim)


def _cat(w: Writer, values: Sequence[Value], dim: int = 0) -> Value:
    return joined(w, values, dim % len(values[0].dims))


def _divided(w: Writer, a: Value | float, b: Value | float) -> Value:
    """A quotient, which is of floats for integers too."""
    values = [w.cast(one, DType.F32) if _is_whole(w, one) else one for one in map(as_value, (a, b))]
    return w.elementwise("div", *values)


def _is_whole(w: Writer, x: Value) -> bool:
    return isinstance(x.tensor, str) and w.dtype(x).is_integer


# --- images ---------------------------------------------------------------------------------------------


def _convolution(
    w: Writer, x: Value, weight: Value, bias: Value | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    window = _window(weight.shape[2:], stride, padding, dilation)
    if not transposed:
        return convolved(w, x, weight, bias, window, groups)
    if groups != 1 or any(output_padding):
        raise Untaken("a transposed convolution in groups, or with a border of its own")
    return spread(w, x, weight, bias, window)


def _window(
    extents: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Window:
    def each(given: Sequence[int]) -> Shape:
        return tuple(given) if len(given) == len(extents) else tuple(given) * len(extents)

    room = each(padding)
    return Window(tuple(extents), each(stride or extents), each(dilation), room, room)


def _max_pool(
    w: Writer, x: Value, kernel_size: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> Value:  # fmt: skip
    check_real(w, "max_pool2d", x)
    return largest_of(w, x, _pool(kernel_size, stride, padding, dilation, ceil_mode))


def _max_pool_alone(w: Writer, *given: Any, **named: Any) -> tuple[Value, ...]:
    """A pool without the places of what it takes."""
    return (_max_pool(w, *given, **named),)


def _average_pool(
    w: Writer, x: Value, kernel_size: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Value:  # fmt: skip
    check_real(w, "avg_pool2d", x)
    if divisor_override is not None:
        raise Untaken("a mean by another divisor")
    return mean_of(w, x, _pool(kernel_size, stride, padding, (1,), ceil_mode), counts_room=count_include_pad)


def _pool(
    kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], ceil: bool
) -> Window:  # fmt: skip
    if ceil:
        raise Untaken("ceil_mode, by which windows lie half outside of the image")
    extents = tuple(kernel_size) if len(kernel_size) == 2 else tuple(kernel_size) * 2
    return _window(extents, stride, padding, dilation)


def _nearest(w: Writer, x: Value, *_how: Any) -> Value:
    """Elements that are repeated a whole number of times."""
    times = [to // own for to, own in zip(w.shape, x.shape, strict=True)]
    if any(own * count != to for own, count, to in zip(x.shape, times, w.shape, strict=True)):
        raise Untaken(
            f"an image of {list(x.shape[2:])} as one of {list(w.shape[2:])}: no whole number of times"
        )
    return enlarged(w, x, times)


def _group_norm(
    w: Writer, x: Value, weight: Value | None, bias: Value | None, batch: int, channels: int, _size: int,
    groups: int, eps: float,
) -> tuple[Value, ...]:  # fmt: skip
    """The elements of each group of channels less their mean, over their deviation."""
    check_real(w, "group_norm", x)
    apart = w.view(x, (batch, groups, math.prod(x.shape[1:]) // groups))
    centred = w.elementwise("sub", apart, w.reduce("reduce_mean", apart, [2], True))
    variance = w.reduce("reduce_mean", w.elementwise("mul", centred, centred), [2], True)
    inverse = w.elementwise("rsqrt", w.elementwise("add", variance, number(eps)))
    found = w.view(w.elementwise("mul", centred, inverse), x.shape)
    each = (channels, *(1,) * (len(x.shape) - 2))
    found = found if weight is None else w.elementwise("mul", found, w.view(weight, each))
    return (found if bias is None else w.elementwise("add", found, w.view(bias, each)),)


MORE: Mapping[Any, Entry] = MappingProxyType(
    {
        aten.embedding.default: _embedding,
        aten.index.Tensor: _index,
        aten.argmax.default: _argmax,
        aten.cat.default: _cat,
        aten.div.Tensor: _divided,
        aten.div.Scalar: _divided,
        aten.native_group_norm.default: _group_norm,
        aten.convolution.default: _convolution,
        aten.max_pool2d.default: _max_pool,
        aten.max_pool2d_with_indices.default: _max_pool_alone,
        aten.avg_pool2d.default: _average_pool,
        aten.upsample_nearest2d.vec: _nearest,
        aten.upsample_nearest2d.default: _nearest,
    }
)
"""The entries by overload, beside those of `wsopt.torch.table`."""
