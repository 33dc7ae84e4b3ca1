"""Merging axes that always lie next to each other in memory, and ordering dimensions as memory has them.

A batch of products with one weight matrix is one product with more rows: wherever the batch axis and the
row axis occur, they occur together and contiguously.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wsopt.errors import LoweringError
from wsopt.graph.types import DType
from wsopt.tile.axes import Dim
from wsopt.tile.types import Role, View


@dataclass(frozen=True, slots=True)
class RawView:
    """A tensor's dimensions by axis, before axes are merged. Strides are in elements."""

    tensor: str
    dtype: DType
    constant: bool
    axes: tuple[Dim, ...]
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    origin: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Dim:
    """One dimension of a view: possibly several of the tensor's, merged."""

    axis: Dim
    extent: int
    stride: int
    origin: tuple[int, ...]


def _dims(raw: RawView, kept: Mapping[Dim, Role]) -> tuple[_Dim, ...]:
    """The dimensions that carry an axis. Those of extent one are broadcast, unless TMA has to see them."""
    dims = zip(raw.axes, raw.extents, raw.strides, raw.origin, strict=True)
    return tuple(
        _Dim(axis, extent, stride, (origin,))
        for axis, extent, stride, origin in dims
        if axis in kept and (extent > 1 or kept[axis] is not Role.BATCH)
    )


def _find(dims: tuple[_Dim, ...], axis: Dim) -> _Dim | None:
    return next((dim for dim in dims if dim.axis == axis), None)


def _mergeable(views: Sequence[tuple[_Dim, ...]], outer: Dim, inner: Dim) -> bool:
    for dims in views:
        first, second = _find(dims, outer), _find(dims, inner)
        if (first is None) != (second is None):
            return False
        if first and second and first.stride != second.extent * second.stride:
            return False
    return True


def _merged(dims: tuple[_Dim, ...], outer: Dim, inner: Dim) -> tuple[_Dim, ...]:
    first, second = _find(dims, outer), _find(dims, inner)
    if first is None or second is None:
        return dims
    joined = _Dim(inner, first.extent * second.extent, second.stride, first.origin + second.origin)
    return tuple(joined if dim is second else dim for dim in dims if dim is not first)


def _view(raw: RawView, dims: tuple[_Dim, ...], roles: Mapping[Dim, Role]) -> View:
    """Dimensions as TMA wants them: the contiguous one last; the batch first, wherever it lies in memory."""
    ordered = sorted(dims, key=lambda dim: (roles[dim.axis] is not Role.BATCH, -dim.stride))
    return View(
        tensor=raw.tensor,
        dtype=raw.dtype,
        roles=tuple(roles[dim.axis] for dim in ordered),
        extents=tuple(dim.extent for dim in ordered),
        strides=tuple(dim.stride for dim in ordered),
        origin=tuple(dim.origin for dim in ordered),
        rank=len(raw.extents),
        constant=raw.constant,
    )


def merge_views(
    raws: Sequence[RawView],
    roles: Mapping[Dim, Role],
    batches: Sequence[Dim],
    extents: Mapping[Dim, int],
    counted: frozenset[Dim] = frozenset(),
) -> tuple[list[View], tuple[tuple[Role, int], ...]]:
    """Merge batch axes into each other and into the rows where memory allows it.

    Axes that are `counted` stay as they are, for an index along a merged one would be another. Returns the
    views, in the order given, and the extent of every role. LoweringError if more than one batch axis is
    left: a tile has one.
    """
    views = [_dims(raw, roles) for raw in raws]
    sizes = dict(extents)
    row = next(axis for axis, role in roles.items() if role is Role.ROW)
    left = list(batches)
    inner: Dim = row
    for outer in reversed(batches):
        if not counted & {outer, inner} and _mergeable(views, outer, inner):
            views = [_merged(dims, outer, inner) for dims in views]
            sizes[inner] *= sizes[outer]
            left.remove(outer)
        else:
            inner = outer
    if len(left) > 1:
        raise LoweringError(
            f"the products have {len(left)} batch axes that do not lie contiguously in every tensor; "
            "a kernel takes one"
        )
    found = {
        roles[axis]: sizes[axis] for axis in roles if axis in sizes and (axis not in batches or axis in left)
    }
    order = tuple((role, found[role]) for role in Role if role in found)
    return [_view(raw, dims, roles) for raw, dims in zip(raws, views, strict=True)], order
