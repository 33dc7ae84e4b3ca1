"""Elementwise operations of an FX graph that are several of ours."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence

from wsopt.graph.types import DType
from wsopt.torch.sizes import changes
from wsopt.torch.table import as_numbers, aten, check_real, entry, found, prims
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer, number

importlib.import_module("torch._inductor.inductor_prims")  # enters `prims.fma`, which decompositions give

_NEAR = 0.125
"""Below it `exp(x) - 1` and `log(1 + x)` are series: differences of nearly equal numbers lose their digits."""
_EXPM1 = tuple(1 / math.factorial(power) for power in range(1, 7))
_LOG1P = tuple((1 if power % 2 else -1) / power for power in range(1, 8))
"""Coefficients of x, x**2, ..., so many that what is left out is below the roundings of f32."""


def _with_series(w: Writer, x: Value, series: Sequence[float], away: Value) -> Value:
    """`away`, but where x is near zero the sum of `series[i] * x**(i + 1)`."""
    total = as_numbers("mul", w, x, series[-1])
    for coefficient in series[-2::-1]:
        total = w.elementwise("mul", as_numbers("add", w, total, coefficient), x)
    near = as_numbers("less", w, w.elementwise("abs", x), _NEAR)
    return w.elementwise("where", near, total, away)


@entry(aten.expm1.default)
def _expm1(w: Writer, x: Value) -> Value:
    check_real(w, "expm1", x)
    return _with_series(w, x, _EXPM1, as_numbers("sub", w, w.elementwise("exp", x), 1.0))


@entry(aten.log1p.default)
def _log1p(w: Writer, x: Value) -> Value:
    check_real(w, "log1p", x)
    return _with_series(w, x, _LOG1P, w.elementwise("log", as_numbers("add", w, x, 1.0)))


@entry(aten.sign.default)
def _sign(w: Writer, x: Value) -> Value:
    """1 and -1, and 0 of what is neither above nor below zero, not-a-number too."""
    check_real(w, "sign", x)
    below = w.elementwise("where", as_numbers("less", w, x, 0.0), number(-1.0), number(0.0))
    return w.elementwise("where", as_numbers("greater", w, x, 0.0), number(1.0), below)


@entry(aten.isnan.default)
def _isnan(w: Writer, x: Value) -> Value:
    check_real(w, "isnan", x)
    return w.elementwise("not_equal", x, x)


@entry(aten.isinf.default)
def _isinf(w: Writer, x: Value) -> Value:
    check_real(w, "isinf", x)
    return as_numbers("equal", w, w.elementwise("abs", x), math.inf)


@entry(aten.pow.Scalar)
def _power_of_a_number(w: Writer, base: float, exponent: Value) -> Value:
    if not 0 < base < math.inf:
        raise Untaken(f"powers of {base:g}")
    return w.elementwise("exp2", as_numbers("mul", w, w.cast(exponent, DType.F32), math.log2(base)))


@entry(*found(prims, "fma"))
def _multiply_and_add(w: Writer, a: Value | float, b: Value | float, c: Value | float) -> Value:
    """Factors may be numbers, as those of an optimizer's step are."""
    return as_numbers("add", w, as_numbers("mul", w, a, b), c)


@entry(aten.addcmul.default)
def _add_product(w: Writer, x: Value, a: Value, b: Value, *, value: float = 1) -> Value:
    product = w.elementwise("mul", a, b)
    return w.elementwise("add", x, product if value == 1 else as_numbers("mul", w, product, float(value)))


@entry(aten.addcdiv.default)
def _add_quotient(w: Writer, x: Value, a: Value, b: Value, *, value: float = 1) -> Value:
    quotient = w.elementwise("div", a, b)
    return w.elementwise("add", x, quotient if value == 1 else as_numbers("mul", w, quotient, float(value)))


@entry(aten.glu.default)
def _glu(w: Writer, x: Value, dim: int = -1) -> Value:
    """One half along a dimension times the sigmoid of the other."""
    dim %= len(x.dims)
    if changes(x.shape[dim]):
        raise Untaken("halves of an extent that changes from call to call")
    half = x.shape[dim] // 2
    kept, gate = w.slice(x, dim, 0, half), w.slice(x, dim, half, 2 * half)
    return w.elementwise("mul", kept, w.elementwise("sigmoid", gate))
