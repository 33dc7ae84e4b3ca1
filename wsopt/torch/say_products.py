"""What reductions and products of an FX graph mean in our graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from wsopt.torch.table import as_numbers, aten, check_real, entry, found
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer

# --- reductions -----------------------------------------------------------------------------------------


def _reduction(op: str, *targets: Any) -> None:
    def write(w: Writer, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
        del dtype
        check_real(w, op, x)
        return w.reduce(op, x, [dims] if isinstance(dims, int) else dims or (), keepdim)

    entry(*targets)(write)


_reduction("reduce_sum", aten.sum.dim_IntList)
_reduction("reduce_mean", aten.mean.dim)
_reduction("reduce_max", aten.amax.default)
_reduction("reduce_min", aten.amin.default)


def _values_of(op: str, *targets: Any) -> None:
    """Extremes along a dimension, whose places are not said."""

    def write(w: Writer, x: Value, dim: int, keepdim: bool = False) -> tuple[Value]:
        check_real(w, op, x)
        return (w.reduce(op, x, [dim], keepdim),)

    entry(*targets)(write)


_values_of("reduce_max", aten.max.dim)
_values_of("reduce_min", aten.min.dim)


def _reduction_of_all(op: str, *targets: Any) -> None:
    def write(w: Writer, x: Value, dtype: Any = None) -> Value:
        del dtype
        check_real(w, op, x)
        return w.reduce(op, x, (), False)

    entry(*targets)(write)


_reduction_of_all("reduce_sum", aten.sum.default)
_reduction_of_all("reduce_mean", aten.mean.default)


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


def _logarithm_of_sum(w: Writer, x: Value, over: Sequence[int], keepdim: bool) -> Value:
    """The logarithm of the sum of powers of e, with the largest exponent taken out first."""
    largest = w.reduce("reduce_max", x, over, True)
    power = w.elementwise("exp", w.elementwise("sub", x, largest))
    if not keepdim:
        largest = w.reduce("reduce_max", x, over, False)
    return w.elementwise("add", w.elementwise("log", w.reduce("reduce_sum", power, over, keepdim)), largest)


@entry(aten.logsumexp.default)
def _logsumexp(w: Writer, x: Value, dims: Sequence[int], keepdim: bool = False) -> Value:
    return _logarithm_of_sum(w, x, dims, keepdim)


@entry(aten._log_softmax.default)
def _log_softmax(w: Writer, x: Value, dim: int, half_to_float: bool = False) -> Value:
    del half_to_float
    return w.elementwise("sub", x, _logarithm_of_sum(w, x, [dim], True))


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

OPERANDS = {
    aten.mm.default: (0, 1),
    aten.bmm.default: (0, 1),
    aten.addmm.default: (1, 2),
    aten.baddbmm.default: (1, 2),
}
"""The places of the operands among a product's arguments."""


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


@entry(aten.addbmm.default)
def _addbmm(w: Writer, x: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """The sum of the products of all batches: one product that contracts batches as well."""
    batches, rows, inner = a.shape
    left = w.view(w.permute(a, (1, 0, 2)), (rows, batches * inner))
    return _addmm(w, x, left, w.view(b, (batches * inner, b.shape[2])), beta=beta, alpha=alpha)


@entry(*found(aten, "_scaled_mm"))
def _scaled_mm(
    w: Writer, a: Value, b: Value, scale_a: Value, scale_b: Value, bias: Value | None = None,
    scale_result: Value | None = None, out_dtype: Any = None, use_fast_accum: bool = False,
) -> Value:  # fmt: skip
    """A product of f8, each operand with one scale, or one a row of a and a column of b."""
    del out_dtype
    if scale_result is not None:
        raise Untaken("a product whose result is scaled")
    rows, columns = a.shape[0], b.shape[1]
    if not (
        scale_a.shape in ((), (1,), (1, 1), (rows, 1)) and scale_b.shape in ((), (1,), (1, 1), (1, columns))
    ):
        raise Untaken("scales of blocks")
    product = w.matmul(a, b, accumulate="fast" if use_fast_accum else "f32")
    scaled = w.elementwise("mul", w.elementwise("mul", product, scale_a), scale_b)
    return scaled if bias is None else w.elementwise("add", scaled, bias)


@entry(*found(aten, "_grouped_mm"))
def _grouped_mm(
    w: Writer, a: Value, b: Value, offs: Value | None = None, bias: Value | None = None, out_dtype: Any = None
) -> Value:
    """A product of groups of rows. Rows behind the last offset, which torch leaves open, are zeros."""
    del out_dtype
    if offs is None or len(a.shape) != 2 or len(b.shape) != 3:
        raise Untaken("a product of groups that are not rows of one matrix")
    if bias is not None:
        raise Untaken("a product of groups with a bias")
    return w.grouped_matmul(a, b, offs)
