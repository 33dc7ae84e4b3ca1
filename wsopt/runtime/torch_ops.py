"""Reference of each operation in torch: arithmetic in one real dtype, rounding in casts only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from wsopt.primitives import Family, FromTable, Primitive
from wsopt.runtime.grouped import group_ends

Attrs = Mapping[str, Any]

TORCH_DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "i32": torch.int32,
    "i8": torch.int8,
    "i4": torch.int8,
    "bool": torch.bool,
}
F8_LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0}
QUANTIZED_LARGEST = {"f8e4m3": F8_LARGEST["f8e4m3"], "i8": 127.0}
_INT_RANGE = {"i32": (-(2**31), 2**31 - 1), "i8": (-128, 127), "i4": (-8, 7)}
_INTEGERS = (torch.int8, torch.int32)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The dtype in which real arithmetic is done (f32, or f64 to judge f32 by), and the device."""

    real: torch.dtype
    device: torch.device

    def reals(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors in the real dtype."""
        return [item.to(self.real) for item in tensors]

    def numbers(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors in i32 if all are integers, in the real dtype otherwise."""
        if all(item.dtype in _INTEGERS for item in tensors):
            return [item.to(torch.int32) for item in tensors]
        return self.reals(tensors)


Meaning = Callable[[Arithmetic, Sequence[Tensor], Attrs], Tensor]


def _numbers(function: Callable[..., Tensor]) -> Meaning:
    return lambda arithmetic, tensors, _attrs: function(*arithmetic.numbers(tensors))


def _reals(function: Callable[..., Tensor]) -> Meaning:
    return lambda arithmetic, tensors, _attrs: function(*arithmetic.reals(tensors))


def _bools(function: Callable[..., Tensor]) -> Meaning:
    return lambda _arithmetic, tensors, _attrs: function(*tensors)


def cast_tensor(x: Tensor, dtype: str) -> Tensor:
    """Round to nearest even; f8 and the integers saturate, bool is `x != 0`, nan becomes the integer 0."""
    target = TORCH_DTYPES[dtype]
    if dtype == "bool":
        return x.to(torch.float32) != 0
    if dtype in _INT_RANGE:
        low, high = _INT_RANGE[dtype]
        if x.dtype in _INTEGERS:
            return x.to(torch.int64).clamp(low, high).to(target)
        rounded = torch.nan_to_num(x.to(torch.float64).round(), nan=0.0, posinf=high, neginf=low)
        return rounded.clamp(low, high).to(target)
    if dtype in F8_LARGEST:
        # From f32 or wider: rounding on the way would double.
        x = x if x.dtype == torch.float64 else x.to(torch.float32)
        x = x.clamp(-F8_LARGEST[dtype], F8_LARGEST[dtype])
    return x.to(target)


def _cast(_arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    return cast_tensor(tensors[0], attrs["dtype"])


def _gelu(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    (x,) = arithmetic.reals(tensors)
    return torch.nn.functional.gelu(x, approximate=attrs.get("approximate", "none"))


def _choices(function: Callable[..., Tensor]) -> Meaning:
    def apply(arithmetic: Arithmetic, tensors: Sequence[Tensor], _attrs: Attrs) -> Tensor:
        condition, *choices = tensors
        if not all(item.dtype == torch.bool for item in choices):
            choices = arithmetic.numbers(choices)
        return function(condition, *choices)

    return apply


_FAMILIES: Mapping[Family, Callable[[Callable[..., Tensor]], Meaning]] = {
    Family.ARITHMETIC: _numbers,
    Family.REAL: _reals,
    Family.COMPARISON: _numbers,
    Family.LOGICAL: _bools,
    Family.CHOICE: _choices,
}


def _of_primitive(entry: Primitive) -> Meaning | None:
    """The meaning of an op that is a scalar primitive; None for a primitive that the format does not have."""
    return _FAMILIES[entry.family](attrgetter(entry.torch)(torch)) if entry.doc else None


# --- contraction and movement ---------------------------------------------------------------------------


def _matmul(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    a, b = tensors
    a = a.mT if attrs.get("transpose_a") else a
    b = b.mT if attrs.get("transpose_b") else b
    if a.dtype == torch.int8:
        # f64 holds every such sum exactly, and there is no product of int8 matrices on every device.
        return torch.matmul(a.double(), b.double()).to(torch.int64).to(torch.int32)
    if attrs.get("precision") == "tf32":
        a, b = cut_to_tf32(a), cut_to_tf32(b)
    return torch.matmul(*arithmetic.reals((a, b)))


def _grouped_matmul(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    a, b, offsets = tensors
    columns = b.shape[1] if attrs.get("transpose_b") else b.shape[2]
    dtype = torch.int32 if a.dtype == torch.int8 else arithmetic.real
    found, begin = torch.zeros((a.shape[0], columns), dtype=dtype, device=a.device), 0
    if a.is_meta:  # shapes alone are asked for
        return found
    for matrix, end in zip(b, group_ends(offsets, a.shape[0]).tolist(), strict=True):
        found[begin:end] = _matmul(arithmetic, (a[begin:end], matrix), attrs)
        begin = end
    return found


def cut_to_tf32(x: Tensor) -> Tensor:
    """f32 cut to the 10 fraction bits of tf32, which is what a tensor core reads of it."""
    cut = x.to(torch.float32).contiguous().view(torch.int32) & ~0x1FFF
    return torch.where(torch.isfinite(x), cut.view(torch.float32), x)


def _iota(arithmetic: Arithmetic, _tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    shape, axis = attrs["shape"], attrs["axis"] % len(attrs["shape"])
    index = torch.arange(shape[axis], dtype=torch.int32, device=arithmetic.device)
    return index.reshape([-1] + [1] * (len(shape) - axis - 1)).expand(*shape)


def _reshape(_arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    return tensors[0].reshape(tuple(attrs["shape"]))


def _transpose(_arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    return tensors[0].permute(tuple(attrs["perm"]))


def _slice(_arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    (x,) = tensors
    axis = attrs.get("axis", -1) % x.ndim
    extent, stop = x.shape[axis], attrs.get("stop")
    start, stop = attrs.get("start", 0), extent if stop is None else stop
    places = slice(start + extent * (start < 0), stop + extent * (stop < 0), attrs.get("step", 1))
    return x[(slice(None),) * axis + (places,)]


def _concat(_arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    return torch.cat(tuple(tensors), dim=attrs.get("axis", -1))


def _pad(_arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    (x,) = tensors
    shape = [sum(axis) for axis in zip(attrs["low"], x.shape, attrs["high"], strict=True)]
    result = torch.zeros(shape, dtype=x.dtype, device=x.device)
    result[tuple(slice(low, low + extent) for low, extent in zip(attrs["low"], x.shape, strict=True))] = x
    return result


def _gather(_arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    x, indices = tensors
    axis = attrs.get("axis", 0) % x.ndim
    inside = (indices >= 0) & (indices < x.shape[axis])
    taken = x[(slice(None),) * axis + (torch.where(inside, indices, 0).long(),)]
    known = inside.reshape(inside.shape + (1,) * (x.ndim - axis - 1))
    return torch.where(known, taken, torch.zeros((), dtype=x.dtype, device=x.device))


# --- reductions and composites --------------------------------------------------------------------------


def _reduction(function: Callable[..., Tensor]) -> Meaning:
    def apply(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
        (x,) = arithmetic.numbers(tensors)
        return function(x, dim=attrs["axis"], keepdim=bool(attrs.get("keepdims", False))).to(x.dtype)

    return apply


def _reduce_mean(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    return _reduction(torch.mean)(arithmetic, arithmetic.reals(tensors), attrs)


def _argmax(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    """The first place of the largest; torch leaves open which of equals it gives."""
    (x,), axis = arithmetic.numbers(tensors), attrs["axis"]
    top = (x == x.amax(dim=axis, keepdim=True)) | (x != x)
    places = (
        torch.cumsum(top.to(torch.int32), dim=axis).eq(0).sum(dim=axis, keepdim=bool(attrs.get("keepdims")))
    )
    return places.to(torch.int32)


def _cumsum(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    (x,) = arithmetic.numbers(tensors)
    return torch.cumsum(x, dim=attrs["axis"], dtype=x.dtype)


def _scatter_add(arithmetic: Arithmetic, tensors: Sequence[Tensor], _attrs: Attrs) -> Tensor:
    x, indices, rows = tensors
    x, rows = arithmetic.numbers((x, rows))
    places, flat = indices.reshape(-1), rows.reshape(-1, *x.shape[1:])
    inside = (places >= 0) & (places < x.shape[0])
    known = inside.reshape(-1, *(1,) * (x.ndim - 1))
    added = torch.where(known, flat, torch.zeros((), dtype=x.dtype, device=x.device))
    return x.index_add(0, torch.where(inside, places, 0).long(), added)


def _logsumexp(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    return _reduction(torch.logsumexp)(arithmetic, arithmetic.reals(tensors), attrs)


def _softmax(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    (x,) = arithmetic.reals(tensors)
    axis = attrs.get("axis", -1)
    largest = x.amax(dim=axis, keepdim=True)
    weights = torch.exp(x - torch.where(largest == -math.inf, 0.0, largest))
    total = weights.sum(dim=axis, keepdim=True)
    return weights / torch.where(total == 0, 1.0, total)


def _rms_norm(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    x, weight = arithmetic.reals(tensors)
    power = (x * x).mean(dim=-1, keepdim=True)
    return x * torch.rsqrt(power + attrs.get("eps", 1e-6)) * weight


def _layer_norm(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    x, weight, bias = arithmetic.reals(tensors)
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = (centred * centred).mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt(variance + attrs.get("eps", 1e-5)) * weight + bias


def _dequantize(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    q, scale, *zero = arithmetic.reals(tensors)
    if zero:
        q = q - (_spread(zero[0], attrs) if zero[0].ndim else zero[0])
    return q * _spread(scale, attrs)


def _unit(attrs: Attrs) -> tuple[int, ...]:
    """Elements along the last axes that share a scale."""
    return tuple(attrs.get("block") or (attrs["group"],))


def _spread(scales: Tensor, attrs: Attrs) -> Tensor:
    """Scales with each repeated along the axes of its group or block."""
    for axis, times in enumerate(reversed(_unit(attrs)), start=1):
        scales = scales.repeat_interleave(times, dim=-axis)
    return scales


def _quantize_scale(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    (x,) = arithmetic.reals(tensors)
    x = x.abs()
    for axis, times in enumerate(reversed(_unit(attrs)), start=1):
        place = x.ndim - axis
        x = x.unflatten(place, (-1, times)).amax(dim=place + 1)
    scale = x / QUANTIZED_LARGEST[attrs["dtype"]]
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def _quantize(arithmetic: Arithmetic, tensors: Sequence[Tensor], attrs: Attrs) -> Tensor:
    (x,) = arithmetic.reals(tensors)
    return cast_tensor(x / _spread(_quantize_scale(arithmetic, tensors, attrs), attrs), attrs["dtype"])


_OTHERS: Mapping[str, Meaning] = {
    "matmul": _matmul,
    "grouped_matmul": _grouped_matmul,
    "pow": _reals(torch.pow),
    "reciprocal": _reals(torch.reciprocal),
    "tanh": _reals(torch.tanh),
    "sigmoid": _reals(torch.sigmoid),
    "relu": _numbers(torch.relu),
    "silu": _reals(torch.nn.functional.silu),
    "gelu": _gelu,
    "cast": _cast,
    "iota": _iota,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "gather": _gather,
    "reduce_sum": _reduction(torch.sum),
    "reduce_max": _reduction(torch.amax),
    "reduce_min": _reduction(torch.amin),
    "reduce_mean": _reduce_mean,
    "reduce_argmax": _argmax,
    "cumsum": _cumsum,
    "scatter_add": _scatter_add,
    "logsumexp": _logsumexp,
    "softmax": _softmax,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "dequantize": _dequantize,
    "quantize": _quantize,
    "quantize_scale": _quantize_scale,
}

MEANINGS: Mapping[str, Meaning] = FromTable(_of_primitive, _OTHERS)
