"""Tensors that a kernel reads or writes by address: pointers, stride arguments, the expressions of places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from wsopt.emit.names import Names
from wsopt.tensors.views import FULL, Output, Role, Source, View

T = TypeVar("T", Source, Output)

FARTHEST = 2**31 - 1
"""Elements that an offset of 32 bits reaches; a stride, which is an argument of 32 bits, is no more either."""


@dataclass(frozen=True, slots=True)
class ByAddress(Generic[T]):
    """A source that threads load, or an output of one value a row that they store; `name` begins its arguments."""

    of: T
    name: str

    @property
    def pointer(self) -> str:
        """The kernel's argument for its address."""
        return f"{self.name}_ptr"

    @property
    def strides(self) -> tuple[tuple[Role, str], ...]:
        """The strides that are arguments of the kernel, by axis; the one that is missing is one. Rows that lie one
        behind the other need none.
        """
        if self.of.view.flat:
            return ()
        view, near = self.of.view, contiguous_place(self.of.view)
        return tuple(
            (role, f"{self.name}_{role}_stride") for place, role in enumerate(view.roles) if place != near
        )

    @property
    def arguments(self) -> tuple[str, ...]:
        """The kernel's arguments for it."""
        return (self.pointer, *(name for _, name in self.strides))

    @property
    def counted_wide(self) -> frozenset[Role]:
        """The axes along which places are of 64 bits: a tile's rows and columns, and where another tensor chooses."""
        of, chosen = self.of, self.of.view.chosen
        if of.has_columns if isinstance(of, Output) else of.spans == FULL:
            return FULL
        return frozenset({Role.ROW, chosen.role}) if chosen else frozenset()

    @property
    def far(self) -> frozenset[Role]:
        """The other axes along which the graph's own extents reach farther than 32 bits. Their strides are widened;
        each axis' offset is added to the pointer by itself.
        """
        view: View = self.of.view
        reach = {
            role: (extent - 1 + view.first.get(role, 0)) * stride
            for role, extent, stride in zip(view.roles, view.extents, view.strides, strict=True)
        }
        return frozenset(r for r, _ in self.strides if reach[r] > FARTHEST) - self.counted_wide

    def at(self, index: Mapping[Role, str]) -> str:
        """The addresses of the elements at these places along the axes."""
        view, far = self.of.view, self.far
        known = {role: f"gl.cast({name}, gl.int64)" if role in far else name for role, name in self.strides}
        places = {
            role: f"({at} + {view.first[role]})" if role in view.first else at for role, at in index.items()
        }
        terms: list[str] = [
            f"{places[role]} * {known[role]}" if role in known else places[role] for role in view.roles
        ]
        begin: list[str] = [str(view.offset)] if view.offset else []
        return " + ".join([self.pointer, *terms, *begin])


def places_name(names: Names, view: View) -> str:
    """The argument that says how many places a tensor has of which another one chooses, and that threads read."""
    return names(f"places:{view.tensor}", f"{view.tensor}_places")


def contiguous_place(view: View) -> int | None:
    """Of a tensor that is read or written by address, the axis whose neighbours lie next to each other.

    Its stride is no argument of the kernel, and has to be one at every call. Others may have a stride of one as well
    beside an axis of one element, but have another where that has more.
    """
    return next((place for place in reversed(range(len(view.strides))) if view.strides[place] == 1), None)
