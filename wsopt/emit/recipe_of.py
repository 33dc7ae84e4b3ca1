"""The launch recipe of a verified schedule, from the same plan that the kernel's text is written from."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.extents import output_extents
from wsopt.emit.integers import (
    Extent,
    Integer,
    Name,
    ceil_divide,
    floor_divide,
    maximum,
    minimum,
)
from wsopt.emit.launch_counts import counts, schedule_checks
from wsopt.emit.plan import KernelPlan, TensorRead
from wsopt.emit.recipe import (
    BLOCKS,
    LAST_ROW,
    ROW,
    Argument,
    Check,
    DealtOrder,
    Message,
    PointerArgument,
    Recipe,
    Relation,
    ScalarArgument,
    TableArgument,
    TensorMap,
    TensorSpec,
)
from wsopt.emit.recipe_views import aligned, axis_extents, axis_strides, map_strides, view_checks
from wsopt.emit.tensors import Box
from wsopt.frontend.types import Output, View
from wsopt.program.ranges import narrowing
from wsopt.program.tile_order import ROUNDS_TOGETHER, k_blocks_between
from wsopt.schedule.verified import VerifiedSchedule

_BOX_EXTENT = 256
"""Elements of a tensor map's box along one dimension at most (CUDA driver API, cuTensorMapEncodeTiled)."""


def launch_recipe(verified: VerifiedSchedule) -> Recipe:
    """All that a launch of the schedule's kernel needs, as expressions of its tensors."""
    plan = KernelPlan(verified)
    reads = plan.reads()
    names = (*_axes(reads), *counts(plan))
    return Recipe(
        name=plan.program.region.name,
        symbol="kernel",
        inputs=_inputs(plan),
        outputs=tuple(_output(output) for output in plan.program.region.outputs),
        tensor_checks=tuple(dict.fromkeys(_tensor_checks(plan))),
        names=names,
        checks=(
            *_extent_checks(reads, dict(names)),
            *schedule_checks(plan),
            *_output_checks(plan),
        ),
        arguments=_arguments(plan, reads),
        grid=Name(BLOCKS),
        order=_order(plan) if plan.walk() else None,
    )


# --- tensors --------------------------------------------------------------------------------------------


def _views(plan: KernelPlan) -> list[tuple[View, bool]]:
    """How every input is read, and whether TMA moves it."""
    views = [(box.view, True) for box in (*plan.moved(), *plan.inputs().values())]
    return views + [(vector.source.view, False) for vector in plan.vectors().values()]


def _inputs(plan: KernelPlan) -> tuple[TensorSpec, ...]:
    return tuple(dict.fromkeys(TensorSpec(v.tensor, v.dtype, v.rank) for v, _ in _views(plan)))


def _output(output: Output) -> TensorSpec:
    return TensorSpec(output.name, output.view.dtype, output.view.rank, output_extents(output))


def _tensor_checks(plan: KernelPlan) -> Iterator[Check]:
    for view, copied in _views(plan):
        yield from view_checks(view, view.tensor, copied=copied)
    boxes = plan.outputs()
    for output in plan.program.region.outputs:
        yield from view_checks(output.view, output.name, copied=output.name in boxes)
    # What is read and written by address is compiled for addresses that TMA could take as well.
    yield from (aligned(vector.source.view.tensor) for vector in plan.vectors().values())
    yield from (aligned(row.output.name) for row in plan.row_outputs())


# --- extents ---------------------------------------------------------------------------------


def _axes(reads: tuple[TensorRead, ...]) -> tuple[tuple[str, Integer], ...]:
    """Every axis with its extent, as the first tensor that has it says."""
    found: dict[str, Integer] = {}
    for read in reads:
        for name, extent in zip(read.extents, axis_extents(read.view, read.tensor), strict=True):
            found.setdefault(name, extent)
    return tuple(found.items())


# --- checks ---------------------------------------------------------------------------------------------


def _extent_checks(reads: tuple[TensorRead, ...], names: dict[str, Integer]) -> Iterator[Check]:
    """All inputs have the same extent along an axis; `names` says which of them gave it."""
    for read in reads:
        expected = tuple(Name(name) for name in read.extents)
        for check in _equal(read.tensor, axis_extents(read.view, read.tensor), expected):
            if isinstance(check.right, Name) and names[check.right.name] != check.left:
                yield check


def _output_checks(plan: KernelPlan) -> Iterator[Check]:
    """Outputs have the extents that the inputs give them."""
    for output in plan.program.region.outputs:
        given = tuple(Extent(output.name, dim) for dim in range(output.view.rank))
        yield from _equal(output.name, given, output_extents(output))


def _equal(tensor: str, given: tuple[Integer, ...], expected: tuple[Integer, ...]) -> Iterator[Check]:
    message: Message = (f"tensor {tensor} has extents ", given, ", expected ", expected)
    for one, other in zip(given, expected, strict=True):
        if one != other:
            yield Check(one, Relation.EQUAL, other, message)


# --- arguments ------------------------------------------------------------------------------------------


def _arguments(plan: KernelPlan, reads: tuple[TensorRead, ...]) -> tuple[Argument, ...]:
    """The kernel's arguments in the order of its signature."""
    found: dict[str, Argument] = {name: TableArgument(name) for name in _table(plan)}
    for read in reads:
        if read.box is not None:
            found[read.box.descriptor] = _tensor_map(read.box, read.tensor)
        else:
            found |= _by_address(f"{read.name}_ptr", read.tensor, read.view, read.strides)
    for output, box in plan.outputs().items():
        found[box.descriptor] = _tensor_map(box, output)
    for row in plan.row_outputs():
        places = tuple((row.output.view.roles.index(role), name) for role, name in row.strides)
        found |= _by_address(row.pointer, row.output.name, row.output.view, places)
    return tuple(found.get(name) or ScalarArgument(name, Name(name)) for name, _ in plan.signature())


def _table(plan: KernelPlan) -> tuple[str, ...]:
    return plan.walk()


def _by_address(
    pointer: str, tensor: str, view: View, strides: tuple[tuple[int, str], ...]
) -> dict[str, Argument]:
    steps = axis_strides(view, tensor)
    found: dict[str, Argument] = {pointer: PointerArgument(pointer, tensor)}
    return found | {name: ScalarArgument(name, steps[place]) for place, name in strides}


def _tensor_map(box: Box, tensor: str) -> TensorMap:
    extents, strides = axis_extents(box.view, tensor), map_strides(box.view, tensor)
    if box.fold:  # the last dimension in parts of so many elements
        extents = (*extents[:-1], floor_divide(extents[-1], box.fold), box.fold)
        strides = (*strides[:-1], box.fold, 1)
    return TensorMap(
        box.descriptor, tensor, box.view.dtype, extents, strides, box.shape, _copied_box(box), box.swizzle
    )


def _copied_box(box: Box) -> tuple[int, ...]:
    """What one instruction moves of a box: no more than a swizzle's bytes along the last dimension."""
    *outer, last = (min(extent, _BOX_EXTENT) for extent in box.shape)
    return (*outer, min(last, box.swizzle * 8 // box.bits) if box.swizzle else last)


# --- the order of tiles ---------------------------------------------------------------------------------


def _order(plan: KernelPlan) -> DealtOrder:
    bounds, k_blocks = narrowing(plan.program.bounds), ceil_divide(Name("stream_extent"), plan.s.depth)
    begin, end = k_blocks_between(
        bounds, Name(ROW), Name(LAST_ROW), 0, k_blocks, plan.s.depth, minimum, maximum
    )
    return DealtOrder(
        plan.s.tile_rows, Name("row_extent"), begin, end, plan.longest_last, ROUNDS_TOGETHER, Name("tiles"),
        Name(BLOCKS),
    )  # fmt: skip
