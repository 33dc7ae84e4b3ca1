"""Which atoms of values are one axis of an operation, so that few computed tensors are reshaped for it.

A kernel reads an input in any shape, and a view of one as well; what it computes itself it has in one alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import partial

from wsopt.frontend.kinds import VIEWS
from wsopt.graph.types import Node, TensorType
from wsopt.torch.values import Atom, Dim, Shape, Untaken, Value, common_atoms, split_as

Runs = Sequence[slice]
"""Atoms one behind the other that are one axis, for each axis."""


def shared_atoms(known: Sequence[tuple[Value, Dim]], nodes: Mapping[str, Node]) -> Shape:
    """Extents of atoms for dimensions of values: those for which fewer elements of computed tensors are reshaped,
    since an input may have any shape, results of arithmetic before views; and then the fewest atoms.
    """
    dims = [dim for _, dim in known]
    coarse = common_atoms(dims)
    try:
        fine = common_atoms(dims, fine=True)
    except Untaken:
        return coarse

    def reshaped(atoms: Shape) -> tuple[int, int]:
        split = [nodes.get(str(x.tensor)) for x, dim in known if split_as(dim, atoms) != dim]
        computed = [node for node in split if node is not None]
        return sum(node.type.size for node in computed), sum(node.op not in VIEWS for node in computed)

    return fine if reshaped(fine) < reshaped(coarse) else coarse


def axes_for(aligned: Sequence[Value], types: Mapping[str, TensorType], nodes: Mapping[str, Node]) -> Runs:
    """The atoms that are one axis of an elementwise operation, for values of the same atoms: each its own, or as an
    operand's tensor has them where fewer computed tensors are reshaped then.
    """
    atoms = [tuple(atom for dim in value.dims for atom in dim) for value in aligned]
    best: Runs = _apart(len(atoms[0]))
    computed = [one for one in aligned if str(one.tensor) in nodes]

    def reshaped(runs: Runs) -> int:
        return sum(not _lies_in(types[str(one.tensor)].shape, over(one.held, runs)) for one in computed)

    for one in computed:
        found = _runs_of(one.held, types[str(one.tensor)].shape)
        if found and all(map(partial(_are_alike, found), atoms)) and reshaped(found) < reshaped(best):
            best = found
    return best


def over(held: Shape, runs: Runs) -> Shape:
    """The extents of axes that each are a run of atoms."""
    return tuple(math.prod(held[run]) for run in runs)


def without_ones(shape: Shape, least: int) -> Shape:
    """A shape without extents of 1 in front of the `least` last axes."""
    first = next((axis for axis, extent in enumerate(shape) if extent > 1), len(shape))
    return shape[max(0, min(first, len(shape) - least)) :]


def merged_before(shape: Shape, perm: Sequence[int], wanted: Shape) -> tuple[Shape, tuple[int, ...]] | None:
    """Another shape of a tensor, and the order of its axes, that give what a reshape makes of the tensor in this
    shape with its axes in this order: a merge of axes that the tensor has beside each other. None if it is none.
    """
    runs = _runs_of(tuple(shape[axis] for axis in perm), wanted)
    if runs is None or len(runs) != len(wanted) or all(run.stop - run.start <= 1 for run in runs):
        return None
    groups = [perm[run] for run in runs]
    if any(behind - axis != 1 for group in groups for axis, behind in itertools.pairwise(group)):
        return None
    # New axes of one element may stand anywhere: they do in front.
    order = sorted(range(len(groups)), key=lambda place: (groups[place] or (-1,))[0])
    return tuple(wanted[place] for place in order), tuple(map(order.index, range(len(order))))


def _lies_in(own: Shape, shape: Shape) -> bool:
    """Whether a tensor has this shape, but for extents of 1 in front."""
    return without_ones(own, 0) == without_ones(shape, 0)


def _apart(count: int) -> list[slice]:
    """Runs of one atom each."""
    return [slice(at, at + 1) for at in range(count)]


def _runs_of(held: Shape, own: Shape) -> list[slice] | None:
    """The runs of atoms that are the axes of a tensor, an atom of one element with those behind it; None where an
    axis ends within an atom.
    """
    found, stop = list[slice](), len(held)
    for extent in reversed(without_ones(own, 0)):
        start, behind = stop, 1
        while start and behind != extent:
            start -= 1
            behind *= held[start]
        if behind != extent:
            return None
        found.append(slice(start, stop))
        stop = start
    return [*_apart(stop), *reversed(found)]


def _are_alike(runs: Runs, atoms: Sequence[Atom]) -> bool:
    """Whether the atoms of each run are repeated together or not at all, but for those of one element."""
    return all(len({atom.repeated for atom in atoms[run] if atom.extent > 1}) <= 1 for run in runs)
