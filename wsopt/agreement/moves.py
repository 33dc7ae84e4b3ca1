"""Propagation of errors through casts, and through moves of data, which take them along."""

from __future__ import annotations

from collections.abc import Callable

from wsopt.agreement.figures import WHOLE_NUMBERS, Array, Errors, Figure, Kit, Rule, Step, added
from wsopt.agreement.limits import FORMATS


def cast(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """To a float: a rounding in the kernel and one in the reference, whose places a factor may have moved.

    To a bool or an integer: a flip where the operand's error reaches across a step.
    """
    (x,) = operands
    if x.errors.exact:
        return Errors()
    value = kit.real(x.value)
    if x.dtype == "bool":
        return Errors(flip=None if step.dtype == "bool" else kit.real(x.errors.flip))
    if step.dtype == "bool":
        return Errors(flip=kit.xp.abs(value) <= x.errors.total)
    if step.dtype in WHOLE_NUMBERS:
        e = x.errors.total
        return Errors(flip=kit.xp.round(value + e) - kit.xp.round(value - e))
    own = FORMATS[step.dtype]
    if own.unit <= FORMATS["f32"].unit:
        return x.errors
    rounding = kit.xp.abs(value)
    rounding *= 2 * own.unit
    rounding += 2 * own.floor
    return Errors(x.errors.bounded, added(x.errors.random, rounding), x.errors.flip)


def moved(move: Callable[[Kit, Step, Array], Array]) -> Rule:
    """The rule of an operation that moves elements: their errors go where they go."""

    def rule(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
        return operands[0].errors.each(lambda e: move(kit, step, e))

    return rule


def transposed(kit: Kit, step: Step, e: Array) -> Array:
    """An array as `transpose` moves it."""
    perm = tuple(step.attrs["perm"])
    return kit.xp.moveaxis(e, perm, tuple(range(len(perm))))


def sliced(_kit: Kit, step: Step, e: Array) -> Array:
    """The elements of an array that `slice` takes."""
    extent = step.value.shape
    axis = step.attribute("axis", -1) % len(extent)
    start, every, whole = step.attribute("start", 0), step.attribute("step", 1), e.shape[axis]
    first = start + whole * (start < 0)
    places = slice(first, first + (extent[axis] - 1) * every + 1, every)
    return e[(slice(None),) * axis + (places,)]


def padded(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """The errors of the operand in its place; zeros around it have none."""
    (x,) = operands
    place = tuple(
        slice(low, low + extent) for low, extent in zip(step.attrs["low"], x.value.shape, strict=True)
    )

    def around(e: Array) -> Array:
        found = kit.real((step.value != step.value) & False)
        found[place] = e
        return found

    return x.errors.each(around)


def gathered(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """The errors of the elements that the indices choose; an index outside chooses a zero, which has none."""
    (x, indices), axis = operands, step.attribute("axis", 0) % len(operands[0].value.shape)
    places, extent = indices.value, x.value.shape[axis]
    inside = (places >= 0) & (places < extent)
    key = (slice(None),) * axis + (kit.xp.where(inside, places, 0),)
    known = kit.xp.reshape(inside, (*inside.shape, *(1,) * (len(x.value.shape) - axis - 1)))
    return x.errors.each(lambda e: kit.xp.where(known, kit.xp.broadcast_to(e, x.value.shape)[key], 0.0))


def joined(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """The errors of each operand in its place; none where an operand has none."""
    axis = step.attribute("axis", -1)

    def of(which: Callable[[Errors], Array]) -> Array:
        found = [which(one.errors) for one in operands]
        if all(e is None for e in found):
            return None
        none = [one.value != one.value for one in operands]
        masks = step.dtype == "bool"
        parts = zip(found, none, operands, strict=True)
        whole = [
            (no & False if masks else kit.real(no & False))
            if e is None
            else kit.xp.broadcast_to(e, one.value.shape)
            for e, no, one in parts
        ]
        return kit.xp.concatenate(whole, axis)

    return Errors(of(lambda e: e.bounded), of(lambda e: e.random), of(lambda e: e.flip))
