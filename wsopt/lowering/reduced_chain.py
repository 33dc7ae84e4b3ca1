"""Reduced extents of chains of products: few tiles of rows and K-blocks, or enough that every mask is at work.

Consumers look at K-blocks of their own, so the last tile of rows leaves one of them without any; and where queries
are as many as keys they stay so, since a mask means them both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.masks import HUGE
from wsopt.frontend.needed import end_is_masked, every_row_counts
from wsopt.frontend.region import find_region
from wsopt.graph.types import Graph
from wsopt.lowering.lower import bounds_of
from wsopt.lowering.reduced_graph import ALIGNMENT, at_extents, shared_axes
from wsopt.program.types import Structure
from wsopt.tensors.views import Bound, Role

_SHORTEST = 8
"""Rows, and elements of the streamed axis, of the shortest run: a part of one K-block."""

_FAR = 6144
"""Rows and elements of the streamed axis that are too many to be executed one by one: 2 seconds, and 144 MiB for each
step of the reference.
"""

_BATCHES = 2


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Rows and elements of the streamed axis, which may be more than the graph has if they are `longer`; the most
    elements of each batch axis.
    """

    rows: int
    stream: int
    longer: bool = False
    batches: int = _BATCHES


def chain_reduced(axes: Axes, s: Structure, k_iterations: int) -> Graph:
    """A chain of products at a few tiles of rows and `k_iterations` K-blocks."""
    return at_extents(axes, _extents(axes, _few(axes, s, k_iterations)))


def chain_reaching(axes: Axes, s: Structure, k_iterations: int) -> Graph | None:
    """The graph at extents at which every mask is at work; None where that is no further, or too far."""
    few, reach = _extents(axes, _few(axes, s, k_iterations)), _reach(axes, s)
    lengths = [(axis, role) for axis, role in axes.roles.items() if role in (Role.ROW, Role.STREAM)]
    if reach > _FAR or all(min(axes.extent(role), reach) <= few[axis] for axis, role in lengths):
        return None
    length = _ragged(reach + s.tile_rows + s.depth, s)
    return at_extents(axes, _extents(axes, _Lengths(length, length, batches=1)))


def chain_further(axes: Axes, s: Structure, k_iterations: int) -> Iterator[Graph]:
    """Graphs for lines not run: shorter than a K-block; a few tiles; as far as masks reach, and on until K-blocks
    lie to tiles as before; with a single row for one of the consumers; and with many rows for few K-blocks, and the
    reverse.

    Where a number may stand for minus infinity since every row keeps an element, no row is empty.
    """
    bounds, number = _masks(axes), _has_huge(axes.graph)
    for lengths in _further(axes, s, k_iterations):
        extents = _extents(axes, lengths)
        rows, stream = (_extent(axes, extents, role) for role in (Role.ROW, Role.STREAM))
        if not number or every_row_counts(bounds, rows, stream):
            yield at_extents(axes, extents)


def _further(axes: Axes, s: Structure, k_iterations: int) -> Iterator[_Lengths]:
    few, reach = _few(axes, s, k_iterations), _reach(axes, s)
    yield _Lengths(_SHORTEST, _SHORTEST)
    yield _Lengths(few.rows, few.stream, longer=True)
    far = _far(axes, s)
    if far > _FAR:
        return
    yield _Lengths(far, far, longer=True, batches=1)
    for own in range(0, s.tile_rows, s.rows):
        single = far // s.tile_rows * s.tile_rows + own + 1
        yield _Lengths(single, far + reach, longer=True, batches=1)
    yield _Lengths(far, _SHORTEST, longer=True, batches=1)
    yield _Lengths(_SHORTEST, far, longer=True, batches=1)


def chain_beyond(axes: Axes, s: Structure) -> Graph | None:
    """The graph as far as masks reach where that is too far to be executed whole; else None."""
    length = _far(axes, s)
    if length <= _FAR:
        return None
    return at_extents(axes, _extents(axes, _Lengths(length, length, longer=True, batches=1)))


def _far(axes: Axes, s: Structure) -> int:
    """As far as masks reach, and on until K-blocks lie to tiles as before."""
    return _ragged(_reach(axes, s) + s.tile_rows + math.lcm(s.tile_rows, s.depth), s)


def _has_huge(graph: Graph) -> bool:
    """Whether a number stands in the graph that may have been taken for minus infinity."""
    scalars = (value for node in graph.nodes for value in node.inputs if not isinstance(value, str))
    return any(HUGE <= abs(value) < math.inf for value in scalars)


def _extent(axes: Axes, extents: dict[Dim, int], role: Role) -> int:
    """The new extent of the axis of a role."""
    return next(extents[axis] for axis, known in axes.roles.items() if known is role)


def _ragged(least: int, s: Structure) -> int:
    """The least length that ends in the first consumer's rows of a tile, and inside of a K-block."""
    rest = -(-(s.rows // 2) // ALIGNMENT) * ALIGNMENT + ALIGNMENT // 2
    return max(0, math.ceil((least - rest) / s.tile_rows)) * s.tile_rows + rest


def _few(axes: Axes, s: Structure, k_iterations: int) -> _Lengths:
    """Two tiles of rows and a part of one, and `k_iterations` K-blocks, the last one ragged."""
    rows, k_blocks = _ragged(2 * s.tile_rows, s), (k_iterations - 1) * s.depth
    if axes.extent(Role.ROW) == axes.extent(Role.STREAM):
        rows = max(rows, _ragged(k_blocks + _SHORTEST, s))
        return _Lengths(rows, rows)
    return _Lengths(rows, k_blocks + (s.depth * 3 // 4 // ALIGNMENT * ALIGNMENT or _SHORTEST))


def _masks(axes: Axes) -> list[Bound]:
    """The bounds that masks put on K-blocks, the end of the streamed axis left out."""
    region = find_region(axes.graph)
    return [bound for bound in region.bounds if bound != bounds_of(region).end]


def _reach(axes: Axes, s: Structure) -> int:
    """Elements from which on every mask is at work in some K-block."""
    return max((abs(bound.constant) for bound in _masks(axes)), default=0) + s.depth


def _extents(axes: Axes, lengths: _Lengths) -> dict[Dim, int]:
    """The new extent of every axis; what a block holds whole stays.

    Where a mask ends every row before the streamed axis does it still does, so that the region's loop stays what it
    is. The end of the axis itself moves with it.
    """
    own = {role: axes.extent(role) for role in (Role.ROW, Role.STREAM)}
    new = {Role.ROW: lengths.rows, Role.STREAM: lengths.stream}
    if not lengths.longer:
        new = {role: min(own[role], extent) for role, extent in new.items()}
    bounds = _masks(axes)
    if end_is_masked(bounds, own[Role.ROW], own[Role.STREAM]):
        ends = [max(b.constant, b.row * (new[Role.ROW] - 1) + b.constant) + 1 for b in bounds if b.stream < 0]
        new[Role.STREAM] = max(new[Role.STREAM], min(ends))
    found = {axis: new.get(role, axes.extents[axis]) for axis, role in axes.roles.items()}
    found |= {
        axis: min(axes.extents[axis], lengths.batches)
        for axis, role in axes.roles.items()
        if role is Role.BATCH
    }
    return _whole(axes, found)


def _whole(axes: Axes, found: dict[Dim, int]) -> dict[Dim, int]:
    """The extents with those as they are that a kernel knows, and one for axes that are one dimension of an input."""
    kept = _split_off(axes)
    if kept & set(
        axes.batches
    ):  # many tiles already: of the other batches only the innermost is more than one
        found.update(dict.fromkeys([a for a in axes.batches if a not in kept][:-1], 1))
    found.update({a: axes.extents[a] for a in kept})
    for shared in shared_axes(axes):
        least = min(found.get(a, axes.extents[a]) for a in shared if a in kept or not kept & set(shared))
        found.update(dict.fromkeys(shared, least))
    return found


def _split_off(axes: Axes) -> set[Dim]:
    """Axes that lie inside another one in a dimension of an input or an output: a kernel knows their extent."""
    ends = [axes.instance(use, len(path) - 1) for use, path in axes.paths.items()]
    return {
        atom
        for end in (*ends, *axes.graph.outputs)
        for dim in range(len(axes.shapes[end]))
        for atom in axes.atoms(end, dim)[1:]
    }
