"""Propagation of errors through elementwise operations, comparisons, casts and moves of data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from wsopt.agreement.figures import Array, Errors, Figure, Kit, Step, added, finite_size, grown
from wsopt.agreement.limits import F32_ROUNDING, FLUSHED, FORMATS, FUNCTIONS, SLOPES, TANH_APPROX
from wsopt.primitives import Family, FromTable, Primitive

Rule = Callable[[Kit, Step, tuple[Figure, ...]], Errors]

_INTEGERS = ("i32", "i8", "i4")


def _rounded(kit: Kit, step: Step, magnitude: Array) -> Array:
    """The operation's own f32 rounding, relative to `magnitude`; none of whole numbers."""
    if step.dtype in _INTEGERS:
        return None
    size = kit.xp.abs(kit.real(magnitude))
    size *= F32_ROUNDING
    return size


def _scaled(error: Array, factor: Array) -> Array:
    return None if error is None else error * factor


# --- sums, products, choices ----------------------------------------------------------------------------


def _add(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
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


def _divide(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
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


def _larger(sign: float) -> Rule:
    """Maximum (sign 1) or minimum (-1): the error of the operand that is chosen, of both where that is open."""

    def rule(kit: Kit, _step: Step, operands: tuple[Figure, ...]) -> Errors:
        a, b = operands
        if a.errors.exact and b.errors.exact:
            return Errors()
        ahead = sign * (kit.real(a.value) - kit.real(b.value))
        doubt = _zero_or(kit, added(a.errors.total, b.errors.total))

        def part(first: Array, second: Array) -> Array:
            if first is None and second is None:
                return None
            x, y = _zero_or(kit, first), _zero_or(kit, second)
            largest = kit.xp.where(x > y, x, y)
            return kit.xp.where(ahead > doubt, x, kit.xp.where(ahead < -doubt, y, largest))

        x, y = a.errors, b.errors
        return Errors(part(x.bounded, y.bounded), part(x.random, y.random), part(x.flip, y.flip))

    return rule


def _relu(kit: Kit, _step: Step, operands: tuple[Figure, ...]) -> Errors:
    (x,) = operands
    if x.errors.exact:
        return Errors()
    off = kit.real(x.value) < -x.errors.total
    return x.errors.each(lambda e: kit.xp.where(off, 0.0, e))


def _where(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """The error of the branch that is taken; where the condition is in doubt, the way to the other one besides."""
    condition, a, b = operands
    if step.dtype == "bool":
        return _either(kit, condition, a, b)
    x, y, doubt = a.errors, b.errors, condition.errors.flip

    def part(first: Array, second: Array) -> Array:
        if first is None and second is None:
            return None
        return kit.xp.where(condition.value, _zero_or(kit, first), _zero_or(kit, second))

    found = Errors(part(x.bounded, y.bounded), part(x.random, y.random), part(x.flip, y.flip))
    if doubt is None:
        return found
    first, second = kit.real(a.value), kit.real(b.value)
    apart = kit.xp.where(first == second, 0.0, kit.xp.abs(first - second))
    apart = apart + _zero_or(kit, added(x.total, y.total))
    return Errors(found.bounded, found.random, added(found.flip, kit.xp.where(doubt, apart, 0.0)))


def _either(kit: Kit, condition: Figure, a: Figure, b: Figure) -> Errors:
    """The mask of a choice between bools: the taken one's, and where the condition is in doubt and they differ."""
    if condition.errors.exact and a.errors.exact and b.errors.exact:
        return Errors()
    nowhere = condition.value & ~condition.value
    chosen, x, y = (nowhere if item.errors.flip is None else item.errors.flip for item in (condition, a, b))
    taken = kit.xp.where(condition.value, x, y)
    return Errors(flip=taken | (chosen & ((a.value != b.value) | x | y)))


def _zero_or(kit: Kit, error: Array) -> Array:
    return kit.real(0.0) if error is None else error


# --- functions ------------------------------------------------------------------------------------------


def through(kit: Kit, errors: Errors, change: Callable[[Array], Array]) -> Errors:
    """Errors of a function that moves by at most `change(e)` where its argument moves by e."""
    smooth = None if errors.smooth is None else change(errors.smooth)
    if errors.flip is None:
        return Errors(smooth)
    return Errors(smooth, None, change(errors.total) - _zero_or(kit, smooth))


def _exp(base: float) -> Rule:
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


def _log(base: float) -> Rule:
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


def _root(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
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


def _reciprocal(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    one = Figure(kit.real(1.0), Errors(), "f32")
    return _divide(kit, step, (one, *operands)).with_bounded(_own(kit, step))


def _smooth(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
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


def _own(kit: Kit, step: Step) -> Array:
    relative, absolute = FUNCTIONS[step.op]
    return relative * kit.xp.abs(step.value) + absolute


def _power(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """As exp2(b log2 |a|), relative to the result; near a = 0 the distance to what a's error reaches."""
    base, exponent = operands
    a, b = kit.xp.abs(kit.real(base.value)), kit.xp.abs(kit.real(exponent.value))
    y = kit.xp.abs(step.value)
    logarithm = kit.xp.where(a > 0, kit.xp.abs(kit.xp.log(a)), 0.0)
    relative, absolute = FUNCTIONS["log2"]
    own = b * (logarithm * relative + absolute) + FUNCTIONS["exp2"][0]
    moved = _zero_or(kit, exponent.errors.total)
    powers = moved * logarithm

    def change(e: Array) -> Array:
        near = kit.xp.where(
            exponent.value > moved, (a + e) ** (b + moved) + (a + e) ** (b - moved), float("inf")
        )
        far = y * kit.xp.expm1(own + powers + (b + moved) * -kit.xp.log1p(-e / a))
        return kit.xp.where(2 * e < a, far, near)

    if base.errors.exact:
        return Errors(y * kit.xp.expm1(own + powers))
    return through(kit, base.errors, change)


# --- comparisons, casts, moves --------------------------------------------------------------------------


def _compare(kit: Kit, _step: Step, operands: tuple[Figure, ...]) -> Errors:
    """In doubt where the operands are no further apart than they may be off."""
    a, b = operands
    if a.errors.exact and b.errors.exact:
        return Errors()
    doubt = added(a.errors.total, b.errors.total)
    apart = kit.xp.abs(kit.real(a.value) - kit.real(b.value))
    return Errors(flip=(apart <= doubt) & (doubt > 0))


def _logical(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
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


def _cast(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
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
    if step.dtype in _INTEGERS:
        e = x.errors.total
        return Errors(flip=kit.xp.round(value + e) - kit.xp.round(value - e))
    own = FORMATS[step.dtype]
    if own.unit <= FORMATS["f32"].unit:
        return x.errors
    rounding = kit.xp.abs(value)
    rounding *= 2 * own.unit
    rounding += 2 * own.floor
    return Errors(x.errors.bounded, added(x.errors.random, rounding), x.errors.flip)


def _moved(move: Callable[[Kit, Step, Array], Array]) -> Rule:
    def rule(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
        return operands[0].errors.each(lambda e: move(kit, step, e))

    return rule


def _transposed(kit: Kit, step: Step, e: Array) -> Array:
    perm = tuple(step.attrs["perm"])
    return kit.xp.moveaxis(e, perm, tuple(range(len(perm))))


def _sliced(_kit: Kit, step: Step, e: Array) -> Array:
    extent = step.value.shape
    axis = attribute(step, "axis", -1) % len(extent)
    start, every, whole = attribute(step, "start", 0), attribute(step, "step", 1), e.shape[axis]
    first = start + whole * (start < 0)
    places = slice(first, first + (extent[axis] - 1) * every + 1, every)
    return e[(slice(None),) * axis + (places,)]


def _padded(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
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


def _gathered(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """The errors of the elements that the indices choose; an index outside chooses a zero, which has none."""
    (x, indices), axis = operands, attribute(step, "axis", 0) % len(operands[0].value.shape)
    places, extent = indices.value, x.value.shape[axis]
    inside = (places >= 0) & (places < extent)
    key = (slice(None),) * axis + (kit.xp.where(inside, places, 0),)
    known = kit.xp.reshape(inside, (*inside.shape, *(1,) * (len(x.value.shape) - axis - 1)))
    return x.errors.each(lambda e: kit.xp.where(known, kit.xp.broadcast_to(e, x.value.shape)[key], 0.0))


def _joined(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Errors:
    """The errors of each operand in its place; none where an operand has none."""
    axis = attribute(step, "axis", -1)

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


def _nothing(_kit: Kit, _step: Step, _operands: tuple[Figure, ...]) -> Errors:
    return Errors()


def _of_primitive(entry: Primitive) -> Rule | None:
    """The rule of a primitive that has none of its own below."""
    match entry.family:
        case Family.COMPARISON:
            return _compare
        case Family.LOGICAL:
            return _logical
        case _:
            return None if entry.slope is None else _smooth


ELEMENTWISE: Mapping[str, Rule] = FromTable(
    lambda entry: _of_primitive(entry) if entry.doc else None,
    {
        "add": _add,
        "sub": _add,
        "mul": multiplied,
        "div": _divide,
        "maximum": _larger(1.0),
        "minimum": _larger(-1.0),
        "pow": _power,
        "exp": _exp(math.e),
        "exp2": _exp(2.0),
        "log": _log(math.e),
        "log2": _log(2.0),
        "sqrt": _root,
        "rsqrt": reciprocal_root,
        "reciprocal": _reciprocal,
        "relu": _relu,
        **dict.fromkeys(("tanh", "sigmoid", "silu", "gelu"), _smooth),
        "cast": _cast,
        "where": _where,
        "iota": _nothing,
        "reshape": _moved(lambda kit, step, e: kit.xp.reshape(e, tuple(step.attrs["shape"]))),
        "transpose": _moved(_transposed),
        "slice": _moved(_sliced),
        "concat": _joined,
        "pad": _padded,
        "gather": _gathered,
    },
)
"""The rules of operations that take elements as they come; `sums.RULES` has all."""


def attribute(step: Step, name: str, default: Any) -> Any:
    """An attribute of a step, which a graph that was read as it lies on disk may leave out."""
    found = step.attrs.get(name)
    return default if found is None else found
