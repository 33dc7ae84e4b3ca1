"""The launch recipe of a verified schedule, from the same plan that the kernel's text is written from."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.extents import output_extents
from wsopt.emit.integers import (
    Extent,
    Integer,
    Name,
    add,
    ceil_divide,
    floor_divide,
    maximum,
    minimum,
    multiply,
)
from wsopt.emit.kernel_plan import kernel_plan
from wsopt.emit.mask_checks import mask_checks
from wsopt.emit.plan import KernelPlan, TensorRead
from wsopt.emit.recipe import (
    BLOCKS,
    LAST_ROW,
    PROCESSORS,
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
from wsopt.emit.rows_plan import RowsPlan
from wsopt.emit.slab_plan import SlabPlan
from wsopt.emit.tensors import Box
from wsopt.frontend.types import Bound, Output, Role, View
from wsopt.perf.slab_costs import inner_extent
from wsopt.program.live_loops import is_end
from wsopt.program.ranges import ROUNDS_TOGETHER, splits
from wsopt.schedule.verified import VerifiedSchedule

_BOX_EXTENT = 256
"""Elements of a tensor map's box along one dimension at most (CUDA driver API, cuTensorMapEncodeTiled)."""


def launch_recipe(verified: VerifiedSchedule) -> Recipe:
    """All that a launch of the schedule's kernel needs, as expressions of its tensors."""
    plan = kernel_plan(verified)
    reads = plan.reads()
    names = (*_axes(reads), *_counts(plan))
    return Recipe(
        name=plan.program.region.name,
        symbol="kernel",
        inputs=_inputs(plan),
        outputs=tuple(_output(output) for output in plan.program.region.outputs),
        tensor_checks=tuple(dict.fromkeys(_tensor_checks(plan))),
        names=names,
        checks=(
            *_extent_checks(reads, dict(names)),
            *_schedule_checks(plan),
            *_output_checks(plan),
        ),
        arguments=_arguments(plan, reads),
        grid=Name(BLOCKS),
        order=_order(plan) if isinstance(plan, SlabPlan) and plan.walk() else None,
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


# --- extents and counts ---------------------------------------------------------------------------------


def _axes(reads: tuple[TensorRead, ...]) -> tuple[tuple[str, Integer], ...]:
    """Every axis with its extent, as the first tensor that has it says."""
    found: dict[str, Integer] = {}
    for read in reads:
        for name, extent in zip(read.extents, axis_extents(read.view, read.tensor), strict=True):
            found.setdefault(name, extent)
    return tuple(found.items())


def _counts(plan: KernelPlan) -> Iterator[tuple[str, Integer]]:
    """Tiles each way, slabs, tiles in all, and the blocks that take them."""
    s = plan.s
    yield "row_tiles", ceil_divide(Name("row_extent"), s.tile_rows)
    if not isinstance(plan, RowsPlan | SlabPlan):
        yield "column_tiles", ceil_divide(Name("column_extent"), s.columns)
        yield "trips", multiply(ceil_divide(Name("stream_extent"), s.depth * s.copies), s.copies)
    yield "tiles", _tiles(plan)
    yield BLOCKS, minimum(Name(PROCESSORS), Name("tiles")) if s.persistent else Name("tiles")


def _tiles(plan: KernelPlan) -> Integer:
    names = ["batches"] if plan.has_batch else []
    if isinstance(plan, SlabPlan):
        names = ["batches", "groups"] if plan.has_group else names
        return multiply(*map(Name, [*names, "row_tiles"]))
    if isinstance(plan, RowsPlan):
        return multiply(*map(Name, [*names, "row_tiles"]))
    return multiply(*map(Name, [*names, "row_tiles", "column_tiles"]))


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


def _schedule_checks(plan: KernelPlan) -> Iterator[Check]:
    """What the schedule takes for granted of the extents."""
    s, region = plan.s, plan.program.region
    column, inner, stream = Name("column_extent"), Name("inner_extent"), Name("stream_extent")
    if region.whole_rows:
        length = region.extent(Role.COLUMN)
        told: Message = ("rows have ", column, f" elements: this schedule reduces rows of {length}")
        yield Check(column, Relation.EQUAL, length, told)
    if isinstance(plan, SlabPlan):
        held = inner_extent(region, plan.verified.machine)
        told = ("the products have ", column, f" columns: this schedule holds up to {s.columns}")
        yield Check(column, Relation.AT_MOST, s.columns, told)
        told = ("the inner axis has ", inner, f" elements: this schedule holds up to {held}")
        yield Check(inner, Relation.AT_MOST, held, told)
        yield from mask_checks(region)
    elif not isinstance(plan, RowsPlan):
        told = ("the contracted axis is too short for this schedule",)
        yield Check(Name("trips"), Relation.AT_LEAST, plan.loop().least, told)
    if s.tail:
        told = ("the contracted axis has ", stream, f" elements: this schedule takes 1 to {s.tail} more than a "
                f"multiple of {s.depth}")  # fmt: skip
        least = add(stream, s.depth - s.tail)
        yield Check(multiply(Name("trips"), s.depth), Relation.AT_LEAST, least, told)


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
    return plan.walk() if isinstance(plan, SlabPlan) else ()


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


def _order(plan: SlabPlan) -> DealtOrder:
    begin: Integer = 0
    end = ceil_divide(Name("stream_extent"), plan.s.depth)
    for bound in filter(splits, plan.program.region.bounds):
        most = _most(plan, bound)
        if bound.stream < 0:
            end = minimum(end, floor_divide(maximum(add(most, plan.s.depth), 0), plan.s.depth))
        else:
            begin = maximum(begin, floor_divide(maximum(multiply(-1, most), 0), plan.s.depth))
    return DealtOrder(
        plan.s.tile_rows, Name("row_extent"), begin, end, plan.longest_last, ROUNDS_TOGETHER, Name("tiles"),
        Name(BLOCKS),
    )  # fmt: skip


def _most(plan: SlabPlan, bound: Bound) -> Integer:
    """The most that row * i + constant is over a tile's rows; a bound at the stream's end moves with it."""
    constant = add(Name("stream_extent"), -1) if is_end(bound, plan.program.region) else bound.constant
    row = Name(LAST_ROW if bound.row >= 0 else ROW)
    return add(multiply(bound.row, row), constant) if bound.row else constant
