"""Elementwise operations of the graph as trees of scalar primitives (`wsopt.primitives`).

Where every use of a value ends in a type of eight
significant bits or fewer, the hardware's tanh serves (its error is 2**-11); elsewhere the forms are those of
f32, to 1e-6 of the values that they add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from wsopt.primitives import PRIMITIVES

Term = str | int | float
Emit = Callable[[str, tuple[Term, ...]], Term]


def _tanh(emit: Emit, x: Term, approximate: bool) -> Term:
    """tanh(x); without the hardware's as 1 - 2 / (1 + exp(2x)), which has its limits, within 1e-7 of one."""
    if approximate:
        return emit("tanh_approx", (x,))
    grown = emit("exp", (emit("mul", (x, 2.0)),))
    return emit("sub", (1.0, emit("div", (2.0, emit("add", (grown, 1.0))))))


def _sigmoid(emit: Emit, x: Term, approximate: bool) -> Term:
    """1 / (1 + exp(-x)), or 0.5 + 0.5 tanh(x / 2)."""
    if approximate:
        half = emit("tanh_approx", (emit("mul", (x, 0.5)),))
        return emit("add", (emit("mul", (half, 0.5)), 0.5))
    return emit("div", (1.0, emit("add", (emit("exp", (emit("neg", (x,)),)), 1.0))))


def _silu(emit: Emit, x: Term, approximate: bool) -> Term:
    """x sigmoid(x); with h = x / 2 it is h + h tanh(h)."""
    if approximate:
        half = emit("mul", (x, 0.5))
        return emit("add", (emit("mul", (half, emit("tanh_approx", (half,)))), half))
    return emit("div", (x, emit("add", (emit("exp", (emit("neg", (x,)),)), 1.0))))


def _gelu_erf(emit: Emit, x: Term) -> Term:
    """x / 2 (1 + erf(x / sqrt 2)) (Hendrycks and Gimpel 2016)."""
    inner = emit("erf", (emit("mul", (x, math.sqrt(0.5))),))
    half = emit("mul", (x, 0.5))
    return emit("add", (emit("mul", (half, inner)), half))


def _gelu_tanh(emit: Emit, x: Term, approximate: bool) -> Term:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3))) (Hendrycks and Gimpel 2016)."""
    scale = math.sqrt(2 / math.pi)
    square = emit("mul", (x, x))
    slope = emit("add", (emit("mul", (square, scale * 0.044715)), scale))
    bent = _tanh(emit, emit("mul", (x, slope)), approximate)
    half = emit("mul", (x, 0.5))
    return emit("add", (emit("mul", (half, bent)), half))


def _power(emit: Emit, x: Term, exponent: Term) -> Term | None:
    """x**e for a number e: by multiplication for small whole e, else exp2(e log2 |x|); None for a tensor e.

    A large whole exponent keeps the sign of x if it is odd; the power of a negative x by a fraction is nan.
    """
    if isinstance(exponent, str):
        return None
    if exponent == 0:
        return emit("where", (emit("equal", (x, x)), 1.0, 1.0))
    if float(exponent).is_integer() and 1 <= abs(exponent) <= 8:
        result: Term = x
        for _ in range(int(abs(exponent)) - 1):
            result = emit("mul", (result, x))
        return result if exponent > 0 else emit("div", (1.0, result))
    if float(exponent).is_integer():
        grown = emit("exp2", (emit("mul", (emit("log2", (emit("abs", (x,)),)), float(exponent))),))
        if exponent % 2 == 0:
            return grown
        return emit("where", (emit("less", (x, 0.0)), emit("neg", (grown,)), grown))
    return emit("exp2", (emit("mul", (emit("log2", (x,)), float(exponent))),))


def expand(
    op: str, args: tuple[Term, ...], emit: Emit, *, approximate: bool, flavour: str = ""
) -> Term | None:
    """The result of an elementwise op of the graph, written through `emit`; None if it has no expansion.

    `emit(primitive, args)` appends a statement and returns its name. `approximate` allows the hardware's
    tanh; `flavour` is gelu's `approximate` attribute.
    """
    match op, args:
        case "relu", (x,):
            return emit("maximum", (x, 0.0))
        case "reciprocal", (x,):
            return emit("div", (1.0, x))
        case "tanh", (x,):
            return _tanh(emit, x, approximate)
        case "sigmoid", (x,):
            return _sigmoid(emit, x, approximate)
        case "silu", (x,):
            return _silu(emit, x, approximate)
        case "gelu", (x,):
            return _gelu_tanh(emit, x, approximate) if flavour == "tanh" else _gelu_erf(emit, x)
        case "pow", (x, exponent):
            return _power(emit, x, exponent)
        case _ if op in PRIMITIVES and PRIMITIVES[op].doc:
            return emit(op, args)
        case _:
            return None
