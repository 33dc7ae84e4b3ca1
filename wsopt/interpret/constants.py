"""The stand-in for `gl.constexpr`: numbers that are still numbers, everything else as it is."""

from __future__ import annotations

from typing import Any


class ConstInt(int):
    """An integer constant."""

    @property
    def value(self) -> int:
        """The plain integer."""
        return int(self)


class ConstFloat(float):
    """A float constant."""

    @property
    def value(self) -> float:
        """The plain float."""
        return float(self)


class ConstList(list[Any]):
    """A list or tuple constant."""

    @property
    def value(self) -> list[Any]:
        """The plain list."""
        return list(self)


class ConstText(str):
    """A string constant."""

    __slots__ = ()

    @property
    def value(self) -> str:
        """The plain string."""
        return str(self)


def constexpr(value: Any) -> Any:
    """Return a constant that can be used like `value` and has a `.value` of its own."""
    match value:
        case bool() | int():
            return ConstInt(value)
        case float():
            return ConstFloat(value)
        case str():
            return ConstText(value)
        case list() | tuple():
            return ConstList(value)
        case _:  # layouts and element types carry `.value` themselves
            return value
