"""Whether a kernel's output agrees with the reference: as a whole, row by row, and element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wsopt.agreement.figures import Array, Figure, Kit, Step, tidy
from wsopt.agreement.limits import CONFIDENCE, FORMATS, Format
from wsopt.agreement.sums import RULES

_EXACT = Format(0.0, 0.0, math.inf)


@dataclass(frozen=True, slots=True)
class Expected:
    """An output as the graph means it, and how far a right kernel may be off, an element.

    `centre` is the value before the output's own cast, if it is one. `allowed` does not count that cast's rounding.
    `flip` is what comparisons too close to tell add; None stands for zero. `dtype` is a word of the graph format.
    `rounded` is the coarsest rounding inside of the graph, which all elements of a row may have in common: weights
    that are alike are rounded alike.
    """

    value: Array
    centre: Array
    allowed: Array
    flip: Array
    dtype: str
    rounded: float = 0.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well one output agrees: smaller is better.

    `error` is the relative norm of the whole difference, less what thresholds account for. `row_error` is that of
    the worst row along the last axis, less what the last rounding accounts for too. `share` is the largest part of
    its bound that an element's difference comes to: more than one is wrong. `faults` say what is not accepted.
    """

    error: float
    row_error: float
    share: float
    faults: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the output is right."""
        return not self.faults

    @property
    def told(self) -> str:
        """The faults in one line."""
        return "; ".join(self.faults)

    @property
    def figures(self) -> dict[str, float]:
        """The figures as JSON data."""
        return {
            "max_relative_error": self.error,
            "max_row_error": self.row_error,
            "max_bound_share": self.share,
        }

    def __or__(self, other: Agreement) -> Agreement:
        """The worse of two in each respect."""
        return Agreement(
            max(self.error, other.error),
            max(self.row_error, other.row_error),
            max(self.share, other.share),
            self.faults + other.faults,
        )


NO_DIFFERENCE = Agreement(0.0, 0.0, 0.0)


def appraise(kit: Kit, step: Step, operands: tuple[Figure, ...]) -> Figure:
    """The step's value with the error that its operands' errors and its own arithmetic allow."""
    errors = RULES[step.op](kit, step, operands)
    if step.dtype != "bool" and not errors.exact:
        errors = tidy(kit, kit.real(step.value), errors)
    rounded = max((operand.rounded for operand in operands), default=0.0)
    if step.op == "cast" and not errors.exact:
        rounded = max(rounded, FORMATS.get(step.dtype, _EXACT).unit)
    return Figure(step.value, errors, step.dtype, rounded, _has_eighths(step, operands))


_SCALING = ("dequantize", "cast", "mul", "div", "reshape", "transpose")
"""Operations whose results are still numbers of f8 times factors, where an operand is."""


def _has_eighths(step: Step, operands: tuple[Figure, ...]) -> bool:
    """Whether a step's value is numbers of f8 times factors."""
    return step.op in _SCALING and any(one.eighths or one.dtype.startswith("f8") for one in operands)


def expectation(kit: Kit, figure: Figure, source: Figure | None) -> Expected:
    """Expected value of an output, with bounds; `source` is the value it was cast from, if a float cast made it."""
    errors = (source or figure).errors
    value = kit.real(figure.value)
    centre = value if source is None else kit.real(source.value)
    flip = errors.flip
    return Expected(
        figure.value,
        centre,
        errors.smooth,
        None if flip is None else kit.real(flip),
        figure.dtype,
        (source or figure).rounded,
    )


def judge(
    kit: Kit,
    actual: Array,
    expected: Expected,
    tolerance: float,
    relative_error: Callable[[Array, Array], float],
) -> Agreement:
    """Compare an output. `tolerance` is on relative norms, of the whole and of each row.

    A row may be off by one rounding inside of the graph besides, and has a part of its bound's norm free: the one
    that independent errors of such a norm come to, which is all of it for a single element. So rows of little or no
    norm need not agree better than others. The whole has `_Parts.free` besides: where operands are rounded inside of
    the graph, a tolerance that follows from the output's type alone would refuse right kernels.
    """
    if tuple(actual.shape) != tuple(expected.value.shape):
        told = f"has the shape {list(actual.shape)}, {list(expected.value.shape)} is meant"
        return Agreement(math.inf, math.inf, math.inf, (told,))
    parts = _Parts.of(kit, actual, expected)
    error = relative_error(parts.forgiven, expected.value)
    row_tolerance = tolerance + expected.rounded
    rows = parts.rows(kit, row_tolerance)
    share, faults = parts.share, list[str]()
    allowed = tolerance if error <= tolerance else tolerance + parts.free(kit)
    if not error <= allowed:
        faults.append(f"relative error {error:.2e}, {allowed:.2g} is allowed")
    row = int(kit.xp.argmax(rows))
    row_error = float(rows.reshape(-1)[row])
    if not row_error <= row_tolerance:
        place = _place(row, rows.shape)
        faults.append(f"row {place} is off by {row_error:.2e} of its norm, {row_tolerance:.2g} is allowed")
    element = int(kit.xp.argmax(share))
    largest = float(share.reshape(-1)[element])
    if not largest <= 1:
        faults.append(parts.said(element))
    return Agreement(error, row_error, largest, tuple(faults))


def _place(index: int, shape: Sequence[int]) -> str:
    """An index into the flattened array as one for each axis."""
    found = []
    for extent in reversed(shape):
        index, at = divmod(index, int(extent))
        found.append(at)
    return f"[{', '.join(map(str, reversed(found)))}]"


@dataclass(frozen=True, slots=True)
class _Parts:
    """The comparison's arrays: both sides, the output with forgiven elements, differences and bounds."""

    actual: Array
    value: Array
    forgiven: Array
    excess: Array
    allowed: Array
    share: Array
    rounding: Array
    flip: Array

    @classmethod
    def of(cls, kit: Kit, actual: Array, expected: Expected) -> _Parts:
        xp, limits = kit.xp, FORMATS.get(expected.dtype, _EXACT)
        a, value = kit.wide(actual), kit.wide(expected.value)
        centre = xp.clip(kit.wide(expected.centre), -limits.largest, limits.largest)
        zero = xp.zeros_like(value)
        allowed = zero if expected.allowed is None else zero + kit.wide(expected.allowed)
        flip = zero if expected.flip is None else zero + kit.wide(expected.flip)
        finite = xp.isfinite(a) & xp.isfinite(centre)
        rounding = xp.where(finite, limits.unit * xp.abs(a) + limits.floor * (allowed > 0), 0.0)
        away = xp.where(finite & (a != value), xp.abs(centre - a), 0.0)
        excess = xp.clip(xp.nan_to_num(away - rounding - flip, nan=0.0), 0.0, None)
        reach = allowed + flip
        strange = ~finite & ~_same(kit, a, value, centre, reach, limits.overflow) & xp.isfinite(reach)
        share = xp.where(excess > 0, excess / xp.where(allowed > 0, allowed, 1e-300), 0.0)
        share = xp.where(strange, math.inf, share)
        special = ~(xp.isfinite(a) & xp.isfinite(value))
        forgiven = actual
        if expected.flip is not None or bool(special.any()):
            # What a comparison too close to tell adds is taken off; what may be infinite counts as it is meant.
            moved = xp.where(special, 0.0, xp.clip(xp.nan_to_num(a - value), -flip, flip))
            forgiven = xp.where(special & (share <= 1), value, a - moved)
        return cls(a, value, forgiven, excess, allowed, share, rounding, flip)

    def rows(self, kit: Kit, tolerance: float) -> Array:
        """The error of every row relative to its norm, with the free part of its bound added to that."""

        def norm(x: Array) -> Array:
            x = kit.xp.where(kit.xp.isfinite(x), x, 0.0).reshape(*x.shape[:-1], -1)
            return kit.xp.sqrt(kit.xp.sum(x * x, axis=-1))

        count = max(1, int(self.value.shape[-1])) if len(self.value.shape) else 1
        free = min(1.0, 1 / CONFIDENCE + 1 / math.sqrt(count))
        error = norm(self.excess)
        against = norm(self.value) + free / tolerance * norm(self.allowed) if tolerance else norm(self.value)
        return kit.xp.where(error > 0, error / against, 0.0)

    def free(self, kit: Kit) -> float:
        """Relative norm of the whole output that errors inside of the graph can cause.

        Of a bound e of independent roundings half of what `CONFIDENCE` leaves is their root mean square. As the
        output is rounded, of the elements that move by so much a part e / ulp moves by a whole ulp.
        """
        count = max(1, math.prod(map(int, self.value.shape)))
        usual = min(1.0, 1 / (2 * CONFIDENCE) + 1 / math.sqrt(count)) * self.allowed
        squares = usual * usual + 4 * usual * self.rounding
        value = kit.xp.where(kit.xp.isfinite(self.value), self.value, 0.0)
        total, norm = (
            float(kit.xp.sum(kit.xp.where(kit.xp.isfinite(x), x, 0.0))) for x in (squares, value * value)
        )
        return math.sqrt(total / norm) if norm else math.inf if total else 0.0

    def said(self, element: int) -> str:
        """One element in words: its place, its value, the expected value, and its bound."""
        found, meant, bound = (
            float(x.reshape(-1)[element])
            for x in (self.actual, self.value, self.allowed + self.rounding + self.flip)
        )
        place = _place(element, self.value.shape)
        return f"element {place} is {found:.7g}, {meant:.7g} is meant, {bound:.1e} apart is allowed"


def _same(kit: Kit, a: Array, value: Array, centre: Array, reach: Array, overflow: float) -> Array:
    """Where a value that is not finite is right: it is the same, or it is infinite and the other nearly so."""
    xp = kit.xp
    same = (a == value) | (xp.isnan(a) & xp.isnan(value))
    over = xp.isinf(a) & xp.isfinite(centre) & (xp.where(a > 0, centre, -centre) + reach >= overflow)
    return same | over
