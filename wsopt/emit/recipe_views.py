"""How a tensor of the graph is seen along the kernel's axes: extents, strides, and what has to hold for that."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from wsopt.emit.addresses import contiguous_place
from wsopt.emit.integers import Address, Extent, IfOne, Integer, Pitch, floor_divide, multiply
from wsopt.emit.recipe import Check, Message, Relation
from wsopt.frontend.types import View

ALIGNMENT = 16
"""Bytes that addresses and strides of a tensor map are multiples of (CUDA driver API, cuTensorMapEncodeTiled)."""


def axis_extents(view: View, tensor: str) -> tuple[Integer, ...]:
    """Elements of `tensor` along each axis of its view."""
    return tuple(_extent(tensor, group, _part(view, place)) for place, group in enumerate(view.origin))


def axis_strides(view: View, tensor: str) -> tuple[Integer, ...]:
    """Elements of `tensor` between neighbours along each axis of its view."""
    return tuple(
        multiply(Pitch(tensor, group[-1]), _part(view, place)[1]) for place, group in enumerate(view.origin)
    )


def map_strides(view: View, tensor: str) -> tuple[Integer, ...]:
    """The same for a tensor map: along one element, where a stride may be anything, one that TMA takes."""
    extents, strides = axis_extents(view, tensor), axis_strides(view, tensor)
    least = [ALIGNMENT] * (len(strides) - 1) + [1]
    return tuple(IfOne(*each) for each in zip(extents, least, strides, strict=True))


def view_checks(view: View, tensor: str, *, copied: bool) -> Iterator[Check]:
    """What has to hold for a tensor that is seen so; `copied` for one that TMA moves."""
    yield _elements(tensor, view.rank)
    merged = {dim for group in view.origin for dim in group}
    yield from (_alone(tensor, dim) for dim in range(view.rank) if dim not in merged)
    for place, group in enumerate(view.origin):
        yield from _merged(tensor, group)
        yield from _split(tensor, group, _part(view, place))
    if copied:
        yield from _copied(view, tensor)
    else:
        yield from _near(view, tensor)


def aligned(tensor: str) -> Check:
    """The tensor starts where the kernel was told that it does."""
    message = (f"tensor {tensor} has to start at a multiple of {ALIGNMENT} bytes",)
    return Check(Address(tensor), Relation.MULTIPLE, ALIGNMENT, message)


def _part(view: View, place: int) -> tuple[int, int]:
    return view.parts[place] if view.parts else (0, 1)


def _extent(tensor: str, group: tuple[int, ...], part: tuple[int, int]) -> Integer:
    take, step = part
    whole = floor_divide(multiply(*(Extent(tensor, dim) for dim in group)), step)
    return multiply(floor_divide(whole, _outer(tensor, group, step)), take) if take else whole


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
        yield Check(IfOne(Extent(tensor, outer), apart, Pitch(tensor, outer)), Relation.EQUAL, apart, message)


def _split(tensor: str, group: tuple[int, ...], part: tuple[int, int]) -> Iterator[Check]:
    take, step = part
    if step > 1:
        message = (f"tensor {tensor}: dimension {group[-1]} has to be a multiple of {step}",)
        yield Check(Extent(tensor, group[-1]), Relation.MULTIPLE, step, message)
    if take:
        message = (f"tensor {tensor}: dimension {group[0]} does not split into parts of {take}",)
        yield Check(_outer(tensor, group, step), Relation.MULTIPLE, take, message)


def _near(view: View, tensor: str) -> Iterator[Check]:
    """The axis whose stride the kernel is not told."""
    place = contiguous_place(view)
    if place is not None:
        apart = IfOne(axis_extents(view, tensor)[place], 1, axis_strides(view, tensor)[place])
        message = (f"tensor {tensor}: dimension {view.origin[place][-1]} has to be contiguous",)
        yield Check(apart, Relation.EQUAL, 1, message)


def _copied(view: View, tensor: str) -> Iterator[Check]:
    *outer, last = map_strides(view, tensor)
    message = (f"tensor {tensor}: dimension {view.origin[-1][-1]} has to be contiguous",)
    yield Check(last, Relation.EQUAL, 1, message)
    for stride in outer:
        message = (f"tensor {tensor}: strides have to be multiples of {ALIGNMENT} bytes",)
        yield Check(multiply(stride, view.dtype.bits // 8), Relation.MULTIPLE, ALIGNMENT, message)
    yield aligned(tensor)
