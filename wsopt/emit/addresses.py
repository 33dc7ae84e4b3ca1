"""Tensors that a kernel reads or writes by address: pointers, stride arguments, the expressions of places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wsopt.tensors.views import Output, Role, Source, View

Strides = tuple[tuple[Role, str], ...]
"""The strides of a tensor that are arguments of the kernel; the one that is missing is one."""


@dataclass(frozen=True, slots=True)
class VectorArgument:
    """A source that is loaded by address: what its arguments are named by, and the strides among them."""

    source: Source
    name: str
    strides: Strides

    @property
    def pointer(self) -> str:
        """The kernel's argument for its address."""
        return f"{self.name}_ptr"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The kernel's arguments for it."""
        return (self.pointer, *(name for _, name in self.strides))

    def at(self, index: Mapping[Role, str]) -> str:
        """The addresses of the elements at these places along the axes."""
        return _address(self.pointer, self.source.view, self.strides, index)


@dataclass(frozen=True, slots=True)
class RowArgument:
    """An output of one value a row: what its arguments are named by, and the strides among them."""

    output: Output
    name: str
    strides: Strides

    @property
    def pointer(self) -> str:
        """The kernel's argument for its address."""
        return f"{self.name}_ptr"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The kernel's arguments for it."""
        return (self.pointer, *(name for _, name in self.strides))

    def at(self, index: Mapping[Role, str]) -> str:
        """The addresses of the rows at these places along the axes."""
        return _address(self.pointer, self.output.view, self.strides, index)


def contiguous_place(view: View) -> int | None:
    """Of a tensor that is read or written by address, the axis whose neighbours lie next to each other.

    Its stride is no argument of the kernel, and has to be one at every call. Others may have a stride of one as well
    beside an axis of one element, but have another where that has more.
    """
    return next((place for place in reversed(range(len(view.strides))) if view.strides[place] == 1), None)


def stride_arguments(view: View, name: str) -> Strides:
    """The strides that are passed for a tensor known as `name`."""
    near = contiguous_place(view)
    return tuple((role, f"{name}_{role}_stride") for place, role in enumerate(view.roles) if place != near)


def _address(pointer: str, view: View, strides: Strides, index: Mapping[Role, str]) -> str:
    known = dict(strides)
    terms = [f"{index[role]} * {known[role]}" if role in known else index[role] for role in view.roles]
    return " + ".join([pointer, *terms])
