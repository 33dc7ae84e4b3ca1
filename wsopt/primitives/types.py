"""The record of a scalar primitive: its cost, its text in Gluon and torch, its meaning in NumPy, its facts."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

NAN_RULE = "tl.PropagateNan.ALL"
"""How a maximum is asked to keep NaN, as the graph means it; the bare instruction drops it."""


class Family(enum.Enum):
    """Types of a primitive's operands and result."""

    ARITHMETIC = "i32 where all operands are whole numbers, else f32"
    REAL = "f32"
    COMPARISON = "bool, of two operands compared in i32 where both are whole numbers, else in f32"
    LOGICAL = "bool, of bools"
    CHOICE = "one of two operands by a bool"
    ROUNDING = "the type in the primitive's name"
    INDEX = "i32: a place along an axis, or an axis's extent"
    INSIDE = "bool: whether a place is before the end of an axis"
    GROUPED = "f32: what an element's neighbours in its row make of it"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Facts of a comparison: the ending of its instruction, the comparison that holds where this one does not
    (of numbers that are not NaN), and the one that means the same with its operands exchanged.
    """

    instruction: str
    negated: str
    mirrored: str


@dataclass(frozen=True, slots=True)
class Implementation:
    """Another implementation of a primitive: `helper` is the kernel's own function that takes a share of the elements
    by it. For those it has `mix` instead of the `spared` instructions, of which `chain` wait for one another.
    """

    helper: str
    mix: Mapping[str, float]
    spared: Mapping[str, float]
    chain: int


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    """One scalar primitive. An elementwise op of the graph that is a primitive has a `doc`, and its name.

    mix       instructions an element by kind (`wsopt.machine`): f32 arithmetic; a packed conversion counts a half
    symbol    the operator of Gluon and torch alike: between two operands, before one
    gluon     the call in Gluon where there is no operator, `{0}` for the first operand
    gluon_f32 the call on f32 where it differs
    helper    what the call needs of the kernel's own text: a function of that name, or "tl"
    numpy     the meaning on arrays of the family's types: a function, or its dotted name, so that the table loads
              without NumPy; empty for roundings (`graph.meaning.cast_array`) and indices
    torch     the function's name in torch, of a rounding that of the type; or an expression, `{0}` for the operand
    at_zero   the result where all operands are zero, as far as other rooms rely on it
    at_low    the result of minus infinity, likewise
    finite    whether the result is finite for finite operands, an overflow aside
    slope     largest magnitude of the derivative, for functions of one operand where it is bounded
    error     relative and absolute error of kernel and reference together, for exact operands
    otherwise another implementation, off the pipe that it takes by itself, for a share of a tile's elements
    """

    name: str
    family: Family
    doc: str = ""
    operands: tuple[str, ...] = ()
    mix: Mapping[str, float] = field(default_factory=dict)
    symbol: str = ""
    gluon: str = ""
    gluon_f32: str = ""
    helper: str = ""
    numpy: Callable[..., Any] | str = ""
    torch: str = ""
    at_zero: float | None = None
    at_low: float | None = None
    finite: bool = False
    comparison: Comparison | None = None
    slope: float | None = None
    error: tuple[float, float] = (0.0, 0.0)
    otherwise: Implementation | None = None

    def in_gluon(self, *operands: str, f32: bool = True) -> str:
        """The primitive in Gluon, from its operands' texts."""
        pattern = (self.gluon_f32 if f32 else "") or self.gluon
        return self._with_symbol(operands) if self.symbol else pattern.format(*operands)

    def in_torch(self, *operands: str) -> str:
        """The primitive in torch, from its operands' texts."""
        if self.symbol:
            return self._with_symbol(operands)
        if "{0}" in self.torch:
            return self.torch.format(*operands)
        return f"torch.{self.torch}({', '.join(operands)})"

    def _with_symbol(self, operands: tuple[str, ...]) -> str:
        return f" {self.symbol} ".join(operands) if len(operands) > 1 else f"{self.symbol}{operands[0]}"

    @property
    def function(self) -> Callable[..., Any]:
        """The meaning on NumPy arrays. TypeError for roundings and indices, which need a type or an axis."""
        if not self.numpy:
            raise TypeError(f"{self.name} has no meaning on arrays alone")
        if not isinstance(self.numpy, str):
            return self.numpy
        module, _, name = self.numpy.rpartition(".")
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return found
