"""Propagation of errors through functions of one number and through powers, which have errors of their own."""

from __future__ import annotations

import math
from collections.abc import Callable

from wsopt.agreement.arithmetic import divided
from wsopt.agreement.figures import Array, Errors, Figure, Kit, Rule, Step, finite_size, grown, zero_or
from wsopt.agreement.limits import F32_ROUNDING, FLUSHED, FUNCTIONS, SLOPES, TANH_APPROX


def through(kit: Kit, errors: Errors, change: Callable[[Array], Array]) -> Errors:
    """Errors of a function that moves by at most `change(e)` where its argument moves by e."""
    bounded = None if errors.smooth is None else change(errors.smooth)
    if errors.flip is None:
        return Errors(bounded)
    return Errors(bounded, None, change(errors.total) - zero_or(kit, bounded))


def exponential(base: float) -> Rule:
    """The rule of y = base**x."""
    scale = math.log(base)

    def rule(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
        """y (e^d - 1), where d is the exponent's error with the rounding of its product with log2(e).

        Where y is 0, for an exponent as low as a mask's -1e30 whose error is large as well, e^(x + d).
        """
        (x,), (relative, _) = operands, FUNCTIONS["exp"]
        exponent = finite_size(kit, kit.real(x.value)) * F32_ROUNDING + relative
        found = x.errors.each(lambda e: e * scale).with_bounded(exponent)
        flushed = kit.xp.where(kit.xp.isfinite(kit.real(x.value)), FLUSHED, 0.0)
        lowest = kit.real(x.value) * scale

        def moved(e: Array) -> Array:
            return kit.xp.where(step.value > 0, step.value * grown(kit, e), kit.xp.exp(lowest + e)) + flushed

        return through(kit, found, moved)

    return rule


def logarithm(base: float) -> Rule:
    """The rule of y = log x to a base."""

    def rule(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
        """-log(1 - e / x); unlimited where x may be zero."""
        (x,) = operands
        size = kit.real(x.value)
        found = through(
            kit,
            x.errors,
            lambda e: kit.xp.where(e < size, -kit.xp.log1p(-e / size), float("inf")) / math.log(base),
        )
        return found.with_bounded(_own(kit, step))

    return rule


def root(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """sqrt(x) - sqrt(x - e), written so that nothing cancels; sqrt(x + e) where x may be below zero."""
    (x,) = operands
    size = kit.real(x.value)

    def change(e: Array) -> Array:
        near = -step.value * kit.xp.expm1(0.5 * kit.xp.log1p(-e / size))
        return kit.xp.where(size > e, near, kit.xp.sqrt(size + e))

    return through(kit, x.errors, change).with_bounded(_own(kit, step))


def reciprocal_root(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """1 / sqrt(x - e) - 1 / sqrt(x), written so that nothing cancels; unlimited where x may be zero."""
    (x,) = operands
    size = kit.real(x.value)

    def change(e: Array) -> Array:
        near = step.value * kit.xp.expm1(-0.5 * kit.xp.log1p(-e / size))
        return kit.xp.where(size > e, near, float("inf"))

    return through(kit, x.errors, change).with_bounded(_own(kit, step))


def smooth(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """At most the steepest slope times the argument's error, and the function's own."""
    (x,) = operands
    slope = SLOPES[step.op]
    found = x.errors if slope == 1.0 else x.errors.each(lambda e: e * slope)
    if FUNCTIONS[step.op] == (0.0, 0.0):
        return found
    own = _own(kit, step)
    if step.op in ("sin", "cos"):
        own = own * (1 + kit.xp.abs(kit.real(x.value)))
    if step.op == "gelu":
        # Where x is far below zero, erf and tanh cancel against one: their absolute errors stay, times x / 2.
        own = own + FUNCTIONS["erf"][1] * kit.xp.abs(kit.real(x.value)) / 2
    if step.coarse and step.op == "gelu" and step.attrs.get("approximate") != "tanh":
        # max(x, 0) without its tail, which has an error of its own.
        larger = kit.xp.where(kit.real(x.value) > 0, kit.real(x.value), 0.0)
        own = own + FUNCTIONS["gelu_tail"][0] * kit.xp.abs(larger - step.value)
    elif step.coarse:
        own = own + TANH_APPROX * _tanh_scale(kit, step, x)
    return found.with_bounded(own)


def _tanh_scale(kit: Kit, step: Step, x: Figure) -> Array:
    """Factor of each element on the hardware's tanh, in functions that are computed by it."""
    match step.op:
        case "tanh":
            return kit.xp.abs(step.value)
        case "sigmoid":
            return kit.xp.abs(kit.real(step.value) - 0.5)
        case "silu" | "gelu":
            return kit.xp.abs(kit.real(x.value)) / 2
        case _:
            return kit.real(0.0)


def reciprocal(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """As 1 / x, with the error of the instruction."""
    one = Figure(kit.real(1.0), Errors(), "f32")
    return divided(kit, step, (one, *operands)).with_bounded(_own(kit, step))


def power(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """As exp2(b log2 |a|), relative to the result; near a = 0 the distance to what a's error reaches."""
    base, exponent = operands
    a, b = kit.xp.abs(kit.real(base.value)), kit.xp.abs(kit.real(exponent.value))
    y = kit.xp.abs(step.value)
    size = kit.xp.where(a > 0, kit.xp.abs(kit.xp.log(a)), 0.0)
    relative, absolute = FUNCTIONS["log2"]
    own = b * (size * relative + absolute) + FUNCTIONS["exp2"][0]
    moved = zero_or(kit, exponent.errors.total)
    powers = moved * size

    def change(e: Array) -> Array:
        near = kit.xp.where(
            exponent.value > moved, (a + e) ** (b + moved) + (a + e) ** (b - moved), float("inf")
        )
        far = y * kit.xp.expm1(own + powers + (b + moved) * -kit.xp.log1p(-e / a))
        return kit.xp.where(2 * e < a, far, near)

    if base.errors.exact:
        return Errors(y * kit.xp.expm1(own + powers))
    return through(kit, base.errors, change)


def _own(kit: Kit, step: Step) -> Array:
    relative, absolute = FUNCTIONS[step.op]
    return relative * kit.xp.abs(step.value) + absolute
