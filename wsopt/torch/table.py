"""What each operation of an FX graph means in our graphs: a table, one entry an operation.

An entry is a function of the writer and of the operation's arguments, with values in the place of FX nodes. It
returns the result, a tuple of results, or raises Untaken with the reason. Casts to the result's own type follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from wsopt.graph.types import DType
from wsopt.torch.dtypes import dtype_of
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer, number

Entry = Callable[..., Any]
_Function = TypeVar("_Function", bound=Entry)
TABLE: dict[Any, Entry] = {}
"""The entries by overload, such as `torch.ops.aten.mm.default`."""

aten, prims = torch.ops.aten, torch.ops.prims


def entry(*targets: Any) -> Callable[[_Function], _Function]:
    """Enter a function for these operations."""

    def entered(function: _Function) -> _Function:
        TABLE.update(dict.fromkeys(targets, function))
        return function

    return entered


def found(namespace: Any, name: str, overload: str = "default") -> tuple[Any, ...]:
    """An operation, if this release of torch has it."""
    packet = getattr(namespace, name, None)
    return (getattr(packet, overload),) if packet is not None and overload in packet.overloads() else ()


def as_value(x: Value | float) -> Value:
    """An operand; a number, or a truth value, as one that is the same everywhere."""
    return x if isinstance(x, Value) else number(x)


# --- elementwise ----------------------------------------------------------------------------------------


def _numbers(op: str, w: Writer, *operands: Value | float) -> Value:
    values = [as_value(x) for x in operands]
    if any(isinstance(x, bool) for x in operands):
        raise Untaken(f"{op} of a truth value")
    return w.elementwise(op, *values)


def _is_real(w: Writer, *values: Value | float) -> bool:
    return any(isinstance(x, float) or (isinstance(x, Value) and w.dtype(x).is_float) for x in values)


def _elementwise(op: str, *targets: Any) -> None:
    def write(w: Writer, *operands: Value | float) -> Value:
        return _numbers(op, w, *operands)

    entry(*targets)(write)


def _real(op: str, *targets: Any) -> None:
    def write(w: Writer, *operands: Value | float) -> Value:
        if not _is_real(w, *operands):
            raise Untaken(f"{op} of integers")
        return _numbers(op, w, *operands)

    entry(*targets)(write)


for _op in (
    "exp",
    "exp2",
    "log",
    "log2",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "tanh",
    "sigmoid",
    "erf",
    "sin",
    "cos",
):
    _real(_op, getattr(aten, _op).default)
for _op in ("neg", "abs", "relu"):
    _elementwise(_op, getattr(aten, _op).default)
_real("silu", aten.silu.default)
_elementwise("maximum", aten.maximum.default)
_elementwise("minimum", aten.minimum.default)
_elementwise("mul", aten.mul.Tensor, aten.mul.Scalar)
_real("div", aten.div.Tensor, aten.div.Scalar)
for _op, _aten in {
    "equal": aten.eq,
    "not_equal": aten.ne,
    "less": aten.lt,
    "less_equal": aten.le,
    "greater": aten.gt,
    "greater_equal": aten.ge,
}.items():
    _elementwise(_op, _aten.Tensor, _aten.Scalar)


@entry(aten.add.Tensor, aten.add.Scalar)
def _add(w: Writer, a: Value | float, b: Value | float, alpha: float = 1) -> Value:
    return _numbers("add", w, a, b if alpha == 1 else _numbers("mul", w, b, alpha))


@entry(aten.sub.Tensor, aten.sub.Scalar)
def _sub(w: Writer, a: Value | float, b: Value | float, alpha: float = 1) -> Value:
    return _numbers("sub", w, a, b if alpha == 1 else _numbers("mul", w, b, alpha))


@entry(aten.rsub.Scalar, aten.rsub.Tensor)
def _rsub(w: Writer, a: Value | float, b: Value | float, alpha: float = 1) -> Value:
    return _sub(w, b, a, alpha)


@entry(aten.pow.Tensor_Scalar)
def _pow(w: Writer, x: Value, exponent: float) -> Value:
    if not _is_real(w, x):
        raise Untaken("pow of integers")
    if exponent == 2:
        return w.elementwise("mul", x, x)
    if exponent == 3:
        return w.elementwise("mul", w.elementwise("mul", x, x), x)
    if exponent == 0.5:
        return w.elementwise("sqrt", x)
    if exponent == -0.5:
        return w.elementwise("rsqrt", x)
    return _numbers("pow", w, x, float(exponent))


@entry(aten.pow.Tensor_Tensor)
def _pow_of_tensors(w: Writer, x: Value, exponent: Value) -> Value:
    if not _is_real(w, x):
        raise Untaken("pow of integers")
    return w.elementwise("pow", x, exponent)


@entry(aten.gelu.default)
def _gelu(w: Writer, x: Value, approximate: str = "none") -> Value:
    return w.elementwise("gelu", x, approximate=approximate)


@entry(aten.clamp.default, aten.clamp.Tensor)
def _clamp(w: Writer, x: Value, least: Any = None, most: Any = None) -> Value:
    for op, bound in (("maximum", least), ("minimum", most)):
        x = x if bound is None else _numbers(op, w, x, bound)
    return x


@entry(aten.clamp_min.default)
def _clamp_min(w: Writer, x: Value, least: float) -> Value:
    return _clamp(w, x, least)


@entry(aten.clamp_max.default)
def _clamp_max(w: Writer, x: Value, most: float) -> Value:
    return _clamp(w, x, None, most)


@entry(aten.where.self)
def _where(w: Writer, condition: Value, a: Value | float, b: Value | float) -> Value:
    return w.elementwise("where", condition, as_value(a), as_value(b))


@entry(aten.logical_and.default, aten.bitwise_and.Tensor)
def _and(w: Writer, a: Value, b: Value) -> Value:
    return _logical("logical_and", w, a, b)


@entry(aten.logical_or.default, aten.bitwise_or.Tensor)
def _or(w: Writer, a: Value, b: Value) -> Value:
    return _logical("logical_or", w, a, b)


@entry(aten.logical_not.default, aten.bitwise_not.default)
def _not(w: Writer, x: Value) -> Value:
    return w.elementwise("logical_not", x)


def _logical(op: str, w: Writer, a: Value, b: Value) -> Value:
    """A logical operation; one with a constant is decided at once."""
    for one, other in ((a, b), (b, a)):
        if isinstance(one.tensor, bool):
            if one.tensor is (op == "logical_and"):
                return w.expand(other, w.shape)
            raise Untaken(f"{op} with {one.tensor} everywhere")
    return w.elementwise(op, a, b)


# --- types and copies -----------------------------------------------------------------------------------


@entry(prims.convert_element_type.default)
def _convert(w: Writer, x: Value, dtype: torch.dtype) -> Value:
    if not isinstance(x.tensor, str):
        return x
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
    if not (x.whole or w.sees_through):
        raise Untaken("a copy that repeats elements, as a kernel could not read them repeated")
    return x


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
    index = index if step == 1 else _numbers("mul", w, index, step)
    return index if start == 0 else _numbers("add", w, index, start)


@entry(aten.arange.default)
def _arange(w: Writer, end: int, **_how: Any) -> Value:
    return _arange_from(w, 0, end)


@entry(aten.arange.start, aten.arange.start_step)
def _arange_from(w: Writer, start: int, end: int, step: int = 1, **_how: Any) -> Value:
    if not all(isinstance(one, int) for one in (start, end, step)):
        raise Untaken("indices that are no integers")
    return _iota(w, *w.shape, start=start, step=step)


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
        variance = _numbers(
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
    scale = w.elementwise("rsqrt", _numbers("add", w, variance, eps))
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
    product = product if alpha == 1 else _numbers("mul", w, product, float(alpha))
    if beta == 0:
        return product
    return w.elementwise("add", product, x if beta == 1 else _numbers("mul", w, x, float(beta)))


# --- attention ------------------------------------------------------------------------------------------


def attention(
    w: Writer, q: Value, k: Value, v: Value, mask: Value | None, causal: bool, scale: float | None
) -> Value:
    """softmax(scale * q @ k.T + mask) @ v of [batch, heads, rows, width] each; groups of query heads share keys.

    Scores and their softmax are f32; weights are rounded to the type of v, as every kernel for this does.
    """
    heads, shared, dtype = q.shape[1], k.shape[1], w.dtype(v)
    if heads % shared:
        raise Untaken(f"{heads} query heads of {shared} heads of keys")
    if heads != shared:
        k, v = (_for_groups(w, one, heads // shared) for one in (k, v))
    scores = w.matmul(q, k, transpose_b=True)
    scores = _numbers("mul", w, scores, 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale))
    if mask is not None:
        boolean = w.dtype(mask) is DType.BOOL
        scores = (
            w.elementwise("where", mask, scores, number(-math.inf))
            if boolean
            else w.elementwise("add", scores, mask)
        )
    if causal:
        rows, columns = scores.shape[-2:]
        seen = w.elementwise("less_equal", w.index((1, columns), 1), w.index((rows, 1), 0))
        scores = w.elementwise("where", seen, scores, number(-math.inf))
    weights = w.softmax(scores)
    return w.matmul(w.cast(weights, dtype), v)


def _for_groups(w: Writer, x: Value, group: int) -> Value:
    """Keys of [batch, heads, ...] as those of `group` query heads each."""
    batch, heads, *rest = x.shape
    apart = w.view(x, (batch, heads, 1, *rest))
    return w.view(w.expand(apart, (batch, heads, group, *rest)), (batch, heads * group, *rest))


def _no_dropout(dropout: float) -> None:
    if dropout:
        raise Untaken("attention with dropout")


@entry(*found(aten, "_scaled_dot_product_flash_attention"))
def _flash(
    w: Writer, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False,
    _mask: bool = False, *, scale: float | None = None,
) -> tuple[Value]:  # fmt: skip
    _no_dropout(dropout)
    return (attention(w, q, k, v, None, causal, scale),)


@entry(*found(aten, "_scaled_dot_product_flash_attention_for_cpu"))
def _flash_for_cpu(
    w: Writer, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False,
    *, attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value]:  # fmt: skip
    _no_dropout(dropout)
    return (attention(w, q, k, v, attn_mask, causal, scale),)


@entry(
    *found(aten, "_scaled_dot_product_efficient_attention"),
    *found(aten, "_scaled_dot_product_cudnn_attention"),
)
def _with_bias(
    w: Writer, q: Value, k: Value, v: Value, bias: Value | None, _sums: bool, dropout: float = 0.0,
    causal: bool = False, _mask: bool = False, *, scale: float | None = None,
) -> tuple[Value]:  # fmt: skip
    _no_dropout(dropout)
    return (attention(w, q, k, v, bias, causal, scale),)


@entry(*found(aten, "_scaled_dot_product_fused_attention_overrideable"))
def _overrideable(
    w: Writer, q: Value, k: Value, v: Value, bias: Value | None = None, dropout: float = 0.0,
    causal: bool = False, _mask: bool = False, *, scale: float | None = None,
) -> tuple[Value]:  # fmt: skip
    _no_dropout(dropout)
    return (attention(w, q, k, v, bias, causal, scale),)
