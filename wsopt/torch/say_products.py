"""What reductions and products of an FX graph mean in our graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from wsopt.torch.table import as_numbers, aten, entry
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer

# --- reductions -----------------------------------------------------------------------------------------


def _reduction(op: str, *targets: Any) -> None:
    def write(w: Writer, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
        del dtype
        if not w.dtype(x).is_float:
            raise Untaken(f"{op} of {w.dtype(x).value}")
        return w.reduce(op, x, [dims] if isinstance(dims, int) else dims or (), keepdim)

    entry(*targets)(write)


_reduction("reduce_sum", aten.sum.dim_IntList)
_reduction("reduce_mean", aten.mean.dim)
_reduction("reduce_max", aten.amax.default)
_reduction("reduce_min", aten.amin.default)


@entry(aten.sum.default)
def _sum(w: Writer, x: Value, dtype: Any = None) -> Value:
    del dtype
    if not w.dtype(x).is_float:
        raise Untaken(f"reduce_sum of {w.dtype(x).value}")
    return w.reduce("reduce_sum", x, (), False)


def _variance(
    w: Writer, x: Value, dims: Sequence[int] | None, correction: float, keepdim: bool
) -> tuple[Value, Value]:
    """Variance and mean."""
    over = sorted({dim % len(x.dims) for dim in dims} if dims else range(len(x.dims)))
    count = math.prod(x.shape[dim] for dim in over)
    mean = w.reduce("reduce_mean", x, over, True)
    centred = w.elementwise("sub", x, mean)
    square = w.elementwise("mul", centred, centred)
    if correction == 0:
        variance = w.reduce("reduce_mean", square, over, keepdim)
    else:
        variance = as_numbers(
            "div", w, w.reduce("reduce_sum", square, over, keepdim), float(count - correction)
        )
    return variance, mean if keepdim else w.reduce("reduce_mean", x, over, False)


@entry(aten.var_mean.correction)
def _var_mean(
    w: Writer, x: Value, dims: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    return _variance(w, x, dims, 1 if correction is None else correction, keepdim)


@entry(aten.var.correction)
def _var(
    w: Writer, x: Value, dims: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Value:
    return _variance(w, x, dims, 1 if correction is None else correction, keepdim)[0]


@entry(aten._softmax.default)
def _softmax(w: Writer, x: Value, dim: int, half_to_float: bool = False) -> Value:
    del half_to_float
    largest = w.reduce("reduce_max", x, [dim], True)
    power = w.elementwise("exp", w.elementwise("sub", x, largest))
    return w.elementwise("div", power, w.reduce("reduce_sum", power, [dim], True))


@entry(aten.native_layer_norm.default)
def _layer_norm(
    w: Writer, x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, ...]:
    over = range(len(x.dims) - len(shape), len(x.dims))
    variance, mean = _variance(w, x, list(over), 0, True)
    scale = w.elementwise("rsqrt", as_numbers("add", w, variance, eps))
    result = w.elementwise("mul", w.elementwise("sub", x, mean), scale)
    result = result if weight is None else w.elementwise("mul", result, weight)
    return result if bias is None else w.elementwise("add", result, bias), mean, scale


# --- products -------------------------------------------------------------------------------------------


@entry(aten.mm.default, aten.bmm.default)
def _mm(w: Writer, a: Value, b: Value) -> Value:
    return w.matmul(a, b)


@entry(aten.addmm.default, aten.baddbmm.default)
def _addmm(w: Writer, x: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    product = w.matmul(a, b)
    product = product if alpha == 1 else as_numbers("mul", w, product, float(alpha))
    if beta == 0:
        return product
    return w.elementwise("add", product, x if beta == 1 else as_numbers("mul", w, x, float(beta)))
