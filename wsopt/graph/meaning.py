"""Reference of each operation in NumPy: f32 arithmetic, i32 for integers, rounding in casts only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from wsopt.graph.infer import Attrs, places
from wsopt.graph.types import DType
from wsopt.primitives.functions import erf, rsqrt

Array = npt.NDArray[Any]
Arrays = tuple[Array, ...]
Meaning = Callable[[Arrays, Attrs], Array]

F8_LARGEST = {DType.F8E4M3: 448.0, DType.F8E5M2: 57344.0}
_INT_RANGE = {DType.I32: (-(2**31), 2**31 - 1), DType.I8: (-128, 127), DType.I4: (-8, 7)}


def f32(array: Array) -> Array:
    """The array in f32."""
    return np.asarray(array, dtype=np.float32)


def numbers(function: Callable[..., Array]) -> Meaning:
    """Apply in i32 if all operands are integers, in f32 otherwise."""

    def apply(arrays: Arrays, _attrs: Attrs) -> Array:
        integers = all(array.dtype.kind == "i" for array in arrays)
        return function(*(array.astype(np.int32 if integers else np.float32) for array in arrays))

    return apply


def reals(function: Callable[..., Array]) -> Meaning:
    """Apply in f32."""
    return lambda arrays, _attrs: function(*map(f32, arrays))


def bools(function: Callable[..., Array]) -> Meaning:
    """Apply to bools as they are."""
    return lambda arrays, _attrs: function(*arrays)


def choices(function: Callable[..., Array]) -> Meaning:
    """Apply to a condition and two operands: bools as they are, else in i32 or f32."""

    def apply(arrays: Arrays, attrs: Attrs) -> Array:
        condition, a, b = arrays
        if a.dtype == b.dtype == np.bool_:
            return function(condition, a, b)
        return numbers(lambda a, b: np.asarray(function(condition, a, b)))((a, b), attrs)

    return apply


# --- elementwise ----------------------------------------------------------------------------------------


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), which is 0 where exp overflows."""
    return f32(np.float32(1) / (np.float32(1) + np.exp(-x)))


def silu(x: Array) -> Array:
    """x sigmoid(x)."""
    return f32(x * sigmoid(x))


def relu(x: Array) -> Array:
    """The larger of x and 0; nan stays nan."""
    return np.asarray(np.maximum(x, x.dtype.type(0)))


def gelu(arrays: Arrays, attrs: Attrs) -> Array:
    """x Phi(x), or its tanh approximation (Hendrycks and Gimpel, arXiv:1606.08415)."""
    x, half, one = f32(arrays[0]), np.float32(0.5), np.float32(1)
    if attrs["approximate"] == "tanh":
        inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
        return f32(half * x * (one + np.tanh(inner)))
    return f32(half * x * (one + erf(x * np.float32(np.sqrt(0.5)))))


def cast(arrays: Arrays, attrs: Attrs) -> Array:
    """The operand in another dtype, see `cast_array`."""
    return cast_array(arrays[0], attrs["dtype"])


def cast_array(x: Array, dtype: DType) -> Array:
    """Round to nearest even; f8 and the integers saturate, bool is `x != 0`, nan becomes the integer 0.

    Every source is first brought to f32 (exact for all floats), unless both sides are integers.
    """
    if dtype is DType.BOOL:
        return np.asarray(f32(x) != 0)
    if dtype.is_integer:
        low, high = _INT_RANGE[dtype]
        if x.dtype.kind != "i":
            x = np.nan_to_num(np.rint(x.astype(np.float64)), nan=0.0, posinf=high, neginf=low)
        return np.clip(x, low, high).astype(dtype.numpy)
    x = f32(x)
    if dtype in F8_LARGEST:
        x = np.clip(x, np.float32(-F8_LARGEST[dtype]), np.float32(F8_LARGEST[dtype]))
    return x.astype(dtype.numpy)


# --- contraction and movement ---------------------------------------------------------------------------


def matmul(arrays: Arrays, attrs: Attrs) -> Array:
    """The product of two matrices (stacks of them), summed in f32, for i8 in i32."""
    a, b = arrays
    a = np.swapaxes(a, -1, -2) if attrs["transpose_a"] else a
    b = np.swapaxes(b, -1, -2) if attrs["transpose_b"] else b
    if a.dtype == np.int8:
        # f64 holds every such sum exactly, and is a BLAS call, which int32 is not.
        exact = a.astype(np.float64) @ b.astype(np.float64)
        return exact.astype(np.int64).astype(np.int32)
    if attrs["precision"] == "tf32":
        a, b = cut_to_tf32(a), cut_to_tf32(b)
    product: Array = f32(a) @ f32(b)
    return product


def cut_to_tf32(x: Array) -> Array:
    """f32 cut to the 10 fraction bits of tf32, which is what a tensor core reads of it."""
    cut = np.asarray(x, dtype=np.float32, order="C").view(np.uint32) & np.uint32(0xFFFFE000)
    return np.asarray(np.where(np.isfinite(x), cut.view(np.float32), x))


def iota(_arrays: Arrays, attrs: Attrs) -> Array:
    """The index along `axis`."""
    shape, axis = attrs["shape"], attrs["axis"]
    column = np.arange(shape[axis], dtype=np.int32).reshape([-1] + [1] * (len(shape) - axis - 1))
    return np.broadcast_to(column, shape)


def reshape(arrays: Arrays, attrs: Attrs) -> Array:
    """The elements in row-major order, in another shape."""
    return arrays[0].reshape(attrs["shape"])


def transpose(arrays: Arrays, attrs: Attrs) -> Array:
    """The axes in the order of `perm`."""
    return np.transpose(arrays[0], attrs["perm"])


def slice_(arrays: Arrays, attrs: Attrs) -> Array:
    """The places of a slice along `axis`."""
    x, axis = arrays[0], attrs["axis"]
    found = places(attrs, x.shape[axis])
    taken: Array = x[(slice(None),) * axis + (slice(found.start, found.stop, found.step),)]
    return taken


def concat(arrays: Arrays, attrs: Attrs) -> Array:
    """The arrays one behind the other along `axis`."""
    return np.concatenate(arrays, axis=attrs["axis"])


def pad(arrays: Arrays, attrs: Attrs) -> Array:
    """The elements with zeros before and behind them along every axis."""
    return np.pad(arrays[0], tuple(zip(attrs["low"], attrs["high"], strict=True)))


def gather(arrays: Arrays, attrs: Attrs) -> Array:
    """The elements at the indices along `axis`; zeros for an index outside."""
    (x, indices), axis = arrays, attrs["axis"]
    inside = (indices >= 0) & (indices < x.shape[axis])
    taken = np.take(x, np.where(inside, indices, 0), axis=axis)
    known = inside.reshape(inside.shape + (1,) * (x.ndim - axis - 1))
    return np.where(known, taken, np.zeros((), x.dtype))


# --- reductions and composites --------------------------------------------------------------------------


def reduction(function: Callable[..., Any]) -> Meaning:
    """Reduce along `axis`, in i32 for integers and in f32 otherwise."""

    def apply(arrays: Arrays, attrs: Attrs) -> Array:
        options = {"axis": attrs["axis"], "keepdims": attrs["keepdims"]}
        reduced = numbers(lambda x: np.asarray(function(x, **options)))(arrays, attrs)
        return reduced.astype(np.int32) if reduced.dtype.kind == "i" else f32(reduced)

    return apply


def reduce_mean(arrays: Arrays, attrs: Attrs) -> Array:
    """The mean along `axis`."""
    return f32(np.asarray(np.mean(f32(arrays[0]), axis=attrs["axis"], keepdims=attrs["keepdims"])))


def logsumexp(arrays: Arrays, attrs: Attrs) -> Array:
    """log of the sum of exp(x) along `axis`, with the maximum subtracted; -inf for a row that is all -inf."""
    x, options = f32(arrays[0]), {"axis": attrs["axis"], "keepdims": True}
    largest = np.max(x, **options)
    subtracted = np.where(np.isinf(largest), np.float32(0), largest)
    logarithm = f32(np.log(np.sum(np.exp(x - subtracted), **options)) + subtracted)
    return logarithm if attrs["keepdims"] else np.squeeze(logarithm, axis=attrs["axis"])


def softmax(arrays: Arrays, attrs: Attrs) -> Array:
    """exp(x - max) over its sum along `axis`; a row that is all -inf gives zeros."""
    x, axis = f32(arrays[0]), attrs["axis"]
    largest = np.max(x, axis=axis, keepdims=True)
    weights = np.exp(x - np.where(largest == -np.inf, np.float32(0), largest))
    total = np.sum(weights, axis=axis, keepdims=True)
    return f32(weights / np.where(total == 0, np.float32(1), total))


def rms_norm(arrays: Arrays, attrs: Attrs) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis."""
    x, weight = map(f32, arrays)
    power = np.mean(x * x, axis=-1, keepdims=True)
    return f32(x * rsqrt(power + np.float32(attrs["eps"])) * weight)


def layer_norm(arrays: Arrays, attrs: Attrs) -> Array:
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the last axis."""
    x, weight, bias = map(f32, arrays)
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return f32(centred * rsqrt(variance + np.float32(attrs["eps"])) * weight + bias)
