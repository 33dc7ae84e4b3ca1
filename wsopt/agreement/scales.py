"""Propagation of errors through operations on tensors with scales, a scale for each group or block."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from wsopt.agreement.arithmetic import multiplied
from wsopt.agreement.figures import Array, Errors, Figure, Kit, Rule, Step
from wsopt.agreement.functions import through
from wsopt.agreement.limits import F32_ROUNDING
from wsopt.agreement.rules import ELEMENTWISE

LARGEST = {"f8e4m3": 448.0, "i8": 127.0}
"""The magnitude that the largest element of a group becomes, by the type that it is rounded to."""

Unit = tuple[int, ...]


def _unit(step: Step) -> Unit:
    """Elements along the last axes that share a scale."""
    block = step.attribute("block", None)
    return tuple(block) if block else (int(step.attrs["group"]),)


def _in_units(kit: Kit, x: Array, unit: Unit) -> Array:
    """An array with each of its last axes cut into units and what is in one."""
    outer = x.shape[: len(x.shape) - len(unit)]
    cut = [part for have, own in zip(x.shape[len(outer) :], unit, strict=True) for part in (have // own, own)]
    return kit.xp.reshape(x, (*outer, *cut))


def _largest(kit: Kit, x: Array, unit: Unit) -> Array:
    """The largest element of each unit of an array's last axes."""
    x = _in_units(kit, x, unit)
    for number in range(len(unit)):
        x = kit.xp.amax(x, axis=-1 - number)
    return x


def _spread(kit: Kit, scales: Array, unit: Unit) -> Array:
    """Scales with each repeated along the axes of its unit."""
    outer, own = scales.shape[: len(scales.shape) - len(unit)], scales.shape[len(scales.shape) - len(unit) :]
    ones = [part for have in own for part in (have, 1)]
    cut = [part for have, times in zip(own, unit, strict=True) for part in (have, times)]
    wide = kit.xp.broadcast_to(kit.xp.reshape(scales, (*outer, *ones)), (*outer, *cut))
    whole = [have * times for have, times in zip(own, unit, strict=True)]
    return kit.xp.reshape(wide, (*outer, *whole))


def _dequantize(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """(q - zero) * scale."""
    unit = _unit(step)

    def spread(item: Figure) -> Figure:
        if not len(item.value.shape):
            return item
        value = _spread(kit, kit.real(item.value), unit)
        return Figure(value, item.errors.each(lambda e: _spread(kit, e, unit)), item.dtype)

    q = Figure(kit.real(operands[0].value), operands[0].errors, "f32")
    for zero in map(spread, operands[2:]):
        value = q.value - kit.real(zero.value)
        q = Figure(value, ELEMENTWISE["sub"](kit, Step("sub", {}, "f32", value), (q, zero)), "f32")
    return multiplied(kit, Step("mul", {}, "f32", step.value), (q, spread(operands[1])))


def _quantize_scale(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """A scale moves as far as the element of its unit that moves the most; where all may be zero it may be 1."""
    (x,), unit = operands, _unit(step)
    largest = _largest(kit, kit.xp.abs(kit.real(x.value)), unit)

    def change(e: Array) -> Array:
        moved = _largest(kit, kit.xp.broadcast_to(e, x.value.shape), unit)
        found = moved / LARGEST[_target(step)] + 0 * largest
        return kit.xp.where((moved > 0) & (moved >= largest), math.inf, found)

    return through(kit, x.errors, change).with_bounded(2 * F32_ROUNDING * kit.xp.abs(step.value))


def _target(step: Step) -> str:
    """The word of the type that elements are rounded to: a `DType`, or the word itself."""
    dtype = step.attrs["dtype"]
    return str(getattr(dtype, "value", dtype))


def _quantize(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """The errors of x / scale, which is then rounded."""
    (x,), unit = operands, _unit(step)
    value = kit.real(x.value)
    magnitude = _largest(kit, kit.xp.abs(value), unit) / LARGEST[_target(step)]
    scale = kit.xp.where(magnitude == 0, 1.0 + 0 * magnitude, magnitude)
    own = Step("quantize_scale", step.attrs, "f32", scale)
    errors = _quantize_scale(kit, own, operands).each(lambda e: _spread(kit, e, unit))
    divisor = Figure(_spread(kit, scale, unit), errors, "f32")
    quotient = value / divisor.value
    found = ELEMENTWISE["div"](
        kit, Step("div", {}, "f32", quotient), (Figure(value, x.errors, "f32"), divisor)
    )
    return ELEMENTWISE["cast"](
        kit, Step("cast", {}, step.dtype, step.value), (Figure(quotient, found, "f32"),)
    )


RULES: Mapping[str, Rule] = MappingProxyType(
    {"dequantize": _dequantize, "quantize": _quantize, "quantize_scale": _quantize_scale}
)
"""How operations on tensors with scales pass errors on."""
