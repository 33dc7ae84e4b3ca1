"""What elementwise operations of an FX graph mean in our graphs."""

from __future__ import annotations

from typing import Any

from wsopt.graph.types import DType
from wsopt.torch.table import as_numbers, as_value, aten, entry
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer


def _is_real(w: Writer, *values: Value | float) -> bool:
    return any(isinstance(x, float) or (isinstance(x, Value) and w.dtype(x).is_float) for x in values)


def _elementwise(op: str, *targets: Any) -> None:
    def write(w: Writer, *operands: Value | float) -> Value:
        return as_numbers(op, w, *operands)

    entry(*targets)(write)


def _real(op: str, *targets: Any) -> None:
    def write(w: Writer, *operands: Value | float) -> Value:
        if not _is_real(w, *operands):
            raise Untaken(f"{op} of integers")
        return as_numbers(op, w, *operands)

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


@entry(aten.mul.Tensor, aten.mul.Scalar)
def _mul(w: Writer, a: Value | float, b: Value | float) -> Value:
    """A product. Truth values beside real numbers count as one and zero."""
    if _is_real(w, a, b):
        a, b = (
            w.cast(x, DType.F32) if isinstance(x, Value) and w.dtype(x) is DType.BOOL else x for x in (a, b)
        )
    return as_numbers("mul", w, a, b)


@entry(aten.add.Tensor, aten.add.Scalar)
def _add(w: Writer, a: Value | float, b: Value | float, alpha: float = 1) -> Value:
    return as_numbers("add", w, a, b if alpha == 1 else as_numbers("mul", w, b, alpha))


@entry(aten.sub.Tensor, aten.sub.Scalar)
def _sub(w: Writer, a: Value | float, b: Value | float, alpha: float = 1) -> Value:
    return as_numbers("sub", w, a, b if alpha == 1 else as_numbers("mul", w, b, alpha))


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
    return as_numbers("pow", w, x, float(exponent))


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
        x = x if bound is None else as_numbers(op, w, x, bound)
    return x


@entry(aten.clamp_min.default, aten.clamp_min.Tensor)
def _clamp_min(w: Writer, x: Value, least: Value | float) -> Value:
    return _clamp(w, x, least)


@entry(aten.clamp_max.default, aten.clamp_max.Tensor)
def _clamp_max(w: Writer, x: Value, most: Value | float) -> Value:
    return _clamp(w, x, None, most)


@entry(aten.where.self)
def _where(w: Writer, condition: Value, a: Value | float, b: Value | float) -> Value:
    if isinstance(condition.tensor, bool):  # the same everywhere
        return w.expand(as_value(a if condition.tensor else b), w.shape)
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
