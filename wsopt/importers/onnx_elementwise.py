"""What elementwise operations of ONNX mean in our graphs."""

from __future__ import annotations

import functools
import math

from wsopt.graph.types import DType
from wsopt.importers.onnx_table import Call, Result, entry, is_truth, require_floats
from wsopt.importers.onnx_types import dtype_of
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer, number


def _same(op: str, *names: str, real: bool = False) -> None:
    """Enter operations that are one of ours."""

    def write(call: Call) -> Value:
        values = call.values()
        if real:
            require_floats(call, *values)
        if op not in ("equal", "not_equal", "where") and any(isinstance(x.tensor, bool) for x in values):
            raise Untaken("it is of truth values")
        return call.w.elementwise(op, *values)

    entry(*names)(write)


for _op, _name in {
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "reciprocal": "Reciprocal",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "erf": "Erf",
    "sin": "Sin",
    "cos": "Cos",
    "div": "Div",
}.items():
    _same(_op, _name, real=True)
for _op, _name in {
    "neg": "Neg",
    "abs": "Abs",
    "relu": "Relu",
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "equal": "Equal",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "logical_not": "Not",
}.items():
    _same(_op, _name)


def _of_many(op: str, name: str) -> None:
    """Enter an operation of any number of operands that is one of two of ours, again and again."""

    def write(call: Call) -> Value:
        return functools.reduce(lambda a, b: call.w.elementwise(op, a, b), call.values())

    entry(name)(write)


_of_many("maximum", "Max")
_of_many("minimum", "Min")
_of_many("add", "Sum")


@entry("Mean")
def _mean(call: Call) -> Value:
    total = functools.reduce(lambda a, b: call.w.elementwise("add", a, b), call.values())
    return call.w.elementwise("mul", total, number(1 / len(call.operands)))


@entry("Identity")
def _identity(call: Call) -> Value:
    return call.value(0)


@entry("Dropout")
def _dropout(call: Call) -> Result:
    if call.has(2) and call.array(2, "its modes").item():
        raise Untaken("it is of training; export the model for inference")
    return (call.value(0),)


# --- powers and shapes of curves ------------------------------------------------------------------------


@entry("Pow")
def _pow(call: Call) -> Value:
    x, exponent = call.value(0), call.value(1)
    require_floats(call, x)
    return power(call.w, x, exponent)


def power(w: Writer, x: Value, exponent: Value) -> Value:
    """x to a power, by products and roots where they say the same."""
    match exponent.tensor:
        case 2 | 2.0:
            return w.elementwise("mul", x, x)
        case 3 | 3.0:
            return w.elementwise("mul", w.elementwise("mul", x, x), x)
        case 0.5:
            return w.elementwise("sqrt", x)
        case -0.5:
            return w.elementwise("rsqrt", x)
        case int():
            return w.elementwise("pow", x, number(float(exponent.tensor)))
    return w.elementwise("pow", x, exponent)


@entry("Clip")
def _clip(call: Call) -> Value:
    x = call.value(0)
    for op, role, place in (("maximum", "min", 1), ("minimum", "max", 2)):
        bound = number(call.attrs[role]) if role in call.attrs else call.optional(place)
        x = x if bound is None else call.w.elementwise(op, x, bound)
    return x


@entry("Gelu")
def _gelu(call: Call) -> Value:
    return call.w.elementwise("gelu", call.value(0), approximate=call.attr("approximate", "none"))


# --- truth values, choices and types --------------------------------------------------------------------


@entry("And")
def _and(call: Call) -> Value:
    return _logical(call, "logical_and")


@entry("Or")
def _or(call: Call) -> Value:
    return _logical(call, "logical_or")


def _logical(call: Call, op: str) -> Value:
    """A logical operation; what is the same everywhere decides it, or has no part in it."""
    a, b = call.value(0), call.value(1)
    for one, other in ((a, b), (b, a)):
        if isinstance(one.tensor, bool):
            kept = other if one.tensor is (op == "logical_and") else one
            shape = tuple(map(max, *_padded(a.shape, b.shape)))
            return call.w.expand(kept, shape)
    return call.w.elementwise(op, a, b)


def _padded(*shapes: tuple[int, ...]) -> list[tuple[int, ...]]:
    rank = max(map(len, shapes))
    return [(1,) * (rank - len(shape)) + shape for shape in shapes]


@entry("IsNaN")
def _is_nan(call: Call) -> Value:
    x = call.value(0)
    return call.w.elementwise("not_equal", x, x)


@entry("Where")
def _where(call: Call) -> Value:
    condition, a, b = call.value(0), call.value(1), call.value(2)
    if _is_nan_of_softmax(call.w, condition, a, b):
        return b
    if isinstance(condition.tensor, bool):
        shape = tuple(map(max, *_padded(condition.shape, a.shape, b.shape)))
        return call.w.expand(a if condition.tensor else b, shape)
    return call.w.elementwise("where", condition, a, b)


def _is_nan_of_softmax(w: Writer, condition: Value, a: Value, b: Value) -> bool:
    """Whether a choice puts 0 where a softmax gave not-a-number, for rows that are all -inf: ours gives 0 there."""
    asked, softmax = w.nodes.get(str(condition.tensor)), w.nodes.get(str(b.tensor))
    if asked is None or softmax is None or a.tensor not in (0, 0.0) or isinstance(a.tensor, bool):
        return False
    rounded = w.nodes.get(str(softmax.inputs[0])) if softmax.op == "cast" else softmax
    same = asked.op == "not_equal" and asked.inputs == (softmax.name, softmax.name)
    return same and condition.dims == b.dims and rounded is not None and rounded.op == "softmax"


@entry("Cast")
def _cast(call: Call) -> Value:
    return _as(call, call.value(0), dtype_of(int(call.attrs["to"])))


@entry("CastLike")
def _cast_like(call: Call) -> Value:
    return _as(call, call.value(0), call.w.dtype(call.value(1)))


def _as(call: Call, x: Value, dtype: DType) -> Value:
    """A value in another type."""
    if not isinstance(x.tensor, str):
        return _number_as(x, dtype)
    if dtype is DType.BOOL:
        return x if is_truth(call, x) else call.w.elementwise("not_equal", x, number(0))
    if call.w.dtype(x).is_float and not dtype.is_float:
        raise Untaken(f"a cast of floats to {dtype.value}, which rounds in graphs and cuts off in ONNX")
    return call.w.cast(x, dtype)


def _number_as(x: Value, dtype: DType) -> Value:
    assert not isinstance(x.tensor, str), "a number is no tensor"
    made = bool(x.tensor) if dtype is DType.BOOL else float(x.tensor) if dtype.is_float else None
    if made is None:
        if not math.isfinite(x.tensor):
            raise Untaken(f"a cast of {x.tensor} to integers")
        made = int(x.tensor)
    return Value(made, x.dims)
