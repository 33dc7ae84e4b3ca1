"""Merging axes that always lie next to each other in memory, and ordering dimensions as memory has them.

A batch of products with one weight matrix is one product with more rows: wherever the batch axis and the
row axis occur, they occur together and contiguously.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes, Dim, RawDim, RawView
from wsopt.tensors.views import Role, View

_WHOLE = (0, 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of tensors along axes after merging: views by key, roles of the axes that are left, extents of roles."""

    views: dict[str, View]
    roles: dict[Dim, Role]
    extents: tuple[tuple[Role, int], ...]


def _find(dims: tuple[RawDim, ...], axis: Dim) -> RawDim | None:
    return next((dim for dim in dims if dim.axis == axis), None)


def _mergeable(
    views: Sequence[tuple[RawDim, ...]], outer: Dim, inner: Dim, singles: Sequence[Dim] = ()
) -> bool:
    """Whether two axes lie together in every tensor, at these extents and at others."""
    for dims in views:
        first, second = _find(dims, outer), _find(dims, inner)
        if (first is None) != (second is None):
            return False
        if first and second:
            others = [dim for dim in dims if dim not in (first, second) and dim.axis not in singles]
            if not _lie_together(first, second) or any(_is_between(first, dim, second) for dim in others):
                return False
    return True


def _is_between(first: RawDim, dim: RawDim, second: RawDim) -> bool:
    """Whether a dimension of one element would part two others if it had more."""
    apart = dim.extent == 1 and dim.stride == first.stride
    return apart and first.origin[-1] < dim.origin[0] < second.origin[0]


def _lie_together(first: RawDim, second: RawDim) -> bool:
    """Whether two dimensions are one with more elements; of two of the tensor's all between has to be in them."""
    if first.stride != second.extent * second.stride:
        return False
    return first.origin[-1] == second.origin[0] or (first.part[1] == 1 and second.part[0] == 0)


def _merged(dims: tuple[RawDim, ...], outer: Dim, inner: Dim) -> tuple[RawDim, ...]:
    first, second = _find(dims, outer), _find(dims, inner)
    if first is None or second is None:
        return dims
    joined = RawDim(inner, first.extent * second.extent, second.stride, *_join_origins(first, second))
    return tuple(joined if dim is second else dim for dim in dims if dim is not first)


def _join_origins(first: RawDim, second: RawDim) -> tuple[tuple[int, ...], tuple[int, int]]:
    """Origin and part of two dimensions that become one; two parts of one dimension grow together."""
    (take, _), (inner_take, step) = first.part, second.part
    if first.origin[-1] != second.origin[0]:
        return first.origin + second.origin, (take, step)
    return first.origin + second.origin[1:], (take * inner_take if len(first.origin) == 1 else take, step)


def _view(raw: RawView, dims: tuple[RawDim, ...], roles: Mapping[Dim, Role]) -> View:
    """Dimensions as TMA wants them: the contiguous one last; the batch first, wherever it lies in memory.

    What repeats the same elements, at a stride of zero, is not contiguous, and comes before what is.
    """
    outer = {Role.BATCH: 0, Role.GROUP: 1}
    ordered = sorted(dims, key=lambda dim: (outer.get(roles[dim.axis], 2), dim.stride > 0, -dim.stride))
    parts = tuple(dim.part for dim in ordered)
    return View(
        tensor=raw.tensor,
        dtype=raw.dtype,
        roles=tuple(roles[dim.axis] for dim in ordered),
        extents=tuple(dim.extent for dim in ordered),
        strides=tuple(dim.stride for dim in ordered),
        origin=tuple(dim.origin for dim in ordered),
        rank=raw.rank,
        constant=raw.constant,
        parts=parts if any(part != _WHOLE for part in parts) else (),
    )


def merge_views(axes: Axes, raws: Mapping[str, RawView], counted: Container[Dim]) -> Layout:
    """Merge batch axes into each other and into the rows where memory allows it.

    Axes that are `counted` stay as they are, for an index along a merged one would be another. Batch axes of one
    element that memory allows to be merged may have any extent at run time. Where values are reduced or feed
    products, a second batch axis may be left, which becomes the group. LoweringError where more are left.
    """
    roles, groups = axes.roles, not axes.kind.plain
    singles = [axis for axis in axes.singles if axis not in counted]

    def carries(dim: RawDim) -> bool:
        """Dimensions of extent one are broadcast, but for those that TMA has to see and those that are nowhere."""
        wide = dim.axis in roles and (dim.extent > 1 or roles[dim.axis] is not Role.BATCH)
        return wide or dim.axis in singles

    views = [raw.along(carries).dims for raw in raws.values()]
    sizes = dict(axes.extents)
    rows = Role.COLUMN if axes.exchanged else Role.ROW
    row = next(axis for axis, role in roles.items() if role is rows)
    left = list(axes.batches)
    inner: Dim = row
    for outer in reversed(axes.batches):
        if outer not in counted and inner not in counted and _mergeable(views, outer, inner, singles):
            views = [_merged(dims, outer, inner) for dims in views]
            sizes[inner] *= sizes[outer]
            left.remove(outer)
        else:
            inner = outer
    views = _with_singles(views, singles, [axis for axis in (*left, row) if axis not in counted])
    if len(left) > 1 + groups:
        raise LoweringError(
            f"the products have {len(left)} batch axes that do not lie contiguously in every tensor; "
            f"a kernel takes {'two' if groups else 'one'}: {remedies.ALIKE}"
        )
    roles = {axis: role for axis, role in roles.items() if axis not in axes.batches or axis in left}
    if len(left) > 1:
        roles[_group(left, views, roles)] = Role.GROUP
    found = {roles[axis]: sizes[axis] for axis in roles if axis in sizes}
    order = tuple((role, found[role]) for role in Role if role in found)
    pairs = zip(raws.items(), views, strict=True)
    return Layout({key: _view(raw, dims, roles) for (key, raw), dims in pairs}, roles, order)


def _with_singles(
    views: Sequence[tuple[RawDim, ...]], singles: Sequence[Dim], axes: Sequence[Dim]
) -> list[tuple[RawDim, ...]]:
    """The views with each axis of one element merged into one of `axes`, or left out where it cannot be."""
    found = list(views)
    for single in reversed(singles):
        inner = next((axis for axis in axes if _mergeable(found, single, axis)), None)
        if inner is None:
            found = [tuple(dim for dim in dims if dim.axis != single) for dims in found]
        else:
            found = [_merged(dims, single, inner) for dims in found]
    return found


def _group(left: Sequence[Dim], views: Sequence[tuple[RawDim, ...]], roles: Mapping[Dim, Role]) -> Dim:
    """Of two batch axes the one along which more streamed tensors are broadcast; the inner one of equals."""

    def missing(axis: Dim) -> int:
        streamed = [dims for dims in views if any(roles.get(dim.axis) is Role.STREAM for dim in dims)]
        return sum(_find(dims, axis) is None for dims in streamed)

    outer, inner = left
    return outer if missing(outer) > missing(inner) else inner
