"""Tensors that a kernel reads or writes by address: pointers, stride arguments, the expressions of places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wsopt.tile.types import Output, Role, Source, View

Strides = tuple[tuple[Role, str], ...]
"""The strides of a tensor that are arguments of the kernel; those that are missing are one."""


@dataclass(frozen=True, slots=True)
class VectorArgument:
    """A source that is loaded by address: its pointer and the strides that are arguments of the kernel."""

    source: Source
    pointer: str
    strides: Strides

    def at(self, index: Mapping[Role, str]) -> str:
        """The addresses of the elements at these places along the axes."""
        return _address(self.pointer, self.source.view, self.strides, index)


@dataclass(frozen=True, slots=True)
class RowArgument:
    """An output of one value a row: its pointer and the strides that are arguments of the kernel."""

    output: Output
    pointer: str
    strides: Strides

    def at(self, index: Mapping[Role, str]) -> str:
        """The addresses of the rows at these places along the axes."""
        return _address(self.pointer, self.output.view, self.strides, index)


def stride_arguments(view: View, name: str) -> Strides:
    """The strides that are passed for a tensor known as `name`."""
    pairs = zip(view.roles, view.strides, strict=True)
    return tuple((role, f"{name}_{role}_stride") for role, stride in pairs if stride != 1)


def _address(pointer: str, view: View, strides: Strides, index: Mapping[Role, str]) -> str:
    known = dict(strides)
    terms = [f"{index[role]} * {known[role]}" if role in known else index[role] for role in view.roles]
    return " + ".join([pointer, *terms])
