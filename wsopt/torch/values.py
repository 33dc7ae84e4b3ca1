"""Tensors as an FX graph sees them: dimensions made of atoms, so that views and broadcasts are not written.

A value's tensor holds the elements of those atoms that are not repeated, in row-major order; its shape may be
another. So `view`, `unsqueeze` and `expand` of a value are the same tensor with other dimensions, and cost no node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from wsopt.graph.types import row_major_strides
from wsopt.torch.sizes import shared
from wsopt.torch.untaken import Untaken as Untaken

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Atom:
    """A factor of a dimension's extent. The tensor has one element along it where it is `repeated`."""

    extent: int
    repeated: bool = False

    @property
    def held(self) -> int:
        """Elements that the tensor has along it."""
        return 1 if self.repeated else self.extent


Dim = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of our graph by name, or a number, and the atoms of each dimension that FX sees."""

    tensor: str | float
    dims: tuple[Dim, ...]

    @property
    def shape(self) -> Shape:
        """The shape that FX sees."""
        return tuple(math.prod(atom.extent for atom in dim) for dim in self.dims)

    @property
    def held(self) -> Shape:
        """The shape of the tensor, an axis for each atom."""
        return tuple(atom.held for dim in self.dims for atom in dim)

    @property
    def whole(self) -> bool:
        """Whether the tensor has every element that FX sees."""
        return not any(atom.repeated for dim in self.dims for atom in dim)


def plain_dims(shape: Sequence[int]) -> tuple[Dim, ...]:
    """Dimensions of one atom each."""
    return tuple((Atom(extent),) for extent in shape)


def repeated_dims(shape: Sequence[int]) -> tuple[Dim, ...]:
    """Dimensions of a value of which there is one element."""
    return tuple((Atom(extent, extent > 1),) for extent in shape)


def regrouped(value: Value, shape: Sequence[int], own: Shape) -> Value:
    """The value with other dimensions of the same elements; `own` is the shape of its tensor.

    Atoms are split where a new dimension ends, and joined where neither FX nor the tensor tells them apart. Raises
    Untaken where a repeated atom would have to be cut across.
    """
    atoms = [atom for dim in value.dims for atom in dim if atom.extent > 1]
    dims = [_taken(atoms, extent) for extent in reversed(shape)]
    if atoms:
        raise Untaken(f"a view of {list(value.shape)} as {list(shape)}")
    return replace(value, dims=_joined(tuple(reversed(dims)), own))


def _taken(atoms: list[Atom], extent: int) -> Dim:
    """Atoms of this extent in all, taken from the end; one that is too large is split."""
    found: list[Atom] = []
    while extent > 1:
        if not atoms:
            raise Untaken("a view that repeats elements")
        last = atoms.pop()
        part = shared(last.extent, extent)
        if part == 1 or part not in (last.extent, extent):
            raise Untaken("a view that cuts across dimensions")
        if part != last.extent:
            atoms.append(replace(last, extent=last.extent // part))
        found.append(replace(last, extent=part))
        extent //= part
    return tuple(reversed(found)) or (Atom(1),)


def _joined(dims: tuple[Dim, ...], own: Shape) -> tuple[Dim, ...]:
    """Dimensions whose neighbouring atoms are one, unless an axis of the tensor ends between them."""
    ends = _ends(own)
    found: list[Dim] = []
    behind = 1
    for dim in reversed(dims):
        atoms: list[Atom] = []
        for atom in reversed(dim):
            inner = atoms[-1] if atoms else None
            alike = inner is not None and inner.repeated == atom.repeated
            if alike and inner is not None and (atom.repeated or behind not in ends):
                atoms[-1] = replace(inner, extent=inner.extent * atom.extent)
            else:
                atoms.append(atom)
            behind *= atom.held
        found.append(tuple(reversed(atoms)))
    return tuple(reversed(found))


def _ends(extents: Sequence[int]) -> frozenset[int]:
    """For each axis but the outermost, the elements in it and in those inside of it."""
    ends, behind = set(), 1
    for extent in reversed(extents):
        behind *= extent
        ends.add(behind)
    return frozenset(ends)


def common_atoms(dims: Sequence[Dim], *, fine: bool = False) -> Shape:
    """Extents of atoms in which all of these dimensions, of one extent, can be told; as few as there can be, or if
    `fine` all that one of them has.

    Raises Untaken where there are none.
    """
    ends = [_ends([atom.extent for atom in dim]) for dim in dims]
    total = math.prod(atom.extent for atom in dims[0])
    needed = set[int]().union(*(_bounds_of_repeated(dim) for dim in dims))
    shared = frozenset[int].union(*ends) if fine else frozenset[int].intersection(*ends)
    chosen = sorted((shared | needed | {total}) - {1})
    found, behind = [], 1
    for end in chosen:
        if end % behind:
            raise Untaken("dimensions that are split in different ways")
        found.append(end // behind)
        behind = end
    return tuple(reversed(found)) or (1,)


def _bounds_of_repeated(dim: Dim) -> set[int]:
    """Where repeated atoms begin and end, counted in elements from the inside."""
    found, behind = set[int](), 1
    for atom in reversed(dim):
        if atom.repeated and len(dim) > 1:
            found |= {behind, behind * atom.extent}
        behind *= atom.extent
    return found


def split_as(dim: Dim, extents: Shape) -> Dim:
    """A dimension in atoms of these extents, which `common_atoms` has given."""
    found, behind, ends = [], 1, []
    for atom in reversed(dim):
        behind *= atom.extent
        ends.append((behind, atom.repeated))
    at = 1
    for extent in reversed(extents):
        at *= extent
        repeated = next((flag for end, flag in ends if end >= at), False)
        found.append(Atom(extent, repeated))
    return tuple(reversed(found))


def view_strides(shape: Shape, strides: Shape, wanted: Shape) -> Shape | None:
    """Strides of a tensor seen in another shape of as many elements; None if that is no view of it.

    Of an axis of one element the stride says nothing; it is then that of a dense tensor.
    """
    runs: list[tuple[int, int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent > 1 and runs and runs[-1][1] == extent * stride:
            runs[-1] = runs[-1][0] * extent, stride
        elif extent > 1:
            runs.append((extent, stride))
    found: list[int] = []
    for axis in reversed(range(len(wanted))):
        extent = wanted[axis]
        if extent == 1:
            found.append(row_major_strides(wanted)[axis])
            continue
        left, stride = runs.pop()
        if left % extent:
            return None
        found.append(stride)
        if left != extent:
            runs.append((left // extent, stride * extent))
    return tuple(reversed(found))
