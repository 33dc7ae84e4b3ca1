"""Views of the graph's tensors along the kernel's axes: extents, strides, and their conditions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from wsopt.emit.addresses import contiguous_place
from wsopt.emit.integers import Extent, Integer, Pitch, floor_divide, if_one, multiply
from wsopt.emit.recipe import ALIGNMENT, Check, Message, Relation, aligned
from wsopt.tensors.views import Output, Share, View


def axis_extents(view: View) -> tuple[Integer, ...]:
    """Elements of a view's tensor along each of its axes."""
    return tuple(_extent(view.tensor, group, _part(view, place)) for place, group in enumerate(view.origin))


def axis_strides(view: View) -> tuple[Integer, ...]:
    """Elements of a view's tensor between neighbours along each of its axes."""
    steps = (_part(view, place)[1] for place in range(len(view.origin)))
    return tuple(
        multiply(Pitch(view.tensor, group[-1]), step) for group, step in zip(view.origin, steps, strict=True)
    )


def map_strides(view: View) -> tuple[Integer, ...]:
    """The strides of a tensor map: along one element, where the tensor's may be anything, one that TMA takes."""
    outer = zip(axis_extents(view)[:-1], axis_strides(view)[:-1], strict=True)
    return (*(if_one(extent, ALIGNMENT, stride) for extent, stride in outer), 1)


def output_extents(output: Output) -> tuple[Integer, ...]:
    """Every extent of an output as an expression of the inputs' extents at run time."""
    return tuple(_output_extent(dim) for dim in output.shape)


def _output_extent(dim: tuple[str, int] | tuple[Share | int, ...] | int) -> Integer:
    match dim:
        case int():
            return dim
        case (str(tensor), int(place)):
            return Extent(tensor, place)
        case _:
            return multiply(*(_factor(one) for one in dim if not isinstance(one, str)))


def _factor(one: Share | int) -> Integer:
    return one if isinstance(one, int) else floor_divide(Extent(one.tensor, one.dim), one.divisor)


def view_checks(view: View, *, copied: bool) -> Iterator[Check]:
    """Conditions of a tensor's view; `copied` for one that TMA moves."""
    tensor = view.tensor
    if view.rank:
        yield _elements(tensor, view.rank)
    merged = {dim for group in view.origin for dim in group}
    yield from (_alone(tensor, dim) for dim in range(view.rank) if dim not in merged)
    for place, group in enumerate(view.origin):
        yield from _merged(tensor, group)
        yield from _split(tensor, group, _part(view, place))
    near = len(view.origin) - 1 if copied else contiguous_place(view)
    if near is not None:
        yield _near(view, near)
    if copied:
        yield from _copied(view)


def _part(view: View, place: int) -> tuple[int, int]:
    return view.parts[place] if view.parts else (0, 1)


def _extent(tensor: str, group: tuple[int, ...], part: tuple[int, int]) -> Integer:
    """Elements along an axis that is a part of merged dimensions: `take` of the first, each `step`-th of the last."""
    (take, step), inner = part, tuple(Extent(tensor, dim) for dim in group[1:])
    if not take:
        return floor_divide(multiply(Extent(tensor, group[0]), *inner), step)
    return multiply(take, floor_divide(multiply(*inner), step)) if inner else take


def _outer(tensor: str, group: tuple[int, ...], step: int) -> Integer:
    """Elements of an axis's first dimension."""
    return floor_divide(Extent(tensor, group[0]), step if len(group) == 1 else 1)


def _elements(tensor: str, rank: int) -> Check:
    shape = tuple(Extent(tensor, dim) for dim in range(rank))
    message: Message = (f"tensor {tensor} has no elements: its shape is ", shape)
    return Check(multiply(*shape), Relation.AT_LEAST, 1, message)


def _alone(tensor: str, dim: int) -> Check:
    extent = Extent(tensor, dim)
    message: Message = (f"tensor {tensor}: dimension {dim} has ", extent, " elements, expected 1")
    return Check(extent, Relation.EQUAL, 1, message)


def _merged(tensor: str, group: tuple[int, ...]) -> Iterator[Check]:
    for outer, inner in pairwise(group):
        apart = multiply(Extent(tensor, inner), Pitch(tensor, inner))
        message = (f"tensor {tensor}: dimensions {outer} and {inner} do not lie contiguously",)
        yield Check(
            if_one(Extent(tensor, outer), apart, Pitch(tensor, outer)), Relation.EQUAL, apart, message
        )


def _split(tensor: str, group: tuple[int, ...], part: tuple[int, int]) -> Iterator[Check]:
    take, step = part
    if step > 1:
        message = (f"tensor {tensor}: dimension {group[-1]} has to be a multiple of {step}",)
        yield Check(Extent(tensor, group[-1]), Relation.MULTIPLE, step, message)
    if take:
        message = (f"tensor {tensor}: dimension {group[0]} does not split into parts of {take}",)
        yield Check(_outer(tensor, group, step), Relation.MULTIPLE, take, message)


def _near(view: View, place: int) -> Check:
    """The axis whose stride neither the kernel nor a tensor map is told."""
    apart = if_one(axis_extents(view)[place], 1, axis_strides(view)[place])
    message = (f"tensor {view.tensor}: dimension {view.origin[place][-1]} has to be contiguous",)
    return Check(apart, Relation.EQUAL, 1, message)


def _copied(view: View) -> Iterator[Check]:
    for stride in map_strides(view)[:-1]:
        message = (f"tensor {view.tensor}: strides have to be multiples of {ALIGNMENT} bytes",)
        yield Check(multiply(stride, view.dtype.bits // 8), Relation.MULTIPLE, ALIGNMENT, message)
    yield aligned(view.tensor)
