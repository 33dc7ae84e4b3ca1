"""Axes of a graph that slices of inputs have, at other extents: what a slice leaves out of its tensor stays as long.

A kernel's launcher takes a slice for all of the tensor but so many elements. So the simulation can run it with
shorter and longer tensors, where rows and what streams end elsewhere in a tile.
"""

from __future__ import annotations

from collections.abc import Mapping

from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.kinds import Kind
from wsopt.tensors.views import Role


def moved_axes(axes: Axes) -> frozenset[Dim]:
    """The rows and the streamed axis of a loop with values, if slices of whole dimensions of inputs have them.

    All that reads such a dimension has a slice of it along the same axis. An output along the axis has its extent
    from a tensor of which no slice is taken.
    """
    if axes.kind is not Kind.CHAIN or not axes.slices:
        return frozenset()
    taken = {axes.same[whole]: (axes.leaves(axis), start) for whole, (axis, start) in axes.slices.items()}
    read: dict[tuple[str, int], set[tuple[Dim, ...]]] = {}
    free, plain = set[Dim](), set[Dim]()
    for use, path in axes.paths.items():
        end = axes.instance(use, len(path) - 1)
        for dim in range(len(axes.shapes[end])):
            own = axes.atoms(end, dim)
            sliced, start = taken.get(own[0], (own, 0)) if len(own) == 1 else (own, 0)
            read.setdefault((path[-1], dim), set()).add(sliced)
            if sliced is own:
                free.update(own)
            elif len(sliced) == 1 and 0 <= start <= axes.extents[own[0]] - axes.extents[sliced[0]]:
                plain.add(own[0])
    stored = {atom for name in axes.graph.outputs for atom in axes.all_atoms(name)}
    mixed = {atom for together in read.values() if len(together) > 1 for own in together for atom in own}
    fixed = {atom for whole, (own, _) in taken.items() if whole not in plain for atom in own}
    found = {own[0] for own, _ in taken.values() if axes.roles.get(own[0]) in (Role.ROW, Role.STREAM)}
    return frozenset(found - mixed - fixed - (stored - free))


def dimensions_moved(axes: Axes, extents: Mapping[Dim, int]) -> dict[Dim, int]:
    """The new extents of inputs' dimensions of which slices are taken along axes with new extents."""
    able, found = moved_axes(axes), dict[Dim, int]()
    for whole, (axis, _) in axes.slices.items():
        own, dim = axes.leaves(axis)[0], axes.same[whole]
        if own in able:
            found[dim] = axes.extents[dim] + extents.get(own, axes.extents[own]) - axes.extents[own]
    return found
