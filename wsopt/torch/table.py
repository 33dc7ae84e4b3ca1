"""What each operation of an FX graph means in our graphs: a table, one entry an operation.

An entry is a function of the writer and of the operation's arguments, with values in the place of FX nodes. It
returns the result, a tuple of results, or raises Untaken with the reason. Casts to the result's own type follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer, number

Entry = Callable[..., Any]
_Function = TypeVar("_Function", bound=Entry)
TABLE: dict[Any, Entry] = {}
"""The entries by overload, such as `torch.ops.aten.mm.default`."""

aten, prims = torch.ops.aten, torch.ops.prims


def entry(*targets: Any) -> Callable[[_Function], _Function]:
    """Enter a function for these operations."""

    def entered(function: _Function) -> _Function:
        TABLE.update(dict.fromkeys(targets, function))
        return function

    return entered


def found(namespace: Any, name: str, overload: str = "default") -> tuple[Any, ...]:
    """An operation, if this release of torch has it."""
    packet = getattr(namespace, name, None)
    return (getattr(packet, overload),) if packet is not None and overload in packet.overloads() else ()


def as_value(x: Value | float) -> Value:
    """An operand; a number, or a truth value, as one that is the same everywhere."""
    return x if isinstance(x, Value) else number(x)


def check_real(w: Writer, op: str, *values: Value) -> None:
    """Raise Untaken where an operation that our graphs have of floats alone is one of others."""
    for dtype in map(w.dtype, values):
        if not dtype.is_float:
            raise Untaken(f"{op} of {dtype.value}")


def as_numbers(op: str, w: Writer, *operands: Value | float) -> Value:
    """An elementwise operation of values and numbers."""
    values = [as_value(x) for x in operands]
    if any(isinstance(x, bool) for x in operands):
        raise Untaken(f"{op} of a truth value")
    return w.elementwise(op, *values)
