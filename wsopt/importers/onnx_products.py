"""What products, reductions and norms of ONNX mean in our graphs."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from wsopt.importers.joins import joined
from wsopt.importers.onnx_table import Call, Result, axis_of, entry, require_floats
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer, number

# --- products -------------------------------------------------------------------------------------------


@entry("MatMul")
def _matmul(call: Call) -> Value:
    w, a, b = call.w, call.value(0), call.value(1)
    require_floats(call, a)
    shape = list(a.shape[:-1])
    if len(a.shape) == 1:
        a, shape = w.view(a, (1, *a.shape)), []
    if len(b.shape) == 1:
        found = w.matmul(a, w.view(b, (*b.shape, 1)))
        return w.view(found, shape)
    found = w.matmul(a, b)
    return found if shape else w.view(found, (*found.shape[:-2], found.shape[-1]))


@entry("Gemm")
def _gemm(call: Call) -> Value:
    w, a, b = call.w, call.value(0), call.value(1)
    require_floats(call, a)
    a = w.permute(a, (1, 0)) if call.attr("transA", 0) else a
    found = w.matmul(a, b, transpose_b=bool(call.attr("transB", 0)))
    found = _scaled(w, found, float(call.attr("alpha", 1.0)))
    beta, c = float(call.attr("beta", 1.0)), call.optional(2)
    return found if c is None or beta == 0 else w.elementwise("add", found, _scaled(w, c, beta))


def _scaled(w: Writer, x: Value, factor: float) -> Value:
    return x if factor == 1 else w.elementwise("mul", x, number(factor))


@entry("Einsum")
def _einsum(call: Call) -> Value:
    """A sum of products by letters: products of matrices, one for each that both operands and the result have."""
    w, values = call.w, call.values()
    terms, _, result = str(call.attrs["equation"]).replace(" ", "").partition("->")
    letters = terms.split(",")
    if "." in terms or not result or len(values) > 2 or any(len(set(one)) < len(one) for one in letters):
        raise Untaken(
            f"the equation {call.attrs['equation']}; two operands, letters once each, and -> are said"
        )
    require_floats(call, *values)
    kept = set(result)
    for place, own in enumerate(letters):
        others = kept.union(*letters[:place], *letters[place + 1 :])
        alone = [axis for axis, letter in enumerate(own) if letter not in others]
        if alone:
            values[place] = w.reduce("reduce_sum", values[place], alone, False)
            letters[place] = "".join(letter for letter in own if letter in others)
    if len(values) == 1:
        return w.permute(values[0], [letters[0].index(letter) for letter in result])
    return _of_letters(w, (values[0], letters[0]), (values[1], letters[1]), result)


def _of_letters(w: Writer, a: tuple[Value, str], b: tuple[Value, str], result: str) -> Value:
    """A product of two operands with their letters, those of the result in its order."""
    both = [one for one in a[1] if one in b[1]]
    batch, inner = [one for one in both if one in result], [one for one in both if one not in result]
    rows, columns = ([one for one in own if one not in both] for own in (a[1], b[1]))
    extents = dict(zip(a[1] + b[1], a[0].shape + b[0].shape, strict=True))

    def laid(operand: tuple[Value, str], *groups: list[str]) -> Value:
        value, own = operand
        turned = w.permute(value, [own.index(letter) for group in groups for letter in group])
        return w.view(turned, [math.prod(extents[letter] for letter in group) for group in groups])

    found = w.matmul(laid(a, batch, rows, inner), laid(b, batch, columns, inner), transpose_b=True)
    order = [*batch, *rows, *columns]
    whole = w.view(found, [extents[letter] for letter in order])
    return w.permute(whole, [order.index(letter) for letter in result])


# --- reductions -----------------------------------------------------------------------------------------


def _reduction(op: str, name: str) -> None:
    def write(call: Call) -> Value:
        return _reduced(call, op, call.value(0))

    entry(name)(write)


for _op, _name in {
    "reduce_sum": "ReduceSum",
    "reduce_mean": "ReduceMean",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
}.items():
    _reduction(_op, _name)


def _reduced(call: Call, op: str, x: Value) -> Value:
    """A reduction over the axes that a call names, over all where it names none."""
    require_floats(call, x)
    axes = call.integers("axes", 1) or ()
    if not axes and call.attr("noop_with_empty_axes", 0):
        return x
    return call.w.reduce(op, x, axes, bool(call.attr("keepdims", 1)))


@entry("ReduceSumSquare")
def _sum_of_squares(call: Call) -> Value:
    x = call.value(0)
    return _reduced(call, "reduce_sum", call.w.elementwise("mul", x, x))


@entry("ReduceL2")
def _norm(call: Call) -> Value:
    return call.w.elementwise("sqrt", _sum_of_squares(call))


@entry("ReduceLogSumExp")
def _log_sum_exp(call: Call) -> Value:
    return _reduced(call, "logsumexp", call.value(0))


# --- softmax and norms ----------------------------------------------------------------------------------


@entry("Softmax")
def _softmax(call: Call) -> Value:
    x = call.value(0)
    require_floats(call, x)
    if call.opset >= 13:
        return _softmax_along(call.w, x, axis_of(call, len(x.shape), -1))
    axis = axis_of(call, len(x.shape), 1)
    # Earlier versions see a matrix: what is behind the axis is in one row with it.
    rows = call.w.view(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return call.w.view(_softmax_along(call.w, rows, 1), x.shape)


def _softmax_along(w: Writer, x: Value, axis: int) -> Value:
    if axis == len(x.shape) - 1:
        return w.softmax(x)
    laid, tensor = w.laid_out(x, [axis])
    place = sum(len(dim) for dim in laid.dims[:axis])
    return replace(laid, tensor=w.node("softmax", [tensor], axis=place))


@entry("LogSoftmax")
def _log_softmax(call: Call) -> Value:
    w, x = call.w, call.value(0)
    require_floats(call, x)
    axis = axis_of(call, len(x.shape), -1 if call.opset >= 13 else 1)
    if call.opset < 13 and axis != len(x.shape) - 1:
        raise Untaken("along an axis that is not the last, in a version before 13")
    less = w.elementwise("sub", x, w.reduce("reduce_max", x, [axis], True))
    total = w.reduce("reduce_sum", w.elementwise("exp", less), [axis], True)
    return w.elementwise("sub", less, w.elementwise("log", total))


@entry("LayerNormalization")
def _layer_norm(call: Call) -> Result:
    w, x = call.w, call.value(0)
    require_floats(call, x)
    over = range(axis_of(call, len(x.shape), -1), len(x.shape))
    mean = w.reduce("reduce_mean", x, over, True)
    centred = w.elementwise("sub", x, mean)
    variance = w.reduce("reduce_mean", w.elementwise("mul", centred, centred), over, True)
    scale = _inverse_root(w, variance, float(call.attr("epsilon", 1e-5)))
    found = _weighted(call, w.elementwise("mul", centred, scale))
    return (found, mean, scale)[: call.results]


@entry("RMSNormalization")
def _rms_norm(call: Call) -> Value:
    w, x = call.w, call.value(0)
    require_floats(call, x)
    over = range(axis_of(call, len(x.shape), -1), len(x.shape))
    square = w.reduce("reduce_mean", w.elementwise("mul", x, x), over, True)
    scale = _inverse_root(w, square, float(call.attr("epsilon", 1e-5)))
    return _weighted(call, w.elementwise("mul", x, scale))


def _inverse_root(w: Writer, x: Value, eps: float) -> Value:
    return w.elementwise("rsqrt", w.elementwise("add", x, number(eps)))


def _weighted(call: Call, x: Value) -> Value:
    """A norm's values times its weight, plus its bias, where they are given."""
    given = [(op, call.optional(place)) for op, place in (("mul", 1), ("add", 2))]
    return functools.reduce(
        lambda found, one: found if one[1] is None else call.w.elementwise(one[0], found, one[1]), given, x
    )


# --- places and running sums ----------------------------------------------------------------------------


@entry("ArgMax")
def _argmax(call: Call) -> Value:
    return _place(call, call.value(0))


@entry("ArgMin")
def _argmin(call: Call) -> Value:
    return _place(call, call.w.elementwise("neg", call.value(0)))


@entry("TopK")
def _top(call: Call) -> Result:
    """The largest along an axis, then the largest of the others, again and again: values and places."""
    w, x = call.w, call.value(0)
    require_floats(call, x)
    count, axis = int(call.array(1, "how many").item()), axis_of(call, len(x.shape), -1)
    if not call.attr("largest", 1) or count > _MOST_OF_A_ROW:
        raise Untaken(f"{count} of a row, or the smallest; up to {_MOST_OF_A_ROW} of the largest are said")
    values, places = [], []
    for at in range(count):
        values.append(w.reduce("reduce_max", x, [axis], True))
        places.append(w.reduce("reduce_argmax", x, [axis], True))
        if at + 1 < count:
            taken = w.elementwise("equal", w.index(x.shape, axis), places[-1])
            x = w.elementwise("where", taken, number(-math.inf), x)
    return joined(w, values, axis), joined(w, places, axis)


_MOST_OF_A_ROW = 16
"""Elements of a row that are found one by one."""


def _place(call: Call, x: Value) -> Value:
    """The first place of the largest along an axis."""
    require_floats(call, x)
    if call.attr("select_last_index", 0):
        raise Untaken("the last place of the largest; graphs have the first")
    axis = axis_of(call, len(x.shape), 0)
    return call.w.reduce("reduce_argmax", x, [axis], bool(call.attr("keepdims", 1)))


@entry("CumSum")
def _cumsum(call: Call) -> Value:
    w, x = call.w, call.value(0)
    require_floats(call, x)
    if call.attr("exclusive", 0) or call.attr("reverse", 0):
        raise Untaken("running sums that are exclusive, or from the end")
    axis = int(call.array(1, "its axis").item()) % len(x.shape)
    laid, tensor = w.laid_out(x, [axis])
    place = sum(len(dim) for dim in laid.dims[:axis])
    return replace(laid, tensor=w.node("cumsum", [tensor], axis=place))
