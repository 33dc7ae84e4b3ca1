"""Propagation of errors through products, reductions, softmax and norms; and the table of all rules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from wsopt.agreement import scales
from wsopt.agreement.figures import Array, Errors, Figure, Kit, Rule, Step, added, finite_size, grown
from wsopt.agreement.functions import reciprocal_root, through
from wsopt.agreement.limits import (
    CONFIDENCE,
    F8_INSTRUCTION,
    F8_RUN,
    F32_ROUNDING,
    F32_UNIT,
    FLUSHED,
    SOFTMAX,
    TENSOR_F8,
    TF32_OPERAND,
)
from wsopt.agreement.rules import ELEMENTWISE
from wsopt.primitives import FromTable

_PRODUCTS = ("matmul", "grouped_matmul")

_UNIFORM = 1 / math.sqrt(12)
"""Standard deviation of an error that is anywhere within a unit."""


def summed(kit: Kit, errors: Errors, value: Array, add: Callable[[Array], Array], count: int) -> Errors:
    """Errors of a sum of `count` terms, which `add` adds up.

    Those of one sign add up; independent ones by the root of their squares, and are no longer independent then.
    The sum itself rounds at most once a term, and like the root of their number where signs are mixed.
    """
    own = F32_UNIT * 2 * (min(count, CONFIDENCE * math.sqrt(count)) + 8) * add(kit.xp.abs(value))
    bounded = added(own, None if errors.bounded is None else add(errors.bounded))
    if errors.random is not None:
        scale = _scale(kit, errors.random, None)
        squares = add((errors.random / scale) ** 2) + count * _LOST
        bounded = bounded + CONFIDENCE * scale * kit.xp.sqrt(squares)
    return Errors(bounded, None, None if errors.flip is None else add(errors.flip))


_LOST = 2.0**-126
"""What the square of a number loses in f32, at most, that is one or smaller."""


def _scale(kit: Kit, x: Array, axis: int | None) -> Array:
    """The largest of magnitudes, along an axis or of all, by which they are divided before they are squared: in f32
    the squares of roundings of 1e-20 are zero.
    """
    largest = kit.xp.amax(x) if axis is None else kit.xp.amax(x, axis=axis, keepdims=True)
    return kit.xp.where((largest > 0) & kit.xp.isfinite(largest), largest, 1.0)


def _independent(kit: Kit, left: Array, right: Array) -> Array:
    """The root of the sum of the squares of a product's terms, of which one side's factors are independent errors."""
    row, column = _scale(kit, left, -1), _scale(kit, right, -2)
    squares = kit.xp.matmul((left / row) ** 2, (right / column) ** 2)
    return row * column * kit.xp.sqrt(squares + left.shape[-1] * _LOST)


# --- products of matrices -------------------------------------------------------------------------------


def _matmul(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """|a| e_b + e_a |b| + e_a e_b, and the accumulation's own, which goes with |a| |b|."""
    a, b = (_side(kit, step, item, name) for item, name in zip(operands, "ab", strict=True))
    if step.dtype == "i32":
        return Errors()
    product, x, y = kit.xp.matmul, a.errors, b.errors
    dtype = "f8" if all(one.eighths for one in operands) else operands[0].dtype
    own = _accumulation(step, dtype, int(a.value.shape[-1]))
    # One product for the accumulation's own error and the left operand's.
    bounded = product(added(own * a.value, x.bounded), b.value)
    if y.bounded is not None:
        bounded = bounded + product(a.value, y.bounded)
    if x.smooth is not None and y.smooth is not None:
        bounded = bounded + product(x.smooth, y.smooth)
    if operands[0].dtype.startswith("f8") and step.attribute("accumulate", "f32") == "fast":
        bounded = bounded + _long_f8_sum(kit, step, a, b)
    sides = ((x.random, b.value), (a.value, y.random))
    apart = [_independent(kit, *both) for both in sides if both[0] is not None and both[1] is not None]
    if apart:
        bounded = bounded + CONFIDENCE * (apart[0] if len(apart) == 1 else kit.xp.hypot(*apart))
    flip = None if x.flip is None else product(x.flip, b.value if y.total is None else b.value + y.total)
    if y.flip is not None:
        flip = added(flip, product(a.value if x.smooth is None else a.value + x.smooth, y.flip))
    return Errors(bounded, None, flip)


def _grouped_matmul(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """Of each group's rows as of a product; rows of no group are zero, and exact."""
    a, b, offsets = operands
    rows, begin, found = len(a.value), 0, list[tuple[int, int, Errors]]()
    for number, offset in enumerate(offsets.value.tolist()):
        end = max(begin, min(offset, rows))
        if end > begin:
            part, matrix = _part(a, slice(begin, end)), _part(b, number)
            own = replace(step, value=step.value[begin:end])
            found.append((begin, end, _matmul(kit, own, (part, matrix))))
        begin = end

    def together(kind: Callable[[Errors], Array]) -> Array:
        """One kind of the errors in all rows; None where no group has any."""
        if all(kind(one) is None for _, _, one in found):
            return None
        whole = kit.xp.zeros_like(kit.real(step.value))
        for first, last, one in found:
            if kind(one) is not None:
                whole[first:last] = kind(one)
        return whole

    return Errors(together(lambda e: e.bounded), together(lambda e: e.random), together(lambda e: e.flip))


def _part(figure: Figure, place: slice | int) -> Figure:
    """A part of an operand along its first axis."""
    return replace(figure, value=figure.value[place], errors=figure.errors.each(lambda error: error[place]))


def _side(kit: Kit, step: Step, operand: Figure, name: str) -> Figure:
    """The magnitudes of an operand as the product takes it, transposed if the step says so."""

    def turned(x: Array) -> Array:
        return kit.xp.swapaxes(x, -1, -2) if step.attrs.get(f"transpose_{name}") else x

    magnitude = kit.xp.abs(kit.real(operand.value))
    return Figure(turned(magnitude), operand.errors.each(turned), operand.dtype)


def _accumulation(step: Step, dtype: str, count: int) -> float:
    """Error of a sum of `count` products relative to the sum of their magnitudes.

    A tensor core of Hopper cuts the 16 products of an instruction and the sum so far two bits below the last
    one of f32, and the result to f32: K 2**-24 in all (Fasi et al., PeerJ Comput. Sci. 7:e330, 2021, for the
    method and earlier cards). The reference rounds to nearest. Sums of f8 are shorter between promotions to f32.
    """
    own = F32_UNIT * (count + CONFIDENCE * math.sqrt(count) + 8)
    if step.attribute("precision", "ieee") == "tf32":
        own += 2 * TF32_OPERAND
    if dtype.startswith("f8") and step.attribute("accumulate", "f32") != "fast":
        runs = -(-count // F8_RUN)
        own += TENSOR_F8 * _cuts(min(count, F8_RUN), runs) / runs
    return own


def _long_f8_sum(kit: Kit, step: Step, a: Figure, b: Figure) -> Array:
    """Error of a sum of f8 products that is never promoted.

    The largest addend of an instruction is taken to be the sum so far: twice the root of the sum of squares above
    the result, as terms of either sign come to.
    """
    spread = kit.xp.sqrt(kit.xp.matmul(a.value**2, b.value**2))
    return TENSOR_F8 * _cuts(int(a.value.shape[-1]), 1) * (kit.xp.abs(step.value) + 2 * spread)


def _cuts(length: int, runs: int) -> float:
    """Error of `runs` sums of so many products each, in units of the last place of their largest addend.

    An instruction cuts the sum so far by half a unit on average, towards zero; products by anything up to one.
    """
    instructions = -(-length // F8_INSTRUCTION)
    return runs * instructions / 2 + CONFIDENCE * _UNIFORM * math.sqrt(runs * length)


# --- reductions -----------------------------------------------------------------------------------------


def _adder(kit: Kit, step: Step) -> Callable[[Array], Array]:
    axis, keep = step.attrs["axis"], bool(step.attribute("keepdims", False))
    return lambda x: kit.xp.sum(x, axis=axis, keepdims=keep)


def _reduce_sum(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    (x,) = operands
    value = kit.real(x.value)
    if step.dtype == "i32" and x.errors.exact:
        return Errors()
    return summed(kit, x.errors, value, _adder(kit, step), value.shape[step.attrs["axis"]])


def _reduce_mean(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    (x,) = operands
    value = kit.real(x.value)
    count = value.shape[step.attrs["axis"]]
    return summed(kit, x.errors, value, _adder(kit, step), count).each(lambda e: e / count)


def _extreme(sign: float) -> Rule:
    """Maximum (sign 1) or minimum (-1): how far the extreme moves if all elements go up, or all down."""

    def rule(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
        (x,) = operands
        axis, keep = step.attrs["axis"], bool(step.attribute("keepdims", False))
        value = sign * kit.real(x.value)
        largest = kit.xp.amax(value, axis=axis, keepdims=keep)

        def change(e: Array) -> Array:
            up = kit.xp.amax(value + e, axis=axis, keepdims=keep) - largest
            down = largest - kit.xp.amax(value - e, axis=axis, keepdims=keep)
            # The differences are themselves rounded.
            return kit.xp.where(up > down, up, down) + 2 * F32_UNIT * kit.xp.abs(largest)

        return through(kit, x.errors, change)

    return rule


# --- composites -----------------------------------------------------------------------------------------


def _logsumexp(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """Sum of p (exp(e) - 1), p the softmax: the sum's relative error, which is its logarithm's absolute one."""
    (x,) = operands
    axis, value = step.attrs["axis"], kit.real(x.value)
    largest = kit.xp.amax(value, axis=axis, keepdims=True)
    weights = kit.xp.exp(value - kit.xp.where(kit.xp.isfinite(largest), largest, 0.0))
    total = kit.xp.sum(weights, axis=axis, keepdims=True)
    p = kit.xp.where(kit.xp.isfinite(total) & (total > 0), weights / total, 0.0)
    add, count, size = _adder(kit, step), value.shape[axis], finite_size(kit, value)
    exponent = F32_ROUNDING * (size + kit.xp.amax(size, axis=axis, keepdims=True))
    found = through(kit, x.errors.with_bounded(exponent), lambda e: add(p * grown(kit, e)))
    own = SOFTMAX + F32_UNIT * 2 * (min(count, CONFIDENCE * math.sqrt(count)) + 8)
    most = kit.xp.amax(size, axis=axis, keepdims=bool(step.attribute("keepdims", False)))
    return found.with_bounded(own + F32_ROUNDING * (most + math.log(count)))


def _softmax(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """p (exp(e + log of the denominator's factor) - 1), and never more than one, with e the exponents' errors."""
    (x,) = operands
    axis = step.attribute("axis", -1)
    value, p = kit.real(x.value), step.value
    count = value.shape[axis]
    size = finite_size(kit, value)
    exponent = size + kit.xp.amax(size, axis=axis, keepdims=True)
    exponent *= F32_ROUNDING
    own = SOFTMAX + F32_UNIT * 2 * (min(count, CONFIDENCE * math.sqrt(count)) + 8)

    def change(e: Array) -> Array:
        whole = kit.xp.sum(p * grown(kit, e), axis=axis, keepdims=True)
        error = grown(kit, e + (whole + own))
        error *= p
        error += kit.xp.where(kit.xp.isfinite(value), FLUSHED, 0.0)
        # Between 0 and 1 nothing is further apart than one; where nothing is known, it is as much.
        return kit.xp.where(error <= 1, error, 1.0)

    return through(kit, x.errors.with_bounded(exponent), change)


def _apply(kit: Kit, op: str, first: Figure, second: Figure) -> Figure:
    """An addition or a multiplication inside of a composite."""
    a, b = kit.real(first.value), kit.real(second.value)
    value = a * b if op == "mul" else a - b if op == "sub" else a + b
    return Figure(value, RULES[op](kit, Step(op, {}, "f32", value), (first, second)), "f32")


def _mean(kit: Kit, x: Figure) -> Figure:
    value = kit.real(x.value)
    mean = kit.xp.sum(value, axis=-1, keepdims=True) / value.shape[-1]
    step = Step("reduce_mean", {"axis": -1, "keepdims": True}, "f32", mean)
    return Figure(mean, _reduce_mean(kit, step, (x,)), "f32")


def _normed(kit: Kit, x: Figure, eps: float, *rest: Figure) -> Errors:
    """x / sqrt(mean(x^2) + eps) * weight + bias."""
    power = _mean(kit, _apply(kit, "mul", x, x))
    shifted = _apply(kit, "add", power, Figure(kit.real(eps), Errors(), "f32"))
    factor = 1 / kit.xp.sqrt(shifted.value)
    errors = reciprocal_root(kit, Step("rsqrt", {}, "f32", factor), (shifted,))
    result = _apply(kit, "mul", x, Figure(factor, errors, "f32"))
    for op, operand in zip(("mul", "add"), rest, strict=False):
        result = _apply(kit, op, result, operand)
    return result.errors


def _rms_norm(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    x, weight = operands
    return _normed(kit, x, step.attribute("eps", 1e-6), weight)


def _layer_norm(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    x, weight, bias = operands
    return _normed(kit, _apply(kit, "sub", x, _mean(kit, x)), step.attribute("eps", 1e-5), weight, bias)


def _cumsum(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """Those of a sum of an element and all before it."""
    (x,) = operands
    if step.dtype == "i32" and x.errors.exact:
        return Errors()
    value, axis = kit.real(x.value), step.attrs["axis"]
    return summed(kit, x.errors, value, lambda e: kit.xp.cumsum(e, axis), value.shape[axis])


def _scatter_add(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """Those of a sum of each row and the rows that are added to it."""
    x, indices, rows = operands
    exact = x.errors.exact and rows.errors.exact
    if step.dtype == "i32" and exact:
        return Errors()
    places = [(at, int(to)) for at, to in enumerate(kit.xp.reshape(indices.value, (-1,)))]
    inside = [(at, to) for at, to in places if 0 <= to < x.value.shape[0]]
    most = max(Counter(to for _, to in inside).values(), default=0)

    def total(which: Callable[[Figure], Array]) -> Array:
        first, added_rows = which(x), which(rows)
        if first is None and added_rows is None:
            return None
        found = kit.real(0.0) + kit.xp.broadcast_to(kit.real(0.0 if first is None else first), x.value.shape)
        for at, to in inside if added_rows is not None else ():
            found[to] += kit.xp.reshape(added_rows, (len(places), *x.value.shape[1:]))[at]
        return found

    independents = [one.errors.random for one in (x, rows) if one.errors.random is not None]
    scale = max((float(_scale(kit, one, None)) for one in independents), default=1.0)

    def squared(one: Figure) -> Array:
        return None if one.errors.random is None else (one.errors.random / scale) ** 2 + _LOST

    own = total(lambda one: kit.xp.abs(kit.real(one.value))) * F32_UNIT * 2 * (most + 8)
    independent = total(squared)
    bounded = added(own, total(lambda one: one.errors.bounded))
    if independent is not None:
        bounded = bounded + CONFIDENCE * scale * kit.xp.sqrt(independent)
    return Errors(bounded, None, total(lambda one: one.errors.flip))


def _argmax(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """How far the places lie from the one that is found at which elements may as well be the largest."""
    (x,) = operands
    if x.errors.exact:
        return Errors()
    axis, keep = step.attrs["axis"], bool(step.attribute("keepdims", False))
    value, e = kit.real(x.value), x.errors.total
    certain = kit.xp.amax(value - e, axis=axis, keepdims=True)
    found = kit.xp.reshape(step.value, certain.shape)
    places = kit.xp.cumsum(kit.xp.ones_like(value), axis) - 1
    apart = kit.xp.abs(places - kit.real(found))
    return Errors(flip=kit.xp.amax(kit.xp.where(value + e < certain, 0.0, apart), axis=axis, keepdims=keep))


RULES: Mapping[str, Rule] = FromTable(
    lambda entry: ELEMENTWISE.get(entry.name),
    {
        **ELEMENTWISE,
        "matmul": _matmul,
        "grouped_matmul": _grouped_matmul,
        "reduce_sum": _reduce_sum,
        "reduce_mean": _reduce_mean,
        "reduce_max": _extreme(1.0),
        "reduce_min": _extreme(-1.0),
        "reduce_argmax": _argmax,
        "cumsum": _cumsum,
        "scatter_add": _scatter_add,
        "logsumexp": _logsumexp,
        "softmax": _softmax,
        "rms_norm": _rms_norm,
        "layer_norm": _layer_norm,
        **scales.RULES,
    },
)
"""How every operation of the graph format passes errors on."""


def coarse_nodes(
    nodes: tuple[Any, ...], outputs: tuple[str, ...], dtypes: Mapping[str, str]
) -> frozenset[str]:
    """The nodes in which a kernel may take the hardware's tanh: every use ends in at most eight significant bits.

    `nodes` stand in order, each with `name`, `op` and `tensors`. What an exponential reads is no such node where
    one product feeds another, or rows are reduced without a product.
    """
    chained = not any(node.op in _PRODUCTS for node in nodes) or _chained(nodes)
    fine = set(outputs)
    for node in reversed(nodes):
        if chained and node.op in ("softmax", "logsumexp", "exp", "exp2"):
            fine.update(node.tensors)
        if node.op == "cast" and dtypes[node.name] in ("bf16", "f8e4m3", "f8e5m2"):
            fine.discard(node.name)
        elif node.name in fine or dtypes[node.name] == "bool":
            fine.update((node.name, *node.tensors))
    return frozenset(node.name for node in nodes if node.name not in fine)


def _chained(nodes: tuple[Any, ...]) -> bool:
    """Whether a product depends on another one."""
    behind: set[str] = set()
    for node in nodes:
        if behind.intersection(node.tensors) or node.op in _PRODUCTS:
            if node.op in _PRODUCTS and behind.intersection(node.tensors):
                return True
            behind.add(node.name)
    return False
