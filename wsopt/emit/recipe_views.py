"""Views of the graph's tensors along the kernel's axes: extents, strides, and their conditions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from wsopt.emit.addresses import contiguous_place
from wsopt.emit.integers import Expression, Integer, extent_of, if_one, product, shape_of
from wsopt.emit.recipe import ALIGNMENT, Check, aligned
from wsopt.frontend.flat_rows import MOST_ELEMENTS
from wsopt.graph.types import DType
from wsopt.tensors.views import FRAGMENT, Output, Packing, Role, Share, View


def _axes(view: View) -> Iterator[tuple[tuple[int, ...], tuple[int, int]]]:
    """Each axis with the tensor's dimensions that were merged for it, none for an axis of one element that the tensor
    does not have, and the part of them that it is.
    """
    return zip(view.origin, view.parts or ((0, 1),) * len(view.origin), strict=True)


def element_shape(view: View) -> tuple[Integer, ...]:
    """Elements of a view's tensor along each of its dimensions: of four bits twice as many as bytes."""
    shape = shape_of(view.tensor, view.rank)
    return (*shape[:-1], shape[-1] * 2) if view.dtype is DType.I4 else shape


def axis_extents(view: View) -> tuple[Integer, ...]:
    """Elements of a view's tensor along each of its axes: of a slice as many fewer as it leaves out. Where merged
    dimensions are cut, the slice has one element of all but the last.
    """
    shape, left = element_shape(view), left_out(view)
    cutouts = view.cutouts or (None,) * len(view.roles)
    return tuple(
        shape[group[0]] + -left[role]
        if role in left
        else _extent([shape[dim] for dim in (group[-2:] if cut else group)], *part)
        for role, cut, (group, part) in zip(view.roles, cutouts, _axes(view), strict=True)
    )


def left_out(view: View) -> dict[Role, int]:
    """How many elements a slice leaves out of a tensor's dimension, by axis: fewer than none where zeros are around
    it. Only of rows and of what streams, and of whole dimensions: of others the launcher knows how many there are.
    """
    found = dict[Role, int]()
    for role, extent, cutout, (group, (_, step)) in zip(
        view.roles, view.extents, view.cutouts, _axes(view), strict=False
    ):
        known = cutout is None or not cutout[1] or (len(group), step) != (1, 1)
        if cutout and role in (Role.ROW, Role.STREAM) and not known:
            found[role] = cutout[1] - extent
    return found


def _extent(merged: list[Integer], take: int, step: int) -> Integer:
    """Elements along an axis that is a part of merged dimensions: `take` of the first, each `step`-th of the last."""
    if not take:
        return product(merged) // step
    return take * (product(merged[1:]) // step) if merged[1:] else take


def axis_strides(view: View) -> tuple[Integer, ...]:
    """Elements of a view's tensor between neighbours along each of its axes."""
    bytes_apart = 2 if view.dtype is DType.I4 else 1
    strides = (
        _stride(view.tensor, group[-1]) * (1 if group[-1] == view.rank - 1 else bytes_apart)
        if group
        else ALIGNMENT
        for group, _ in _axes(view)
    )
    return tuple(stride * step for stride, (_, (_, step)) in zip(strides, _axes(view), strict=True))


def _stride(tensor: str, dim: int) -> Expression:
    return Expression("stride", (tensor, dim))


def map_extents(view: View) -> tuple[Integer, ...]:
    """The extents of a tensor map: of a slice those of the tensor up to its end, whose beginning copies pass over; of
    a flat tensor one row of all elements.
    """
    if view.flat:
        return (1, product(axis_extents(view)))
    *outer, last = (_to_the_end(view, place, extent) for place, extent in enumerate(axis_extents(view)))
    if view.step > 1:
        return (*outer, last * view.step)
    return (*outer, (last + -1) * view.apart + 1 if view.apart > 1 else last)


def _to_the_end(view: View, place: int, extent: Integer) -> Integer:
    """Elements along an axis, whose extent is given, up to the end of a slice of it."""
    cutout = view.cutouts[place] if view.cutouts else None
    if cutout is None:
        return extent
    _, whole, end = cutout
    if view.roles[place] not in left_out(view):
        return end
    return element_shape(view)[view.origin[place][0]] + (end - whole)


def map_strides(view: View) -> tuple[Integer, ...]:
    """The strides of a tensor map: along one element, where the tensor's may be anything, one that TMA takes."""
    if view.flat:
        return (ALIGNMENT, 1)
    outer = zip(axis_extents(view)[:-1], axis_strides(view)[:-1], strict=True)
    return (*(if_one(extent, ALIGNMENT, stride) for extent, stride in outer), 1)


def output_extents(output: Output) -> tuple[Integer, ...]:
    """Every extent of an output as an expression of the inputs' extents at run time."""
    return tuple(map(_output_extent, output.shape))


def _output_extent(dim: tuple[str, int] | tuple[Share | int, ...] | int) -> Integer:
    match dim:
        case int():
            return dim
        case (str(tensor), int(place)):
            return extent_of(tensor, place)
        case _:
            shares = (one for one in dim if not isinstance(one, str))
            return product(
                x if isinstance(x, int) else extent_of(x.tensor, x.dim) // x.divisor for x in shares
            )


def view_checks(view: View, *, whole: bool, aligned: bool) -> Iterator[Check]:
    """Conditions of a tensor's view; `whole` for one whose rows TMA moves, or threads in pairs, and `aligned` where
    TMA does or the compiler is told of strides. Rows that threads move 16 bytes at a time begin as those do.
    """
    yield from _dimension_checks(view)
    for (group, part), cutout in zip(_axes(view), view.cutouts or (None,) * len(view.roles), strict=True):
        if cutout is None:
            yield from _merged(view, group, *part)
        else:
            yield from _cut_out(view, group, part[1], cutout)
    yield from _contiguous(view, len(view.origin) - 1 if whole else contiguous_place(view))
    if view.flat:
        yield from _flat_checks(view)
    if aligned or (view.by_address and (view.is_aligned or view.flat) and view.column_each == 1):
        yield from _aligned(view)
    yield from _stream_checks(view)


def _dimension_checks(view: View) -> Iterator[Check]:
    """The tensor has elements, and as many as are expected along each dimension that is no axis of the kernel's."""
    tensor, shape = f"tensor {view.tensor}", shape_of(view.tensor, view.rank)
    if shape:
        yield Check(product(shape), "at_least", 1, (f"{tensor} has no elements: its shape is ", shape))
    merged = {dim for group in view.origin for dim in group}
    alone = {dim: extent for dim, extent, _ in view.single}
    for dim in sorted({*range(view.rank)} - merged):
        count = alone.get(dim, 1)
        expected = (f"{tensor}: dimension {dim} has ", shape[dim], f" elements, expected {count}")
        yield Check(shape[dim], "equal", count, expected)
    for dim, _, known in view.single:
        spaced = (f"{tensor}: dimension {dim} has to have its elements {known} apart",)
        yield Check(_stride(view.tensor, dim), "equal", known, spaced)


def _contiguous(view: View, near: int | None) -> Iterator[Check]:
    """Elements lie as far apart as they did along the axis `near`, if there is one: neither the kernel nor a tensor
    map is told its stride.
    """
    if near is not None:
        step = max(view.apart, view.step)
        apart = if_one(axis_extents(view)[near], step, axis_strides(view)[near])
        told = f"tensor {view.tensor}: dimension {view.origin[near][-1]} has to be contiguous"
        yield Check(apart, "equal", step, (told,))


def _flat_checks(view: View) -> Iterator[Check]:
    """Rows lie one behind the other, and have no more elements than coordinates of TMA reach."""
    (rows, columns), (apart, _) = axis_extents(view), axis_strides(view)
    behind = (f"tensor {view.tensor}: rows have to lie one behind the other",)
    yield Check(if_one(rows, columns, apart), "equal", columns, behind)
    told = (
        f"tensor {view.tensor} has 2^31 elements or more: this schedule copies from one row of all of them",
    )
    yield Check(rows * columns // MOST_ELEMENTS, "equal", 0, told)


def _aligned(view: View) -> Iterator[Check]:
    """The tensor's address and its strides are multiples of as many bytes as TMA takes."""
    for stride in map_strides(view)[:-1]:
        multiple = f"tensor {view.tensor}: strides have to be multiples of {ALIGNMENT} bytes"
        nbytes = stride // 2 if view.dtype is DType.I4 else stride * (view.dtype.bits // 8)
        yield Check(nbytes, "multiple_of", ALIGNMENT, (multiple,))
    yield aligned(view.tensor)


def _stream_checks(view: View) -> Iterator[Check]:
    """Pages have the elements that they had, and rows of packed fragments whole ones."""
    tensor = f"tensor {view.tensor}"
    if view.page:
        own = axis_extents(view)[view.roles.index(Role.STREAM)]
        told = (f"{tensor} has pages of ", own, f" elements: this schedule reads {view.page}")
        yield Check(own, "equal", view.page, told)
    if view.packing is Packing.FRAGMENTS:
        along, whole = axis_extents(view)[view.roles.index(Role.STREAM)], FRAGMENT[view.dtype]
        message = (f"{tensor} has ", along, f" elements in a row: this schedule takes multiples of {whole}")
        yield Check(along, "multiple_of", whole, message)


def _cut_out(view: View, group: tuple[int, ...], step: int, cutout: tuple[int, int, int]) -> Iterator[Check]:
    """A dimension of which the kernel reads a slice has the elements that it had, and so have those before it where
    the slice has one element of them. Of a part of a dimension another part's conditions tell how many there are.
    """
    first, whole, last = cutout
    wanted = {group[-1:]: whole} if whole else {}
    if len(group) > 1:
        wanted = {group[-1:]: (last - first) * step}
        if whole:
            wanted[group[:-1]] = whole // ((last - first) * step)
        yield from _merged(view, group, 0, 1)
    for dims, count in wanted.items():
        extent = product(shape_of(view.tensor, view.rank)[dim] for dim in dims)
        have = "dimensions {} have " if len(dims) > 1 else "dimension {} has "
        told = (
            f"tensor {view.tensor}: {have.format(' and '.join(map(str, dims)))}",
            extent,
            f" elements: a slice of {count} is read",
        )
        yield Check(extent, "equal", count, told)


def _merged(view: View, group: tuple[int, ...], take: int, step: int) -> Iterator[Check]:
    """Conditions of dimensions that were merged for an axis, which may be a part of them."""
    tensor, shape = f"tensor {view.tensor}", shape_of(view.tensor, view.rank)
    for outer, inner in pairwise(group):
        apart = shape[inner] * _stride(view.tensor, inner)
        told = f"{tensor}: dimensions {outer} and {inner} do not lie contiguously"
        yield Check(if_one(shape[outer], apart, _stride(view.tensor, outer)), "equal", apart, (told,))
    if step > 1:
        told = f"{tensor}: dimension {group[-1]} has to be a multiple of {step}"
        yield Check(shape[group[-1]], "multiple_of", step, (told,))
    if take:
        told = f"{tensor}: dimension {group[0]} does not split into parts of {take}"
        yield Check(shape[group[0]] // (step if len(group) == 1 else 1), "multiple_of", take, (told,))
