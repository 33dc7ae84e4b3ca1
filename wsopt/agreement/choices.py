"""Propagation of errors through choices: the larger of two, comparisons, and what depends on a condition.

A choice is in doubt where its operands are no further apart than they may be off. Its mask of elements, or the way to
the other outcome, is a flip (`figures.Errors`).
"""

from __future__ import annotations

from wsopt.agreement.figures import Array, Errors, Figure, Kit, Rule, Step, added, zero_or


def larger(sign: float) -> Rule:
    """Maximum (sign 1) or minimum (-1): the error of the operand that is chosen, of both where that is open."""

    def rule(kit: Kit, _step: Step, operands: tuple[Figure, ...]) -> Errors:
        a, b = operands
        if a.errors.exact and b.errors.exact:
            return Errors()
        ahead = sign * (kit.real(a.value) - kit.real(b.value))
        doubt = zero_or(kit, added(a.errors.total, b.errors.total))

        def part(first: Array, second: Array) -> Array:
            if first is None and second is None:
                return None
            x, y = zero_or(kit, first), zero_or(kit, second)
            largest = kit.xp.where(x > y, x, y)
            return kit.xp.where(ahead > doubt, x, kit.xp.where(ahead < -doubt, y, largest))

        x, y = a.errors, b.errors
        return Errors(part(x.bounded, y.bounded), part(x.random, y.random), part(x.flip, y.flip))

    return rule


def relu(kit: Kit, _step: Step, operands: tuple[Figure, ...]) -> Errors:
    """The argument's errors; none where it is below zero however far it is off."""
    (x,) = operands
    if x.errors.exact:
        return Errors()
    off = kit.real(x.value) < -x.errors.total
    return x.errors.each(lambda e: kit.xp.where(off, 0.0, e))


def where(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """The error of the branch that is taken; where the condition is in doubt, the way to the other one besides."""
    condition, a, b = operands
    if step.dtype == "bool":
        return _either(kit, condition, a, b)
    x, y, doubt = a.errors, b.errors, condition.errors.flip

    def part(first: Array, second: Array) -> Array:
        if first is None and second is None:
            return None
        return kit.xp.where(condition.value, zero_or(kit, first), zero_or(kit, second))

    found = Errors(part(x.bounded, y.bounded), part(x.random, y.random), part(x.flip, y.flip))
    if doubt is None:
        return found
    first, second = kit.real(a.value), kit.real(b.value)
    apart = kit.xp.where(first == second, 0.0, kit.xp.abs(first - second))
    apart = apart + zero_or(kit, added(x.total, y.total))
    return Errors(found.bounded, found.random, added(found.flip, kit.xp.where(doubt, apart, 0.0)))


def _either(kit: Kit, condition: Figure, a: Figure, b: Figure) -> Errors:
    """The mask of a choice between bools: the taken one's, and where the condition is in doubt and they differ."""
    if condition.errors.exact and a.errors.exact and b.errors.exact:
        return Errors()
    nowhere = condition.value & ~condition.value
    chosen, x, y = (nowhere if item.errors.flip is None else item.errors.flip for item in (condition, a, b))
    taken = kit.xp.where(condition.value, x, y)
    return Errors(flip=taken | (chosen & ((a.value != b.value) | x | y)))


def compared(kit: Kit, _step: Step, operands: tuple[Figure, ...]) -> Errors:
    """In doubt where the operands are no further apart than they may be off."""
    a, b = operands
    if a.errors.exact and b.errors.exact:
        return Errors()
    doubt = added(a.errors.total, b.errors.total)
    apart = kit.xp.abs(kit.real(a.value) - kit.real(b.value))
    return Errors(flip=(apart <= doubt) & (doubt > 0))


def logical(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """In doubt unless an operand that is not decides."""
    del kit
    found = None
    for one, other in (operands, operands[::-1]) if len(operands) == 2 else ():
        if one.errors.flip is not None:
            decided = other.value if step.op == "logical_or" else ~other.value
            if other.errors.flip is not None:
                decided = decided & ~other.errors.flip
            mask = one.errors.flip & ~decided
            found = mask if found is None else found | mask
    return operands[0].errors if len(operands) == 1 else Errors(flip=found)
