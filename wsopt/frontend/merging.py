"""Merging of axes: those that lie next to each other in every tensor are one.

So a batch of products with one weight matrix is one product with more rows: wherever the batch axis and the row axis
occur, they occur together and contiguously.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes, Dim, RawDim, RawView
from wsopt.frontend.kinds import Kind
from wsopt.tensors.views import BATCHES, TRANSPOSED_BITS, Chosen, Role, View

_WHOLE = (0, 1)
_MERGED = {Kind.ROWS: (Role.COLUMN,), Kind.LONG_ROWS: (Role.COLUMN,)}
"""Roles whose axes have to be one, for kinds of graphs that keep no identity from their values."""
_BY_ADDRESS = (Kind.ELEMENTWISE, *_MERGED)
"""Kinds of graphs that read a tensor by address of which neighbours along the columns share an element."""
_CHOOSING = (Role.ROW, Role.GROUP, Role.HEAD, Role.BATCH)
"""The axes along which indices may vary, innermost first."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of tensors along axes after merging: views by key, roles of the axes that are left, extents of roles."""

    views: dict[str, View]
    roles: dict[Dim, Role]
    extents: tuple[tuple[Role, int], ...]


def find(dims: tuple[RawDim, ...], axis: Dim) -> RawDim | None:
    """The dimension of a view along an axis, if it has one."""
    return next((dim for dim in dims if dim.axis == axis), None)


def mergeable(
    views: Sequence[tuple[RawDim, ...]],
    outer: Dim,
    inner: Dim,
    singles: Sequence[Dim] = (),
    *,
    groups: bool = False,
) -> bool:
    """Whether two axes lie together in every tensor, at these extents and at others. With `groups` a tensor may vary
    along the outer one alone: neighbours along the merged axis then share its elements.

    Of two of a tensor's dimensions all between has to be in them: one of one element would part them if it had more.
    A row of one element that is none of a tensor's dimensions lies anywhere.
    """
    for dims in views:
        first, second = find(dims, outer), find(dims, inner)
        if groups and first and second is None:
            continue
        if (first is None) != (second is None):
            return False
        if first and second:
            if first.cutout or second.cutout:
                return False
            if not second.origin:
                continue
            neighbours = first.origin[-1] == second.origin[0] or (first.part[1] == 1 and second.part[0] == 0)
            apart = first.stride != second.extent * second.stride or not neighbours
            between = range(first.origin[-1] + 1, second.origin[0])
            ones = [dim for dim in dims if dim.extent == 1 and dim.axis not in singles]
            if apart or any(dim.stride == first.stride and dim.origin[0] in between for dim in ones):
                return False
    return True


def merged(dims: tuple[RawDim, ...], outer: Dim, inner: Dim, group: int = 0) -> tuple[RawDim, ...]:
    """The dimensions with those of two axes as one; two parts of one dimension grow together. A dimension along the
    outer one alone has an element for each `group` of the merged axis.
    """
    first, second = find(dims, outer), find(dims, inner)
    if group and first and second is None:
        alone = replace(first, axis=inner, each=first.each * group)
        return tuple(alone if dim is first else dim for dim in dims)
    if first is None or second is None:
        return dims
    if not second.origin:
        return tuple(replace(first, axis=inner) if dim is first else dim for dim in dims if dim is not second)
    (take, _), (inner_take, step), parts = first.part, second.part, first.origin[-1] == second.origin[0]
    joined = RawDim(
        inner,
        first.extent * second.extent,
        second.stride,
        first.origin + second.origin[parts:],
        (take * inner_take if parts and len(first.origin) == 1 else take, step),
        each=second.each,
    )
    return tuple(joined if dim is second else dim for dim in dims if dim is not first)


def _view(
    raw: RawView, dims: tuple[RawDim, ...], roles: Mapping[Dim, Role], *, by_address: bool = False
) -> View:
    """Dimensions as TMA wants them: the contiguous one last; the batch first, wherever it lies in memory.

    What repeats the same elements, at a stride of zero, is not contiguous, and comes before what is. Of a product's
    operand a dimension of one element comes before one with elements that lie together, along which it may lie: a
    column of `[k, 1]` lies along what is contracted. A tensor of which neighbours
    along the columns share an element may be read `by_address`.
    """
    outermost = {role: number for number, role in enumerate(BATCHES)} | {Role.SEGMENT: 0}
    multiplied = any(roles[dim.axis] is Role.STREAM for dim in dims)
    along = {*Role} if raw.dtype.bits == TRANSPOSED_BITS else {Role.STREAM}

    def place(dim: RawDim) -> tuple[int, bool, int, bool]:
        outer = outermost.get(roles[dim.axis], len(BATCHES))
        return outer, dim.stride > 0, -dim.stride, multiplied and dim.extent > 1 and roles[dim.axis] in along

    ordered = sorted(dims, key=place)
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
        cutouts=tuple(dim.cutout for dim in ordered) if any(dim.cutout for dim in ordered) else (),
        each=max((dim.each for dim in ordered if roles[dim.axis] is Role.STREAM), default=1),
        column_each=max((dim.each for dim in ordered if roles[dim.axis] is Role.COLUMN), default=1),
        zero=raw.zero,
        offset=raw.offset,
        single=raw.single,
        by_address=by_address and any(dim.each > 1 and roles[dim.axis] is Role.COLUMN for dim in ordered),
    )


def _check_apart(raw: RawView, dims: tuple[RawDim, ...]) -> None:
    """Refuse a tensor that has one axis of the kernel twice, as differences of all pairs of a row's sums have."""
    if len({dim.axis for dim in dims}) < len(dims):
        raise LoweringError(
            f"tensor {raw.tensor}: two of its axes are one, along which what is computed is read twice; compute that "
            "before, and make it an input"
        )


def merge_views(axes: Axes, raws: Mapping[str, RawView], counted: Collection[Dim]) -> Layout:
    """Merge batch axes into each other and into the rows where memory allows it, and an elementwise graph's columns.

    Axes that are `counted` stay as they are, for an index along a merged one would be another. Batch axes of one
    element that memory allows to be merged may have any extent at run time. A second and a third batch axis may be
    left, the group and the heads. LoweringError where more are left, and where a reshape made columns, or what is
    contracted, of axes that do not lie together.
    """
    singles = [axis for axis in axes.singles if axis not in counted]
    views = _carried(axes, raws, singles)
    found = _Merging(axes, raws, frozenset(counted), singles, axes.roles, dict(axes.extents), views)
    found.merge_whole_axes()
    if axes.kind is Kind.CHAIN:
        found.roles, found.views = _with_pages(axes, raws, found.views, found.sizes)
    left = found.merge_batches()
    found.roles = {
        axis: role for axis, role in found.roles.items() if axis not in axes.batches or axis in left
    }
    if len(left) > 1:
        found.tell_batches_apart(left)
    return found.layout()


def _carried(axes: Axes, raws: Mapping[str, RawView], singles: Collection[Dim]) -> list[tuple[RawDim, ...]]:
    """The dimensions of each tensor. Those of extent one are broadcast, but for those that TMA has to see and those
    that are nowhere.
    """

    def carries(dim: RawDim) -> bool:
        wide = dim.axis in axes.roles and (dim.extent > 1 or axes.roles[dim.axis] is not Role.BATCH)
        return wide or dim.axis in singles

    views = [raw.along(carries).dims for raw in raws.values()]
    for raw, dims in zip(raws.values(), views, strict=True):
        _check_apart(raw, dims)
    return views


@dataclass(slots=True)
class _Merging:
    """Axes while they are merged: their `roles` and their `sizes` in elements, and the dimensions of each tensor.

    `counted` axes, along which indices are known, and `singles`, of one element, are those of the graph.
    """

    axes: Axes
    raws: Mapping[str, RawView]
    counted: frozenset[Dim]
    singles: Sequence[Dim]
    roles: dict[Dim, Role]
    sizes: dict[Dim, int]
    views: list[tuple[RawDim, ...]]

    def merge_whole_axes(self) -> None:
        """Merge columns into one axis, and what is contracted into one, as kinds of graphs need it."""
        kind = self.axes.kind
        # Products of one loop may have columns each, but where nothing is reduced they have the same.
        for whole in _MERGED.get(kind, (Role.COLUMN, Role.STREAM) if kind.as_written else ()):
            own = [axis for axis, role in self.roles.items() if role is whole]
            for outer in reversed(own[:-1]):
                self._merge_whole(whole, outer, own[-1])
            self.roles = {axis: role for axis, role in self.roles.items() if axis not in own[:-1]}

    def _merge_whole(self, whole: Role, outer: Dim, inner: Dim) -> None:
        """Merge two axes of one role. Raises LoweringError where they do not lie together in every tensor."""
        kind = self.axes.kind
        # Elements alone were seen to lie together, and an index along them is put together from theirs.
        groups = kind in (Kind.FACTORED, *_BY_ADDRESS) or (whole is Role.STREAM and kind is Kind.COMPUTED)
        together = mergeable(self.views, outer, inner, self.singles, groups=groups)
        if kind is not Kind.ELEMENTWISE and ({outer, inner} & self.counted or not together):
            what = "axis that is reduced" if kind in _MERGED else f"{whole} axis of its products"
            raise LoweringError(
                f"graph {self.axes.graph.name}: a reshape splits or merges the {what}, whose "
                "parts do not lie together in every tensor; declare the inputs with the shape after it"
            )
        self.views = [merged(dims, outer, inner, self.sizes[inner] * groups) for dims in self.views]
        self.sizes[inner] *= self.sizes[outer]

    def merge_batches(self) -> list[Dim]:
        """Merge batch axes into each other and into the rows; those that are left. LoweringError for too many."""
        rows = Role.COLUMN if self.axes.exchanged else Role.ROW
        row = next(axis for axis, role in self.roles.items() if role is rows)
        left, inner = list(self.axes.batches), row
        for outer in reversed(self.axes.batches):
            free = outer not in self.counted and inner not in self.counted
            if free and mergeable(self.views, outer, inner, self.singles):
                self.views = [merged(dims, outer, inner) for dims in self.views]
                self.sizes[inner] *= self.sizes[outer]
                left.remove(outer)
            else:
                inner = outer
        into = [axis for axis in (*left, row) if axis not in self.counted]
        self.views = _with_singles(self.views, self.singles, into)
        if len(left) > len(BATCHES):
            raise LoweringError(
                f"the products have {len(left)} batch axes that do not lie contiguously in every tensor; "
                f"a kernel takes three: {remedies.ALIKE}"
            )
        return left

    def tell_batches_apart(self, left: Sequence[Dim]) -> None:
        """Make one of the batch axes that are left the group, and of three another one the heads."""
        kept = self._by_use()
        varied = [kept[use] + (kept[raw.chosen[1]] if raw.chosen else ()) for use, raw in self.raws.items()]
        group = _group(left, varied, self.roles)
        self.roles[group] = Role.GROUP
        # Indices are known along the others.
        _, *heads = sorted(
            (axis for axis in left if axis != group), key=lambda axis: axis not in self.counted
        )
        if self.counted.intersection(heads):
            raise LoweringError(
                f"graph {self.axes.graph.name}: indices are counted along two of its three batch axes, which do not "
                "lie contiguously in every tensor; make the indices along one of them an input"
            )
        self.roles |= dict.fromkeys(heads, Role.HEAD)

    def layout(self) -> Layout:
        """The views along the axes that are left, with what chooses places along them."""
        found = {role: self.sizes[axis] for axis, role in self.roles.items() if axis in self.sizes}
        kept, shared = self._by_use(), self.axes.kind in _BY_ADDRESS
        seen = {
            key: _view(raw, kept[key], _with_chosen(raw, kept, self.roles), by_address=shared)
            for key, raw in self.raws.items()
        }
        seen = {key: _chosen(self.raws[key], view, seen) for key, view in seen.items()}
        return Layout(seen, self.roles, tuple((role, found[role]) for role in Role if role in found))

    def _by_use(self) -> dict[str, tuple[RawDim, ...]]:
        return dict(zip(self.raws, self.views, strict=True))


def _with_pages(
    axes: Axes, raws: Mapping[str, RawView], views: list[tuple[RawDim, ...]], sizes: dict[Dim, int]
) -> tuple[dict[Dim, Role], list[tuple[RawDim, ...]]]:
    """Roles and views with one streamed axis, of the places in a table and the elements in a page; `sizes` gets its
    extent. Of it a tensor that lies in pages has those in a page, and a table an element for each page.

    Raises LoweringError where another tensor has both axes, and they do not lie together.
    """
    *outer, inner = axes.atoms_of(Role.STREAM)
    tables = {raw.chosen[1] for raw in raws.values() if raw.chosen}
    for axis in reversed(outer):
        whole = [
            dims
            for (use, raw), dims in zip(raws.items(), views, strict=True)
            if use not in tables and not (raw.chosen and find(dims, axis) is None)
        ]
        if not mergeable(whole, axis, inner):
            raise LoweringError(
                f"graph {axes.graph.name}: a tensor that lies in no pages has an axis of pages and one of a page's "
                "elements, which do not lie together: declare it with both as one"
            )
        groups = [sizes[inner] if use in tables else 0 for use in raws]
        views = [merged(dims, axis, inner, each) for dims, each in zip(views, groups, strict=True)]
        sizes[inner] *= sizes[axis]
    return {axis: role for axis, role in axes.roles.items() if axis not in outer}, views


def _with_chosen(
    raw: RawView, views: Mapping[str, tuple[RawDim, ...]], roles: Mapping[Dim, Role]
) -> Mapping[Dim, Role]:
    """The roles with that of an axis whose places another tensor chooses: the innermost axis that it varies along; of
    a product's operand, and of a row of which one element is chosen, an axis of pages.
    """
    if raw.chosen is None:
        return roles
    axis, use = raw.chosen
    along = {roles[dim.axis] for dim in views[use]}
    if Role.STREAM in roles.values() or roles.get(axis) is Role.COLUMN:
        return {**roles, axis: Role.PAGE}
    return {**roles, axis: next((role for role in _CHOOSING if role in along), Role.BATCH)}


def _chosen(raw: RawView, view: View, views: Mapping[str, View]) -> View:
    """A view with what chooses places along one of its axes, if anything does."""
    if raw.chosen is None:
        return view
    indices = views[raw.chosen[1]]
    if Role.PAGE in view.roles:
        elements = indices.each if Role.STREAM in indices.roles else 0
        # Along an axis that both have, each place is of its own element there.
        places = (n for role, n in zip(indices.roles, indices.extents, strict=True) if role not in view.roles)
        own = places if Role.STREAM not in indices.roles else indices.extents
        return replace(view, chosen=Chosen(Role.PAGE, raw.chosen[1], math.prod(own), elements))
    role = next((role for role in _CHOOSING if role in indices.roles), Role.BATCH)
    return replace(view, chosen=Chosen(role, raw.chosen[1], math.prod(indices.extents)))


def _with_singles(
    views: Sequence[tuple[RawDim, ...]], singles: Sequence[Dim], axes: Sequence[Dim]
) -> list[tuple[RawDim, ...]]:
    """The views with each axis of one element merged into one of `axes`, or left out where it cannot be."""
    found = list(views)
    for single in reversed(singles):
        inner = next((axis for axis in axes if mergeable(found, single, axis)), None)
        if inner is None:
            found = [tuple(dim for dim in dims if dim.axis != single) for dims in found]
        else:
            found = [merged(dims, single, inner) for dims in found]
    return found


def _group(left: Sequence[Dim], views: Sequence[tuple[RawDim, ...]], roles: Mapping[Dim, Role]) -> Dim:
    """Of batch axes the one along which most streamed tensors are broadcast; the innermost of equals."""
    streamed = [dims for dims in views if any(roles.get(dim.axis) is Role.STREAM for dim in dims)]
    return max(reversed(left), key=lambda axis: sum(find(dims, axis) is None for dims in streamed))
