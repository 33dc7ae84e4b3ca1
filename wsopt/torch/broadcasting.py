"""Broadcasts of values: the same dimensions for all operands of an operation, made of the same atoms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from wsopt.graph.types import Node
from wsopt.torch.axes import shared_atoms
from wsopt.torch.values import Atom, Dim, Untaken, Value, split_as


def aligned(values: Sequence[Value], nodes: Mapping[str, Node]) -> tuple[list[Value], tuple[Dim, ...]]:
    """The values with as many dimensions of the same atoms, and the dimensions of what they broadcast to. Untaken for
    shapes that do not broadcast. `nodes` are those written so far, by name.
    """
    rank = max(len(value.dims) for value in values)
    padded = [((Atom(1),),) * (rank - len(value.dims)) + value.dims for value in values]
    columns: list[list[Dim]] = []
    for dims in zip(*padded, strict=True):
        extents = [math.prod(atom.extent for atom in dim) for dim in dims]
        most = max(extents)
        if any(extent not in (1, most) for extent in extents):
            raise Untaken("shapes that do not broadcast")
        told = [isinstance(x.tensor, str) and n == most for x, n in zip(values, extents, strict=True)]
        known = [(x, dim) for x, dim, is_told in zip(values, dims, told, strict=True) if is_told]
        atoms = shared_atoms(known, nodes) if known else (most,)
        columns.append(
            [
                split_as(dim, atoms) if is_told else tuple(Atom(n, n > 1) for n in atoms)
                for dim, is_told in zip(dims, told, strict=True)
            ]
        )
    found = [
        replace(value, dims=tuple(column[number] for column in columns))
        for number, value in enumerate(values)
    ]
    return found, tuple(map(_broadcast, columns))


def batch_of(value: Value, rank: int) -> Value:
    """An operand of a product with its leading dimensions alone, `rank` of them: ones where it has fewer."""
    own = value.dims[:-2]
    return replace(value, dims=(*(((Atom(1),),) * (rank - len(own))), *own))


def _broadcast(dims: Sequence[Dim]) -> Dim:
    """The dimension of what values of these dimensions, of the same atoms, broadcast to."""
    return tuple(
        Atom(atoms[0].extent, all(atom.held == 1 < atom.extent for atom in atoms))
        for atoms in zip(*dims, strict=True)
    )
