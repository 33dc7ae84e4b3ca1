"""What ONNX's curves mean in our graphs that it defines by others in later versions alone, or not at all."""

from __future__ import annotations

from wsopt.importers.onnx_table import Call, entry
from wsopt.torch.values import Value
from wsopt.torch.writer import Writer, number


def _below(w: Writer, x: Value, other: Value) -> Value:
    """x where it is 0 or more, and another value elsewhere."""
    return w.elementwise("where", w.elementwise("greater_equal", x, number(0.0)), x, other)


def _exponential(w: Writer, x: Value, factor: float) -> Value:
    """A factor times (e to the power x, less 1)."""
    return w.elementwise("mul", w.elementwise("sub", w.elementwise("exp", x), number(1.0)), number(factor))


@entry("Elu")
def _elu(call: Call) -> Value:
    w, x = call.w, call.value(0)
    return _below(w, x, _exponential(w, x, float(call.attr("alpha", 1.0))))


@entry("Selu")
def _selu(call: Call) -> Value:
    w, x = call.w, call.value(0)
    below = _exponential(w, x, float(call.attr("alpha", 1.67326319217681884765625)))
    return w.elementwise("mul", _below(w, x, below), number(float(call.attr("gamma", 1.0507010221481323))))


@entry("LeakyRelu")
def _leaky_relu(call: Call) -> Value:
    w, x = call.w, call.value(0)
    return _below(w, x, w.elementwise("mul", x, number(float(call.attr("alpha", 0.01)))))


@entry("PRelu")
def _prelu(call: Call) -> Value:
    w, x = call.w, call.value(0)
    return _below(w, x, w.elementwise("mul", x, call.value(1)))


@entry("Softplus")
def _softplus(call: Call) -> Value:
    """log(1 + exp(x)), whose exponential is of no number above 0."""
    w, x = call.w, call.value(0)
    small = w.elementwise("exp", w.elementwise("neg", w.elementwise("abs", x)))
    rest = w.elementwise("log", w.elementwise("add", small, number(1.0)))
    return w.elementwise("add", w.elementwise("relu", x), rest)


@entry("Softsign")
def _softsign(call: Call) -> Value:
    w, x = call.w, call.value(0)
    return w.elementwise("div", x, w.elementwise("add", w.elementwise("abs", x), number(1.0)))


@entry("HardSigmoid")
def _hard_sigmoid(call: Call) -> Value:
    w, x = call.w, call.value(0)
    line = w.elementwise("mul", x, number(float(call.attr("alpha", 0.2))))
    line = w.elementwise("add", line, number(float(call.attr("beta", 0.5))))
    return w.elementwise("minimum", w.elementwise("maximum", line, number(0.0)), number(1.0))


@entry("Sign")
def _sign(call: Call) -> Value:
    w, x = call.w, call.value(0)
    kind = float if w.dtype(x).is_float else int
    above, below = (w.elementwise(op, x, number(0)) for op in ("greater", "less"))
    negative = w.elementwise("where", below, number(kind(-1)), number(kind(0)))
    return w.elementwise("where", above, number(kind(1)), negative)
