"""What casts, copies, views and constants of an FX graph mean in our graphs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any

import torch

from wsopt.graph.types import DType
from wsopt.torch.dtypes import dtype_of
from wsopt.torch.sizes import changes
from wsopt.torch.table import as_numbers, aten, entry, prims
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer, number

# --- types and copies -----------------------------------------------------------------------------------


@entry(prims.convert_element_type.default)
def _convert(w: Writer, x: Value, dtype: torch.dtype) -> Value:
    if not isinstance(x.tensor, str):
        return x
    if dtype is torch.bool and w.dtype(x) is not DType.BOOL:
        return as_numbers("not_equal", w, x, 0)
    if w.dtype(x).is_float and not dtype.is_floating_point:
        raise Untaken(f"a cast to {dtype}, which rounds here and cuts off there")
    return w.cast(x, dtype_of(dtype))


@entry(aten._to_copy.default)
def _to_copy(w: Writer, x: Value, dtype: torch.dtype | None = None, **kept: Any) -> Value:
    device = kept.get("device")
    if device is not None:
        raise Untaken("a copy that names a device")
    return x if dtype is None else _convert(w, x, dtype)


@entry(aten.clone.default)
def _clone(w: Writer, x: Value, memory_format: Any = None) -> Value:
    del memory_format
    if not x.whole:
        w.copies.see_through(x.dims)
    return x


@entry(aten.copy.default)
def _copy(w: Writer, x: Value, source: Value, non_blocking: bool = False) -> Value:
    """A tensor with all of its elements replaced, by what is broadcast to it."""
    del x, non_blocking
    return _clone(w, w.expand(source, w.shape))


@entry(aten.alias.default, aten.detach.default, aten.lift_fresh_copy.default)
def _same(_w: Writer, x: Value) -> Value:
    return x


# --- views ----------------------------------------------------------------------------------------------


@entry(
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze.default,
    aten.unsqueeze.default,
)
def _view(w: Writer, x: Value, *_how: Any) -> Value:
    return w.view(x, w.shape)


@entry(aten.expand.default)
def _expand(w: Writer, x: Value, shape: Sequence[int], implicit: bool = False) -> Value:
    del shape, implicit
    return w.expand(x, w.shape)


@entry(aten.repeat.default)
def _repeat(w: Writer, x: Value, repeats: Sequence[int]) -> Value:
    """Copies of a tensor one behind the other along its dimensions, and along new ones in front."""
    own = (1,) * (len(repeats) - len(x.dims)) + x.shape
    apart = w.view(x, [extent for one in own for extent in (1, one)])
    copies = w.expand(apart, [extent for pair in zip(repeats, own, strict=True) for extent in pair])
    return _clone(w, w.view(copies, w.shape))


@entry(aten.permute.default)
def _permute(w: Writer, x: Value, perm: Sequence[int]) -> Value:
    return w.permute(x, perm)


@entry(aten.transpose.int)
def _transpose(w: Writer, x: Value, first: int, second: int) -> Value:
    perm = list(range(len(x.dims)))
    perm[first], perm[second] = perm[second], perm[first]
    return w.permute(x, perm)


@entry(aten.t.default)
def _t(w: Writer, x: Value) -> Value:
    return w.permute(x, range(len(x.dims))[::-1])


# --- parts ----------------------------------------------------------------------------------------------


@entry(aten.slice.Tensor)
def _slice(
    w: Writer, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    dim %= len(x.dims)
    extent = x.shape[dim]
    if changes(extent, start, end, step):
        if start in (None, 0) and step == 1 and end in (None, extent, sys.maxsize):
            return x
        raise Untaken("a part along an extent that changes from call to call")
    return w.slice(x, dim, *slice(start, end, step).indices(extent))


@entry(aten.select.int)
def _select(w: Writer, x: Value, dim: int, index: int) -> Value:
    dim %= len(x.dims)
    if changes(index, x.shape[dim]):
        raise Untaken("a part along an extent that changes from call to call")
    at = index % x.shape[dim]
    return w.view(w.slice(x, dim, at, at + 1), w.shape)


@entry(aten.unbind.int)
def _unbind(w: Writer, x: Value, dim: int = 0) -> tuple[Value, ...]:
    dim %= len(x.dims)
    if changes(x.shape[dim]):
        raise Untaken("parts along an extent that changes from call to call")
    parts = (w.slice(x, dim, at, at + 1) for at in range(x.shape[dim]))
    return tuple(w.view(part, w.shape) for part in parts)


@entry(aten.constant_pad_nd.default)
def _pad(w: Writer, x: Value, pad: Sequence[int], value: float = 0) -> Value:
    if value != 0 or any(extent < 0 for extent in pad):
        raise Untaken("a pad with something else than zeros, or that cuts off")
    return w.pad(x, list(zip(pad[::2], pad[1::2], strict=True)))


@entry(aten.split_with_sizes.default)
def _split(w: Writer, x: Value, sizes: Sequence[int], dim: int = 0) -> tuple[Value, ...]:
    dim %= len(x.dims)
    ends = list(itertools.accumulate(sizes))
    return tuple(w.slice(x, dim, end - size, end) for size, end in zip(sizes, ends, strict=True))


@entry(aten.split.Tensor)
def _split_evenly(w: Writer, x: Value, size: int, dim: int = 0) -> tuple[Value, ...]:
    extent = x.shape[dim]
    if changes(size, extent):
        raise Untaken("parts along an extent that changes from call to call")
    return _split(w, x, [min(size, extent - start) for start in range(0, extent, size)], dim)


@entry(aten.cat.default)
def _cat(w: Writer, values: Sequence[Value], dim: int = 0) -> Value:
    return w.concat(values, dim % len(values[0].dims))


@entry(aten.embedding.default)
def _embedding(w: Writer, table: Value, indices: Value, _padding: int = -1, *_how: Any) -> Value:
    """Rows of a table; how its gradient is made says nothing of them."""
    return w.rows_of(table, indices)


# --- constants ------------------------------------------------------------------------------------------


@entry(aten.full.default, aten.scalar_tensor.default)
def _full(w: Writer, *given: Any, **_how: Any) -> Value:
    return number(given[-1], w.shape)


@entry(aten.full_like.default)
def _full_like(w: Writer, _x: Value, value: float, **_how: Any) -> Value:
    return number(value, w.shape)


@entry(prims.iota.default)
def _iota(w: Writer, length: int, *, start: int = 0, step: int = 1, **_how: Any) -> Value:
    index = w.index((length,), 0)
    index = index if step == 1 else as_numbers("mul", w, index, step)
    return index if start == 0 else as_numbers("add", w, index, start)


@entry(aten.arange.default)
def _arange(w: Writer, end: int, **_how: Any) -> Value:
    return _arange_from(w, 0, end)


@entry(aten.arange.start, aten.arange.start_step)
def _arange_from(w: Writer, start: int, end: int, step: int = 1, **_how: Any) -> Value:
    if not all(isinstance(one, int) for one in (start, end, step)):
        raise Untaken("indices that are no integers")
    return _iota(w, *w.shape, start=start, step=step)
