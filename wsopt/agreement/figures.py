"""A computed array with how far it may be off, and the array library that both are computed with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Array = Any
"""An array of NumPy or a tensor of torch."""


@dataclass(frozen=True, slots=True)
class Kit:
    """An array library: its namespace, a conversion to the type of real arithmetic, and one to f64."""

    xp: Any
    real: Callable[[Array], Array]
    wide: Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Errors:
    """Magnitudes, an element each, that a right kernel's value differs by at most; None stands for zero.

    `bounded` errors may all have the same sign; `random` ones are roundings, independent of one another, so that in
    sums they grow with the root of their number. `flip` is what a comparison adds whose operands are too close to
    tell; of a bool it is the mask of elements that may be either.
    """

    bounded: Array = None
    random: Array = None
    flip: Array = None

    @property
    def exact(self) -> bool:
        """Whether all errors are zero."""
        return self.bounded is None and self.random is None and self.flip is None

    @property
    def smooth(self) -> Array:
        """Bounded and random errors together, without flips."""
        return added(self.bounded, self.random)

    @property
    def total(self) -> Array:
        """Bounded and random errors and flips together."""
        return added(self.smooth, self.flip)

    def each(self, function: Callable[[Array], Array]) -> Errors:
        """Each of these errors through a function that only moves or scales values."""
        return Errors(*(None if e is None else function(e) for e in (self.bounded, self.random, self.flip)))

    def with_bounded(self, more: Array) -> Errors:
        """These errors with `more` bounded errors added."""
        return Errors(added(self.bounded, more), self.random, self.flip)


@dataclass(frozen=True, slots=True)
class Figure:
    """An array with its errors and the word of its element type.

    `rounded` is the unit roundoff of the coarsest type that what it is computed from was cast to, where a kernel may
    have rounded something else; zero if nothing was. `eighths` says that it is numbers of f8 times factors, or those
    themselves: a kernel may multiply them as f8, whose sums are shorter.
    """

    value: Array
    errors: Errors
    dtype: str
    rounded: float = 0.0
    eighths: bool = False


_WITH_ZERO = 3
"""Operands of a `dequantize` that has zeros."""


def unsigned(op: str, dtypes: Sequence[str]) -> bool:
    """Whether an operation reads its first operand's numbers of four bits as unsigned: beside a zero."""
    return op == "dequantize" and len(dtypes) == _WITH_ZERO and dtypes[0] == "i4"


def as_read(op: str, operands: tuple[Figure, ...]) -> tuple[Figure, ...]:
    """The operands with the values that an operation reads them as."""
    if not unsigned(op, [one.dtype for one in operands]):
        return operands
    first, *others = operands
    return (replace(first, value=first.value & 15), *others)


@dataclass(frozen=True, slots=True)
class Step:
    """A node as the rules see it: op, attributes, element type, value, and whether the hardware's tanh may serve."""

    op: str
    attrs: Mapping[str, Any]
    dtype: str
    value: Array
    coarse: bool = False

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute, which a graph that was read as it lies on disk may leave out."""
        found = self.attrs.get(name)
        return default if found is None else found


Rule = Callable[[Kit, Step, tuple[Figure, ...]], Errors]
"""How the errors of an operation's result follow from its operands with theirs."""

WHOLE_NUMBERS = ("i32", "i8", "i4")
"""Element types in which arithmetic does not round."""


def zero_or(kit: Kit, error: Array) -> Array:
    """A magnitude, zero for None."""
    return kit.real(0.0) if error is None else error


def added(first: Array, second: Array) -> Array:
    """The sum of two magnitudes, either of which may be None."""
    if first is None or second is None:
        return second if first is None else first
    return first + second


def tidy(kit: Kit, value: Array, errors: Errors) -> Errors:
    """Errors in the value's shape, without not-a-numbers: unlimited where they are unknown.

    Where the value is infinite there are none but flips.
    """
    everywhere = _finite_sum(kit, value)
    finite = None if everywhere else kit.xp.isfinite(value)

    def known(error: Array) -> Array:
        error = kit.xp.broadcast_to(error, value.shape)
        if _finite_sum(kit, error):
            return error
        return kit.xp.nan_to_num(error, nan=float("inf"), posinf=float("inf"))

    def smooth(error: Array) -> Array:
        if error is None:
            return None
        return known(error) if everywhere else kit.xp.where(finite, known(error), 0.0)

    flip = None if errors.flip is None else known(errors.flip)
    return Errors(smooth(errors.bounded), smooth(errors.random), flip)


def _finite_sum(kit: Kit, array: Array) -> bool:
    """Whether the sum of all elements is finite: then each of them is."""
    return bool(kit.xp.isfinite(kit.xp.sum(array)))


def finite_size(kit: Kit, value: Array) -> Array:
    """The magnitude of every element, zero where it is not finite."""
    size = kit.xp.abs(value)
    return size if _finite_sum(kit, size) else kit.xp.where(kit.xp.isfinite(size), size, 0.0)


def grown(kit: Kit, error: Array) -> Array:
    """At least exp(error) - 1, with no exponential where all errors are small: e + e**2 up to one."""
    if bool(kit.xp.amax(error) <= 1):
        square = error * error
        square += error
        return square
    return kit.xp.expm1(error)
