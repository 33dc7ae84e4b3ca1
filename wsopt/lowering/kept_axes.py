"""Axes of a graph whose extents a kernel knows, and which stay as they are in the simulation.

Of a slice of rows, or of what streams, a launcher knows how much of the tensor it leaves out. So the simulation can
run a kernel with shorter and longer tensors, where a slice ends elsewhere in a tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.kinds import Kind
from wsopt.tensors.views import Role


def kept_axes(axes: Axes) -> set[Dim]:
    """Axes that lie inside another one in a dimension of an input or an output, slices, and axes along which the
    graph counts and that no input has: a kernel knows their extent.
    """
    ends = [axes.instance(use, len(path) - 1) for use, path in axes.paths.items()]
    inside = {
        atom
        for end in (*ends, *axes.graph.outputs)
        for dim in range(len(axes.shapes[end]))
        for atom in axes.atoms(end, dim)[1:]
    }
    joined = (part for parts in axes.joints.values() for part in parts)
    uses = (*axes.paths, *axes.graph.outputs)
    raws = [axes.raw_view(use) for use in uses]
    cut = {dim.axis for raw in raws for dim in raw.dims if dim.cutout or raw.alone & {*dim.origin}}
    seen = {atom for end in ends for atom in axes.all_atoms(end)}
    alone = {axis for axis in axes.roles if axis not in seen and axes.extents[axis] > 1}
    known = cut.union(alone, *(axes.leaves(axis) for axis, _ in (*axes.slices.values(), *joined)))
    return (known - moved_axes(axes)) | inside


def moved_axes(axes: Axes) -> frozenset[Dim]:
    """The rows and the streamed axis of a loop of products, with values or without, and of tiles of elements, if
    slices of whole dimensions of inputs have them. Around those of elements zeros may be.

    All that reads such a dimension has a slice of it along the same axis. An output along the axis has its extent
    from a tensor of which no slice is taken, or one that is as long.
    """
    if axes.kind not in (Kind.CHAIN, Kind.PRODUCTS, Kind.ELEMENTWISE) or not axes.slices:
        return frozenset()
    taken = _taken(axes)
    read: dict[tuple[str, int], set[tuple[Dim, ...]]] = {}
    free, plain = set[Dim](), set[Dim]()
    for use, path in axes.paths.items():
        end = axes.instance(use, len(path) - 1)
        for dim in range(len(axes.shapes[end])):
            own = axes.atoms(end, dim)
            sliced, start = _sliced(taken, own)
            read.setdefault((path[-1], dim), set()).add(sliced)
            if sliced == own:
                free.update(own)
            elif len(sliced) == 1:
                whole, extent = axes.extents[own[0]], axes.extents[sliced[0]]
                if axes.kind is Kind.ELEMENTWISE or 0 <= start <= whole - extent:
                    plain.update(_links(taken, own[0]))
                if axes.kind is Kind.ELEMENTWISE and whole == extent:
                    free.update(sliced)
    stored = {atom for name in axes.graph.outputs for atom in axes.all_atoms(name)}
    mixed = {atom for together in read.values() if len(together) > 1 for own in together for atom in own}
    fixed = {atom for whole, (own, _) in taken.items() if whole not in plain for atom in own}
    found = {own[0] for own, _ in taken.values() if axes.roles.get(own[0]) in (Role.ROW, Role.STREAM)}
    return frozenset(found - mixed - fixed - (stored - free))


_Taken = Mapping[Dim, tuple[tuple[Dim, ...], int]]
"""For an axis of which a slice is taken, the slice's axes and where it begins, which is before it with zeros."""


def _taken(axes: Axes) -> _Taken:
    return {axes.same[whole]: (axes.leaves(axis), start) for whole, (axis, start) in axes.slices.items()}


def _sliced(taken: _Taken, own: tuple[Dim, ...]) -> tuple[tuple[Dim, ...], int]:
    """What a kernel reads of a dimension, the axes of a slice of a slice, and where that begins."""
    begin = 0
    while len(own) == 1 and own[0] in taken:
        own, start = taken[own[0]]
        begin += start
    return own, begin


def _links(taken: _Taken, whole: Dim) -> Iterator[Dim]:
    """An axis of which a slice is taken, and those of the slices of which slices are taken again."""
    while whole in taken:
        yield whole
        (whole, *_), _ = taken[whole]


def dimensions_moved(axes: Axes, extents: Mapping[Dim, int]) -> dict[Dim, int]:
    """The new extents of inputs' dimensions of which slices are taken along axes with new extents."""
    able, found, taken = moved_axes(axes), dict[Dim, int](), _taken(axes)
    for dim in taken if able else ():
        (own, *_), _ = _sliced(taken, (dim,))
        if own in able:
            found[dim] = axes.extents[dim] + extents.get(own, axes.extents[own]) - axes.extents[own]
    return found


def batches_in_parts(axes: Axes, targets: Mapping[Role, int]) -> dict[Dim, int]:
    """The extents of batches that are one dimension of an input or an output with rows, or with columns: a launcher
    knows how long the inner ones are, and the outermost has what the target leaves.
    """
    ends, found = (axes.instance(use, len(path) - 1) for use, path in axes.paths.items()), dict[Dim, int]()
    for end in (*ends, *axes.graph.outputs):
        for dim in range(len(axes.shapes[end])):
            outer, *inner = axes.atoms(end, dim) or (None,)
            roles = {axes.roles.get(axis) for axis in (outer, *inner) if axis is not None}
            along = roles - {Role.BATCH} or {Role.ROW}
            if outer is None or not inner or along not in ({Role.ROW}, {Role.COLUMN}):
                continue
            kept = {axis: axes.extents[axis] for axis in inner}
            (target,) = (targets[role] for role in (Role.ROW, Role.COLUMN) if role in along)
            found |= {outer: min(axes.extents[outer], -(-target // math.prod(kept.values())))} | kept
    return found
