"""What each ONNX operation means in our graphs: a table, one entry an operation.

An entry is a function of a `Call`; it returns the result, a tuple of results, or raises Untaken with the reason.
Casts to the types that ONNX says follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy.typing as npt

from wsopt.graph.types import DType
from wsopt.torch.values import Shape, Untaken, Value
from wsopt.torch.writer import Writer, number

Array = npt.NDArray[Any]
Result = Value | tuple[Value, ...]


class Source(Protocol):
    """Where a call's operands come from, by name."""

    def value(self, name: str) -> Value:
        """A tensor as a value. Raises Untaken for one of a type that graphs do not have."""

    def constant(self, name: str) -> Array | None:
        """The contents of a tensor that depends on no input, where they are known."""


@dataclass(frozen=True, slots=True)
class Call:
    """A node of an ONNX graph: its operation, of which version, its attributes, and its operands by name, empty where
    one is left out.
    """

    w: Writer
    source: Source
    op: str
    opset: int
    attrs: Mapping[str, Any]
    operands: tuple[str, ...]
    results: int = 1

    def has(self, place: int) -> bool:
        """Whether an operand is given."""
        return place < len(self.operands) and self.operands[place] != ""

    def value(self, place: int) -> Value:
        """An operand. Raises Untaken where it is missing."""
        if not self.has(place):
            raise Untaken(f"operand {place} is missing")
        return self.source.value(self.operands[place])

    def optional(self, place: int) -> Value | None:
        """An operand, if it is given."""
        return self.value(place) if self.has(place) else None

    def values(self) -> list[Value]:
        """All operands."""
        return [self.value(place) for place in range(len(self.operands))]

    def array(self, place: int, role: str) -> Array:
        """The contents of an operand. Raises Untaken where they depend on an input."""
        found = self.source.constant(self.operands[place]) if self.has(place) else None
        if found is None:
            raise Untaken(f"{role} are computed from the model's inputs; a graph wants numbers there")
        return found

    def integers(self, role: str, place: int) -> tuple[int, ...] | None:
        """Integers that are an attribute in earlier versions, and an operand in later ones; None where not given."""
        if role in self.attrs:
            found = self.attrs[role]
            return tuple(found) if isinstance(found, Sequence) else (int(found),)
        return tuple(int(one) for one in self.array(place, role).flat) if self.has(place) else None

    def number(self, role: str, place: int) -> float | None:
        """A number that is an attribute or an operand; None where not given."""
        if role in self.attrs:
            return float(self.attrs[role])
        return float(self.array(place, role).item()) if self.has(place) else None

    def attr(self, name: str, default: Any) -> Any:
        """An attribute, or what ONNX takes where it is not given."""
        return self.attrs.get(name, default)


Entry = Callable[[Call], Result]
_Function = TypeVar("_Function", bound=Entry)
TABLE: dict[str, Entry] = {}
"""The entries by operation, those of the default domain."""


def entry(*names: str) -> Callable[[_Function], _Function]:
    """Enter a function for these operations."""

    def entered(function: _Function) -> _Function:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return entered


def require_floats(call: Call, *values: Value) -> None:
    """Raise Untaken unless one of the values is of a floating-point type: integers are divided otherwise there."""
    if not any(call.w.dtype(value).is_float for value in values):
        raise Untaken("it is of integers, which graphs compute in f32 here")


def axis_of(call: Call, rank: int, default: int) -> int:
    """The attribute `axis`, counted from the front."""
    return int(call.attr("axis", default)) % rank


def filled(value: float, shape: Shape) -> Value:
    """A number as a value of a shape."""
    return number(value, shape)


def is_float(call: Call, value: Value) -> bool:
    """Whether a value is of a floating-point type."""
    return call.w.dtype(value).is_float


def is_truth(call: Call, value: Value) -> bool:
    """Whether a value is of truth values."""
    return isinstance(value.tensor, bool) or (
        isinstance(value.tensor, str) and call.w.dtype(value) is DType.BOOL
    )
