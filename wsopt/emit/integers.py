"""Integer expressions of a launch: built from the plan by arithmetic, and written in a language.

All values are integers. Operands of the two divisions are never negative, divisors are at least 1.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

Relation: TypeAlias = Literal["equal", "at_least", "at_most", "multiple_of"]
"""Relation between two integers that a launch demands."""

Operator: TypeAlias = Literal[
    "name", "extent", "stride", "address",
    "add", "multiply", "floor_divide", "ceil_divide", "minimum", "maximum", "if_one", Relation,
]  # fmt: skip
"""What an expression is, by its name in JSON. The first four are leaves: a value that was given a name; a tensor's
elements and stride along a dimension, and the address of its first element in bytes. Operands of `if_one` are an
extent, the value for an extent of one element, and that for all others.
"""


@dataclass(frozen=True, slots=True)
class Expression:
    """An operator and its operands. A leaf's are a name, of a value or a tensor, and a tensor's dimension."""

    operator: Operator
    operands: tuple[int | str | Expression, ...]

    def __add__(self, other: Integer) -> Expression:
        return self if other == 0 else Expression("add", (self, other))

    def __radd__(self, other: int) -> Expression:
        return self if other == 0 else Expression("add", (other, self))

    def __mul__(self, other: Integer) -> Integer:
        return 0 if other == 0 else self if other == 1 else Expression("multiply", (self, other))

    def __rmul__(self, other: int) -> Integer:
        return 0 if other == 0 else self if other == 1 else Expression("multiply", (other, self))

    def __neg__(self) -> Integer:
        return -1 * self

    def __floordiv__(self, other: Integer) -> Expression:
        return self if other == 1 else Expression("floor_divide", (self, other))


Integer: TypeAlias = int | Expression


def named(name: str) -> Expression:
    """A value that was given a name: an extent of the kernel's axes, a count of tiles."""
    return Expression("name", (name,))


def extent_of(tensor: str, dim: int) -> Expression:
    """A tensor's elements along one of its dimensions."""
    return Expression("extent", (tensor, dim))


def shape_of(tensor: str, rank: int) -> tuple[Expression, ...]:
    """A tensor's elements along all of its dimensions."""
    return tuple(extent_of(tensor, dim) for dim in range(rank))


def product(factors: Iterable[Integer]) -> Integer:
    """The product; 1 for no factor."""
    return functools.reduce(operator.mul, factors, 1)


def ceil_divide(left: Integer, right: int) -> Integer:
    """The quotient, rounded up."""
    return left if right == 1 else Expression("ceil_divide", (left, right))


def minimum(left: Integer, right: Integer) -> Expression:
    """The smaller one."""
    return Expression("minimum", (left, right))


def maximum(left: Integer, right: Integer) -> Expression:
    """The larger one."""
    return Expression("maximum", (left, right))


def if_one(extent: Integer, one: Integer, other: Integer) -> Integer:
    """`one` for an extent of one element, else `other`."""
    if isinstance(extent, int):
        return one if extent == 1 else other
    return Expression("if_one", (extent, one, other))


_INFIX = ("add", "multiply", "floor_divide", "multiple_of")
"""Operators whose text stands between their operands, in every language."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes expressions in a language, which has a form for every operator.

    `tensors` are the tensors' names in the text; `known` expressions have a shorter text than their own.
    """

    forms: Mapping[Operator, str]
    tensors: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[Integer, str] = field(default_factory=dict)

    def __call__(self, value: int | str | Expression) -> str:
        """An expression's text, or a tensor's."""
        match value:
            case str():
                return self.tensors[value]
            case _ if value in self.known:
                return self.known[value]
            case int():
                return str(value)
            case Expression("name", (str(name),)):
                return name
            case Expression("add", (left, int(right))) if right < 0:
                return f"{self._operand(left, 'add')} - {-right}"
            case Expression("multiply", (-1, right)):
                return f"-{self._operand(right)}"
            case Expression(kind, (left, right)) if kind in _INFIX:
                return self.forms[kind].format(self._operand(left, kind), self._operand(right))
            case Expression(kind, operands):
                return self.forms[kind].format(*map(self, operands))

    def _operand(self, value: int | str | Expression, chain: str = "") -> str:
        """In parentheses where it is negative or an operation, but for one that begins a chain of its like."""
        match value:
            case int():
                apart = value < 0
            case Expression(kind):
                apart = kind in _INFIX and kind != chain and value not in self.known
            case _:
                apart = False
        return f"({self(value)})" if apart else self(value)


PYTHON = Writer(
    {
        "extent": "{}.shape[{}]",
        "stride": "{}.stride({})",
        "address": "{}.data_ptr()",
        "add": "{} + {}",
        "multiply": "{} * {}",
        "floor_divide": "{} // {}",
        "ceil_divide": "triton.cdiv({}, {})",
        "minimum": "min({}, {})",
        "maximum": "max({}, {})",
        "if_one": "({1} if {0} == 1 else {2})",
        "equal": "{} == {}",
        "at_least": "{} >= {}",
        "at_most": "{} <= {}",
        "multiple_of": "{} % {} == 0",
    }
)
GLUON = replace(
    PYTHON, forms={**PYTHON.forms, "minimum": "gl.minimum({}, {})", "maximum": "gl.maximum({}, {})"}
)
