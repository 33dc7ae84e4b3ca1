"""Propagation of errors through sums, products and quotients of two operands."""

from __future__ import annotations

from wsopt.agreement.figures import WHOLE_NUMBERS, Array, Errors, Figure, Kit, Step, added
from wsopt.agreement.limits import F32_ROUNDING


def summed(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """|a| and |b| round, not their sum: a kernel may bring the terms together in another order."""
    a, b = operands
    own = _rounded(kit, step, kit.xp.abs(kit.real(a.value)) + kit.xp.abs(kit.real(b.value)))
    x, y = a.errors, b.errors
    return Errors(added(added(x.bounded, y.bounded), own), added(x.random, y.random), added(x.flip, y.flip))


def multiplied(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """Errors of a b: |a| e_b + |b| e_a + e_a e_b."""
    x, y = (item.errors for item in operands)
    a, b = (
        None if other.exact else kit.xp.abs(kit.real(item.value))
        for item, other in zip(operands, (y, x), strict=True)
    )
    bounded = added(_scaled(x.bounded, b), _scaled(y.bounded, a))
    if x.smooth is not None and y.smooth is not None:
        bounded = added(bounded, x.smooth * y.smooth)
    return Errors(
        added(bounded, _rounded(kit, step, step.value)),
        added(_scaled(x.random, b), _scaled(y.random, a)),
        added(_scaled(x.flip, added(b, y.total)), _scaled(y.flip, added(a, x.smooth))),
    )


def divided(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """(e_a + |a / b| e_b) / (|b| - e_b); unlimited where b may be zero."""
    (a, b), y = operands, kit.xp.abs(step.value)
    size = kit.xp.abs(kit.real(b.value))
    least = size if b.errors.exact else kit.xp.where(size > b.errors.total, size - b.errors.total, 0.0)

    def part(first: Array, second: Array) -> Array:
        error = added(first, _scaled(second, y))
        return None if error is None else kit.xp.where(error > 0, error / least, 0.0)

    x, z = a.errors, b.errors
    found = Errors(part(x.bounded, z.bounded), part(x.random, z.random), part(x.flip, z.flip))
    return found.with_bounded(_rounded(kit, step, y))


def _rounded(kit: Kit, step: Step, magnitude: Array) -> Array:
    """The operation's own f32 rounding, relative to `magnitude`; none of whole numbers."""
    if step.dtype in WHOLE_NUMBERS:
        return None
    size = kit.xp.abs(kit.real(magnitude))
    size *= F32_ROUNDING
    return size


def _scaled(error: Array, factor: Array) -> Array:
    return None if error is None else error * factor
