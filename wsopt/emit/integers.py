"""Integer expressions of a launch: built from the plan, and written in a language.

All values are integers. Operands of the two divisions are never negative, divisors are at least 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias, assert_never


class Operator(StrEnum):
    """Operator of two integer operands; the value is its name in JSON."""

    ADD = "add"
    MULTIPLY = "multiply"
    FLOOR_DIVIDE = "floor_divide"
    CEIL_DIVIDE = "ceil_divide"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"


class Term:
    """Arithmetic by operators, so that a formula takes numbers and expressions alike."""

    __slots__ = ()

    def __add__(self, other: Integer) -> Integer:
        return add(_own(self), other)

    def __radd__(self, other: Integer) -> Integer:
        return add(other, _own(self))

    def __mul__(self, other: Integer) -> Integer:
        return multiply(_own(self), other)

    def __rmul__(self, other: Integer) -> Integer:
        return multiply(other, _own(self))

    def __neg__(self) -> Integer:
        return multiply(-1, _own(self))

    def __floordiv__(self, other: Integer) -> Integer:
        return floor_divide(_own(self), other)

    def __rfloordiv__(self, other: Integer) -> Integer:
        return floor_divide(other, _own(self))


@dataclass(frozen=True, slots=True)
class Name(Term):
    """A value that was given a name: an extent of the kernel's axes, a count of tiles."""

    name: str


@dataclass(frozen=True, slots=True)
class Extent(Term):
    """Elements of a tensor along one of its dimensions."""

    tensor: str
    dim: int


@dataclass(frozen=True, slots=True)
class Pitch(Term):
    """A tensor's stride along one of its dimensions, in elements."""

    tensor: str
    dim: int


@dataclass(frozen=True, slots=True)
class Address(Term):
    """The address of a tensor's first element, in bytes."""

    tensor: str


@dataclass(frozen=True, slots=True)
class Operation(Term):
    """Two expressions combined."""

    operator: Operator
    left: Integer
    right: Integer


@dataclass(frozen=True, slots=True)
class IfOne(Term):
    """An expression for an extent of one element, and another for all other extents."""

    extent: Integer
    one: Integer
    other: Integer


Expression: TypeAlias = Name | Extent | Pitch | Address | Operation | IfOne
Integer: TypeAlias = int | Expression


def _own(term: Term) -> Expression:
    assert isinstance(term, Expression)
    return term


_PYTHON = {Operator.ADD: " + ", Operator.MULTIPLY: " * ", Operator.FLOOR_DIVIDE: " // "}
_PYTHON_CALLS = {Operator.CEIL_DIVIDE: "triton.cdiv", Operator.MINIMUM: "min", Operator.MAXIMUM: "max"}


def add(left: Integer, right: Integer) -> Integer:
    """The sum."""
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    if left == 0:
        return right
    return left if right == 0 else Operation(Operator.ADD, left, right)


def multiply(*factors: Integer) -> Integer:
    """The product; 1 for no factor."""
    found: Integer = 1
    if 0 in factors:
        return 0
    for factor in factors:
        if isinstance(found, int) and isinstance(factor, int):
            found *= factor
        elif found == 1 or factor == 1:
            found = factor if found == 1 else found
        else:
            found = Operation(Operator.MULTIPLY, found, factor)
    return found


def floor_divide(left: Integer, right: Integer) -> Integer:
    """The quotient, rounded down."""
    return left if right == 1 else Operation(Operator.FLOOR_DIVIDE, left, right)


def ceil_divide(left: Integer, right: int) -> Integer:
    """The quotient, rounded up."""
    return left if right == 1 else Operation(Operator.CEIL_DIVIDE, left, right)


def minimum(left: Integer, right: Integer) -> Integer:
    """The smaller one."""
    return Operation(Operator.MINIMUM, left, right)


def maximum(left: Integer, right: Integer) -> Integer:
    """The larger one."""
    return Operation(Operator.MAXIMUM, left, right)


def if_one(extent: Integer, one: Integer, other: Integer) -> Integer:
    """`one` for an extent of one element, else `other`."""
    if isinstance(extent, int):
        return one if extent == 1 else other
    return IfOne(extent, one, other)


def rewritten(value: Integer, tensors: Mapping[str, str], known: Mapping[Integer, Name]) -> Integer:
    """The expression with other names for its tensors, and with names for the parts of it that are `known`."""
    if value in known:
        return known[value]
    match value:
        case Extent(tensor) | Pitch(tensor) | Address(tensor):
            return replace(value, tensor=tensors[tensor])
        case Operation(kind, left, right):
            return Operation(kind, rewritten(left, tensors, known), rewritten(right, tensors, known))
        case IfOne(extent, one, other):
            return IfOne(*(rewritten(part, tensors, known) for part in (extent, one, other)))
        case _:
            return value


def names_in(value: Integer) -> frozenset[str]:
    """The names that an expression mentions."""
    match value:
        case Name(name):
            return frozenset({name})
        case Operation(_, left, right):
            return names_in(left) | names_in(right)
        case IfOne(extent, one, other):
            return names_in(extent) | names_in(one) | names_in(other)
        case _:
            return frozenset()


@dataclass(frozen=True, slots=True)
class Language:
    """How a programming language writes expressions: of tensors as templates of {tensor} and {dim}, operations
    with a symbol between their operands, and calls of functions; choices of {extent}, {one} and {other}.
    """

    extent: str
    pitch: str
    address: str
    symbols: Mapping[Operator, str]
    calls: Mapping[Operator, str]
    choice: str


PYTHON = Language(
    "{tensor}.shape[{dim}]",
    "{tensor}.stride({dim})",
    "{tensor}.data_ptr()",
    _PYTHON,
    _PYTHON_CALLS,
    "({one} if {extent} == 1 else {other})",
)
GLUON = replace(PYTHON, calls={Operator.MINIMUM: "gl.minimum", Operator.MAXIMUM: "gl.maximum"})


def text(value: Integer, language: Language) -> str:
    """The expression in a language. An operand that is itself an operation stands in parentheses."""
    match value:
        case int():
            return str(value)
        case Name(name):
            return name
        case Extent(tensor, dim):
            return language.extent.format(tensor=tensor, dim=dim)
        case Pitch(tensor, dim):
            return language.pitch.format(tensor=tensor, dim=dim)
        case Address(tensor):
            return language.address.format(tensor=tensor)
        case Operation(Operator.ADD, left, int(right)) if right < 0:
            return f"{_operand(left, Operator.ADD, language)} - {-right}"
        case Operation(Operator.MULTIPLY, -1, right):
            return f"-{_operand(right, None, language)}"
        case Operation(kind, left, right):
            if kind in language.calls:
                return f"{language.calls[kind]}({text(left, language)}, {text(right, language)})"
            operands = (_operand(left, kind, language), _operand(right, None, language))
            return language.symbols[kind].join(operands)
        case IfOne():
            parts = {name: text(getattr(value, name), language) for name in ("extent", "one", "other")}
            return language.choice.format(**parts)
        case _:
            assert_never(value)


def _operand(value: Integer, associative: Operator | None, language: Language) -> str:
    written = text(value, language)
    if isinstance(value, int) and value < 0:
        return f"({written})"
    if not isinstance(value, Operation) or value.operator in language.calls:
        return written
    chained = value.operator is associative and associative is not Operator.FLOOR_DIVIDE
    return written if chained else f"({written})"
