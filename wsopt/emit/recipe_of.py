"""The launch recipe of a kernel, from the plan that its device functions are written from."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit import records
from wsopt.emit.addresses import ByAddress
from wsopt.emit.consumer import consumer_of
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
from wsopt.emit.plan import KernelPlan, plan_of
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
from wsopt.emit.recipe_views import axis_extents, axis_strides, map_strides, output_extents, view_checks
from wsopt.emit.tensors import Box
from wsopt.program.ranges import k_blocks_between, narrowing
from wsopt.program.tile_order import WAVES_TOGETHER
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.views import Output, Source, View

_BOX_EXTENT = 256
"""Elements of a tensor map's box along one dimension at most (CUDA driver API, cuTensorMapEncodeTiled)."""


def launch_recipe(verified: VerifiedSchedule) -> Recipe:
    """All that a launch of the schedule's kernel needs, as expressions of its tensors."""
    plan = plan_of(verified)
    return recipe_of(plan, consumer_of(plan).least)


def recipe_of(plan: KernelPlan, least: int) -> Recipe:
    """The launch recipe of a kernel's plan, whose consumers' loop takes `least` passes."""
    views = _views(plan)
    names = (*_axes(plan, views), *counts(plan))
    return Recipe(
        name=plan.program.whole.name,
        symbol="kernel",
        inputs=tuple(dict.fromkeys(TensorSpec(v.tensor, v.dtype, v.rank) for v, _ in views)),
        outputs=(*map(_output, plan.program.after.outputs), *records.outputs(plan)),
        tensor_checks=tuple(dict.fromkeys(_tensor_checks(plan, views))),
        names=names,
        checks=(
            *_extent_checks(plan, views, dict(names)),
            *schedule_checks(plan, least),
            *_output_checks(plan),
        ),
        arguments=tuple(_arguments(plan)),
        grid=Name(BLOCKS),
        order=_order(plan) if plan.order_table else None,
    )


# --- tensors --------------------------------------------------------------------------------------------


def _views(plan: KernelPlan) -> list[tuple[View, bool]]:
    """Every way in which an input is read, and whether TMA moves it: what the loop streams, then other sources."""
    rest = ((source.view, source.name in plan.inputs) for source in plan.program.after.sources)
    return [*((box.view, True) for box in plan.moved), *rest]


def _output(output: Output) -> TensorSpec:
    return TensorSpec(output.name, output.view.dtype, output.view.rank, output_extents(output))


def _tensor_checks(plan: KernelPlan, views: list[tuple[View, bool]]) -> Iterator[Check]:
    for view, copied in views:
        yield from view_checks(view, copied=copied)
    for output in plan.program.after.outputs:
        yield from view_checks(output.view, copied=output.name in plan.outputs)


# --- extents ---------------------------------------------------------------------------------


def _axes(plan: KernelPlan, views: list[tuple[View, bool]]) -> tuple[tuple[str, Integer], ...]:
    """Every axis with its extent, as the first tensor that has it says."""
    found: dict[str, Integer] = {}
    for view, _ in views:
        for role, extent in zip(view.roles, axis_extents(view), strict=True):
            found.setdefault(plan.extent_names[role], extent)
    return tuple(found.items())


# --- checks ---------------------------------------------------------------------------------------------


def _extent_checks(
    plan: KernelPlan, views: list[tuple[View, bool]], names: dict[str, Integer]
) -> Iterator[Check]:
    """All inputs have the same extent along an axis; `names` says which of them gave it."""
    for view, _ in views:
        expected = tuple(Name(plan.extent_names[role]) for role in view.roles)
        for check in _equal(view.tensor, axis_extents(view), expected):
            if isinstance(check.right, Name) and names[check.right.name] != check.left:
                yield check


def _output_checks(plan: KernelPlan) -> Iterator[Check]:
    """Outputs have the extents that the inputs give them."""
    for output in plan.program.after.outputs:
        given = tuple(Extent(output.name, dim) for dim in range(output.view.rank))
        yield from _equal(output.name, given, output_extents(output))
    for traced in records.outputs(plan):
        yield from _equal(traced.name, (Extent(traced.name, 0),), traced.shape)


def _equal(tensor: str, given: tuple[Integer, ...], expected: tuple[Integer, ...]) -> Iterator[Check]:
    message: Message = (f"tensor {tensor} has extents ", given, ", expected ", expected)
    for one, other in zip(given, expected, strict=True):
        if one != other:
            yield Check(one, Relation.EQUAL, other, message)


# --- arguments ------------------------------------------------------------------------------------------


def _arguments(plan: KernelPlan) -> Iterator[Argument]:
    """The kernel's arguments in order: tensor maps, tensors passed by address, extents, the order of tiles."""
    yield from map(_tensor_map, (*plan.moved, *plan.inputs.values(), *plan.outputs.values()))
    for source in plan.vectors.values():
        yield from _by_address(source)
    for output in plan.row_outputs:
        yield from _by_address(output)
    yield from (ScalarArgument(name, Name(name)) for name in plan.sizes)
    yield from map(TableArgument, plan.order_table)
    yield from records.arguments(plan)


def _by_address(one: ByAddress[Source] | ByAddress[Output]) -> Iterator[Argument]:
    view, steps = one.of.view, axis_strides(one.of.view)
    yield PointerArgument(one.pointer, view.tensor, view.dtype)
    yield from (ScalarArgument(name, steps[view.roles.index(role)]) for role, name in one.strides)


def _tensor_map(box: Box) -> TensorMap:
    extents, strides = axis_extents(box.view), map_strides(box.view)
    if box.fold:  # the last dimension in parts of so many elements
        extents = (*extents[:-1], floor_divide(extents[-1], box.fold), box.fold)
        strides = (*strides[:-1], box.fold, 1)
    return TensorMap(
        box.descriptor,
        box.view.tensor,
        box.view.dtype,
        extents,
        strides,
        box.shape,
        _copied_box(box),
        box.swizzle,
        box.layout,
    )


def _copied_box(box: Box) -> tuple[int, ...]:
    """Extents of a box that one instruction moves: at most a swizzle's bytes along the last dimension."""
    *outer, last = (min(extent, _BOX_EXTENT) for extent in box.shape)
    return (*outer, min(last, box.swizzle * 8 // box.bits) if box.swizzle else last)


# --- the order of tiles ---------------------------------------------------------------------------------


def _order(plan: KernelPlan) -> DealtOrder:
    bounds, k_blocks = narrowing(plan.program.bounds), ceil_divide(Name("stream_extent"), plan.s.depth)
    begin, end = k_blocks_between(
        bounds, Name(ROW), Name(LAST_ROW), 0, k_blocks, plan.s.depth, minimum, maximum
    )
    return DealtOrder(
        plan.s.tile_rows, Name("row_extent"), begin, end, plan.longest_last, WAVES_TOGETHER, Name("tiles"),
        Name(BLOCKS),
    )  # fmt: skip
