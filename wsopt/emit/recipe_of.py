"""The launch recipe of a kernel, from the plan that its device functions are written from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce

from wsopt.emit import dynamic, over_rows, records, resident, shares, splits
from wsopt.emit.addresses import FARTHEST, ByAddress, places_name
from wsopt.emit.consumer_of import consumer_of
from wsopt.emit.grid import LARGEST_QUOTIENT, divided_by_f32, launch_grid, tiles
from wsopt.emit.integers import Integer, ceil_divide, maximum, minimum, named, shape_of
from wsopt.emit.plan import KernelPlan
from wsopt.emit.plan_of import plan_of
from wsopt.emit.recipe import (
    Argument,
    Check,
    DealtOrder,
    Message,
    Packed,
    PointerArgument,
    Recipe,
    ScalarArgument,
    TensorMap,
    TensorSpec,
)
from wsopt.emit.recipe_views import (
    axis_extents,
    axis_strides,
    map_extents,
    map_strides,
    output_extents,
    view_checks,
)
from wsopt.emit.tensors import Box, word_elements
from wsopt.emit.vectors import halves_read
from wsopt.program.launch_grid import LONGEST
from wsopt.program.ranges import Bounds, k_blocks_between, narrowing
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.views import FAR, Bound, Output, Role, Source, View

_BOX_EXTENT = 256
"""Elements of a tensor map's box along one dimension at most (CUDA driver API, cuTensorMapEncodeTiled)."""

_MOST_ELEMENTS = FARTHEST
"""Elements of a workspace, whose places the kernel counts in 32 bits."""

_ROWS, _COLUMNS, _STREAM, _K_ITERATIONS = map(
    named, ("row_extent", "column_extent", "stream_extent", "k_iterations")
)


def launch_recipe(verified: VerifiedSchedule) -> Recipe:
    """All that a launch of the schedule's kernel needs, as expressions of its tensors."""
    plan = plan_of(verified)
    return recipe_of(plan, consumer_of(plan).least)


def recipe_of(plan: KernelPlan, least: int) -> Recipe:
    """The launch recipe of a kernel's plan, whose consumers' loop takes `least` passes."""
    after = plan.program.after
    # Every way in which an input is read: what the loop streams, then other sources; and whether TMA moves it.
    views = [(box.view, True) for box in plan.moved]
    views += [(source.view, source.name in plan.inputs) for source in after.sources]
    views += [(plan.offsets.of.view, False)] if plan.offsets else []
    stored = [(output.view, output.name in plan.outputs) for output in after.outputs]
    told = {one.of.view for one in resident.told_vectors(plan)}
    told |= {one.of.view for one in resident.told_outputs(plan)}
    halves = plan.halves | halves_read(plan)
    checks = (
        check
        for view, copied in (*views, *stored)
        for check in view_checks(view, whole=copied or view in halves, aligned=copied or view in told)
    )
    inputs = tuple(dict.fromkeys(view for view, _ in views))
    extents = _extents(plan, inputs)
    axes = plan.extent_names
    along = ((v.tensor, dict(_along_axes(v))) for v in inputs)
    read = ((name, (*own.values(),), tuple(named(axes[role]) for role in own)) for name, own in along)
    made = [TensorSpec(o.view.tensor, o.view.dtype, o.view.rank, output_extents(o)) for o in after.outputs]
    outputs = (*dict.fromkeys(made), *records.outputs(plan))
    return Recipe(
        name=plan.program.whole.name,
        inputs=tuple(dict.fromkeys(TensorSpec(v.tensor, v.dtype, v.rank) for v in inputs)),
        outputs=outputs,
        tensor_checks=tuple(dict.fromkeys(checks)),
        names=(*extents.items(), *_counts(plan, least)),
        checks=(
            *_extent_checks(read, {named(name): extent for name, extent in extents.items()}),
            *_stored_checks(plan, extents),
            *_schedule_checks(plan, least),
            *_offset_checks(plan),
            *_extent_checks(((o.name, shape_of(o.name, o.rank), o.shape) for o in outputs), {}),
        ),
        arguments=tuple(_arguments(plan)),
        persistent=plan.s.persistent,
        grid=launch_grid(plan),
        packed=tuple(dict.fromkeys(Packed(v.tensor, v.dtype, v.packing) for v in inputs if v.packing)),
    )


# --- extents and counts ---------------------------------------------------------------------------------


def _extents(plan: KernelPlan, inputs: Iterable[View]) -> dict[str, Integer]:
    """Every axis with its extent, as the first tensor that has it says; of tiles that are computed of vectors alone
    one that no tensor has, along which the graph counts, has the extent that it has there.
    """
    found: dict[str, Integer] = {}
    for view in inputs:
        for role, extent in _along_axes(view):
            found.setdefault(plan.extent_names[role], extent)
    for view in (one.of.view for one in plan.vectors.values()):
        if view.chosen:
            at = view.roles.index(view.chosen.role)
            found[places_name(plan.names, view)] = axis_extents(view)[at]
    if plan.loops_over_tiles:
        for role in plan.axes:
            found.setdefault(plan.extent_names[role], plan.program.whole.extent(role))
    return found


def _along_axes(view: View) -> Iterator[tuple[Role, Integer]]:
    """The axes of a view with their extents. An axis along which another tensor chooses places is left out, and so is
    the streamed one where the tensor has it page by page: neither extent is the kernel's.
    """
    chosen = {view.chosen.role, *([Role.STREAM] if view.page else [])} if view.chosen else ()
    pairs = zip(view.roles, axis_extents(view), strict=True)
    return ((role, extent * view.sharing(role)) for role, extent in pairs if role not in chosen)


def _counts(plan: KernelPlan, least: int) -> Iterator[tuple[str, Integer]]:
    """Names and values of tiles each way, K-blocks, tiles in all, and the blocks that take them. Each value is an
    expression of those before it. A consumer's loop takes `least` passes at least.
    """
    s = plan.s
    segments: Integer = named("segments") if plan.offsets else 0
    yield "row_tiles", ceil_divide(_ROWS, s.tile_rows) + segments  # where offsets cut the rows, at most
    if "column_tiles" in plan.counts:
        yield "column_tiles", ceil_divide(_COLUMNS, s.columns)
    if "k_iterations" in plan.counts:
        # A whole number of passes; a K-block beyond the end is all zeros.
        yield "k_iterations", ceil_divide(_STREAM, s.depth * s.copies) * s.copies
    if plan.launch_axes:
        return
    yield "tiles", tiles(plan)
    taken: Integer = named("tiles")
    if s.shares:  # no more blocks than pieces
        taken = taken * (
            ceil_divide(_STREAM, s.depth) if plan.ranged else _K_ITERATIONS // shares.piece(plan, least)
        )
    elif plan.split:
        yield "parts", taken * s.splits
        taken = named("parts")
    at_once: Integer = named("processors")
    if s.paired:
        at_once = maximum(at_once // s.blocks, 1)
    elif s.occupancy:
        at_once = at_once * s.occupancy
    blocks = minimum(at_once, taken) if s.persistent else taken
    if plan.owes_ends and not s.shares:  # a consumer has a bit for each of its parts
        blocks = maximum(blocks, ceil_divide(taken, splits.MOST_PARTS))
    if plan.carried and plan.columns:  # a block's tiles are of the same columns
        each = minimum(named("processors") // named("column_tiles"), named("row_tiles"))
        yield over_rows.COLUMN_BLOCKS, maximum(each, 1)
        blocks = named(over_rows.COLUMN_BLOCKS) * named("column_tiles")
    yield "blocks", blocks


# --- checks ---------------------------------------------------------------------------------------------


def _extent_checks(
    tensors: Iterable[tuple[str, tuple[Integer, ...], tuple[Integer, ...]]], known: Mapping[Integer, Integer]
) -> Iterator[Check]:
    """Tensors, by name, have the extents that are expected of them, if these are not `known` to be the same."""
    for tensor, given, expected in tensors:
        told: Message = (f"tensor {tensor} has extents ", given, ", expected ", expected)
        for one, other in zip(given, expected, strict=True):
            if one != known.get(other, other):
                yield Check(one, "equal", other, told)


def _stored_checks(plan: KernelPlan, extents: Mapping[str, Integer]) -> Iterator[Check]:
    """Axes that are parts of an output's dimension have the elements that it is stored with: inputs may tell others,
    and the output's dimension be as long.
    """
    for view in (output.view for output in plan.program.after.outputs):
        for role, stored in zip(view.roles, axis_extents(view), strict=True):
            name = plan.extent_names[role]
            if role in view.known and extents.get(name, stored) != stored:
                told = f"tensor {view.tensor} is stored in parts of {view.extents[view.roles.index(role)]} elements"
                message: Message = (f"{told}, and the {role} axis has ", named(name))
                yield Check(named(name), "equal", stored, message)


def _schedule_checks(plan: KernelPlan, least: int) -> Iterator[Check]:
    """Conditions on the extents that the schedule relies on: a consumer's loop takes `least` passes."""
    s = plan.s
    yield from _row_checks(plan)
    yield from _stationary_checks(plan)
    if plan.ranged:
        yield from _mask_checks(plan.program.bounds)
    elif not plan.loops_over_tiles:
        told: Message = ("the contracted axis is too short for this schedule",)
        yield Check(_K_ITERATIONS, "at_least", splits.least_k_blocks(plan, least), told)
    yield from _count_checks(plan)
    if s.tail:
        told = ("the contracted axis has ", _STREAM, f" elements: this schedule takes 1 to {s.tail} more than a "
                f"multiple of {s.depth}")  # fmt: skip
        yield Check(_K_ITERATIONS * s.depth, "at_least", _STREAM + (s.depth - s.tail), told)


def _row_checks(plan: KernelPlan) -> Iterator[Check]:
    """Conditions on the elements of a row: as many as are reduced, whole folds, whole accesses of threads."""
    if plan.reduces_rows:
        length = plan.program.whole.extent(Role.COLUMN)
        told: Message = ("rows have ", _COLUMNS, f" elements: this schedule reduces rows of {length}")
        yield Check(_COLUMNS, "equal", length, told)
    boxes = () if plan.reduces_rows else (*plan.moved, *plan.outputs.values())
    multiples = [*dict.fromkeys(box.folded_columns for box in boxes if box.fold)]
    if plan.by_threads and plan.columns and plan.column_multiple > 1:
        multiples.append(plan.column_multiple)
    for length in multiples:
        told = ("rows have ", _COLUMNS, f" elements: this schedule takes multiples of {length}")
        yield Check(_COLUMNS, "multiple_of", length, told)


def _stationary_checks(plan: KernelPlan) -> Iterator[Check]:
    """Conditions on the tiles that a block holds through its loop: they are no larger than their buffers."""
    inner = named("inner_extent")
    for member in plan.program.stationary:
        held = member.extent(Role.INNER)
        told: Message = (
            "the products have ",
            _COLUMNS,
            f" columns: this schedule holds up to {plan.s.columns}",
        )
        yield Check(_COLUMNS, "at_most", plan.s.columns, told)
        told = ("the inner axis has ", inner, f" elements: this schedule holds up to {held}")
        yield Check(inner, "at_most", held, told)


def _count_checks(plan: KernelPlan) -> Iterator[Check]:
    """Conditions on what a kernel counts: elements of its workspaces, tiles, K-blocks of all blocks."""
    s = plan.s
    for one in splits.workspaces(plan)[:1]:
        over = "blocks" if s.shares else f"{s.splits} blocks"
        told: Message = (f"the sums of tiles split over {over} take ", one.elements, " elements: too many")
        yield Check(one.elements, "at_most", _MOST_ELEMENTS, told)
    for one in over_rows.workspaces(plan)[:1]:
        told = ("what blocks leave of sums over the rows takes ", one.elements, " elements: too many")
        yield Check(one.elements, "at_most", _MOST_ELEMENTS, told)
    most = [(count, LONGEST, " along one axis") for count in launch_grid(plan)[1:]]
    most += [(named("tiles"), LARGEST_QUOTIENT, "")] if divided_by_f32(plan) else []
    for count, largest, along in most:
        told = (
            "there are ",
            count,
            f" tiles{along}, too many for this kernel: compile the graph at these extents",
        )
        yield Check(count, "at_most", largest, told)
    if s.shares:
        every = named("blocks") * (named("tiles") * ceil_divide(_STREAM, s.depth))
        told = ("the tiles have ", every, " K-blocks for all blocks together: too many to be counted")
        yield Check(every, "at_most", _MOST_ELEMENTS, told)


def _offset_checks(plan: KernelPlan) -> Iterator[Check]:
    """Conditions on what is read and written by address: strides are arguments of 32 bits, and offsets are of 32 bits
    along an axis that did not reach farther.
    """
    for one in _by_address(plan):
        view, steps, extents = one.of.view, axis_strides(one.of.view), axis_extents(one.of.view)
        wide = one.far | one.counted_wide
        for role, _ in one.strides:
            at = view.roles.index(role)
            last = 1 if role in wide else extents[at] + (view.first.get(role, 0) - 1)
            told = "lie" if role in wide else "reach"
            again = "" if role in wide else ": compile the graph at these extents"
            where = f"tensor {view.tensor}: elements along the {role} axis {told} 2^31 elements or more apart"
            yield Check(last * steps[at], "at_most", FARTHEST, (where + again,))


def _mask_checks(bounds: Bounds) -> Iterator[Check]:
    """Conditions on a call's extents that follow from the masks.

    Where masks end every row before the streamed axis ends, the kernel has no mask for that end. And where the number
    that masks put in was taken for minus infinity, no row may consist of that number alone.
    """

    def at_most(left: Integer, right: Integer, told: str) -> Check:
        compiled = f"at {bounds.rows} and {bounds.stream}: compile the graph at these extents"
        message = ("with ", _ROWS, " rows and ", _STREAM, f" elements of the streamed axis {told} {compiled}")
        return Check(left, "at_most", right, message)

    def in_last_row(bound: Bound) -> Integer:
        return bound.row * (_ROWS + -1) + bound.constant

    last = _STREAM + -1
    if len(known := [bound for bound in bounds.every if not bound.terms]) < len(bounds.every):
        for axis, extent in (("rows", _ROWS), ("elements of the streamed axis", _STREAM)):
            most = f" {axis}: masks by lengths at run time take less than {FAR // 2}"
            yield Check(extent, "at_most", FAR // 2 - 1, (extent, most))
    lower, upper = ([b for b in known if b.stream * sign > 0] for sign in (1, -1))
    if bounds.masked:  # the mask that keeps the fewest elements keeps none beyond the end, for any row
        ends = (maximum(b.constant, in_last_row(b)) if b.row else b.constant for b in upper)
        yield at_most(
            reduce(minimum, ends), last, "the masks do not end every row before the axis ends, as they do"
        )
    if not bounds.full_rows:
        return
    # The last row has an element that all masks keep; of the first one they know that already.
    told = "the masks leave rows without an element, as they do not"
    for bound in bounds.every:
        if bound.stream == 0 and bound.row < 0:
            yield at_most(0, in_last_row(bound), told)
    if any(b.row < 0 or b.constant < 0 for b in lower) or any(b.row < 0 for b in upper):
        begin = reduce(maximum, [0, *(-in_last_row(b) for b in lower)])
        yield at_most(begin, reduce(minimum, [*map(in_last_row, upper), last]), told)


# --- arguments ------------------------------------------------------------------------------------------


def _by_address(plan: KernelPlan) -> list[ByAddress[Source] | ByAddress[Output]]:
    """All that threads read and write by address, in the order of the kernel's arguments."""
    return [
        *([plan.offsets] if plan.offsets else []),
        *plan.vectors.values(),
        *plan.outputs_by_address,
        *over_rows.outputs(plan),
        *plan.ragged.values(),
    ]


def _arguments(plan: KernelPlan) -> Iterator[Argument]:
    """The kernel's arguments in order: tensor maps, tensors passed by address, extents, the order of tiles."""
    yield from map(_tensor_map, (*plan.moved, *plan.inputs.values(), *plan.outputs.values()))
    for one in _by_address(plan):
        view, steps = one.of.view, axis_strides(one.of.view)
        yield PointerArgument(one.pointer, view.tensor, view.dtype)
        yield from (ScalarArgument(name, steps[view.roles.index(role)]) for role, name in one.strides)
    yield from (ScalarArgument(name, named(name)) for name in plan.sizes)
    for name in plan.order_table:
        bounds, k_blocks = narrowing(plan.program.bounds), ceil_divide(_STREAM, plan.s.depth)
        rows = named("row"), named("last_row")
        ends = k_blocks_between(bounds, *rows, 0, k_blocks, plan.s.depth, minimum, maximum)
        yield DealtOrder(name, plan.s.tile_rows, *ends, plan.longest_last)
    yield from (*splits.workspaces(plan), *over_rows.workspaces(plan), *dynamic.workspaces(plan))
    yield from records.arguments(plan)


def _tensor_map(box: Box) -> TensorMap:
    view, extents, strides = box.view, map_extents(box.view), map_strides(box.view)
    words = word_elements(view)
    extents = (*extents[:-1], extents[-1] // words if words > 1 else extents[-1])
    strides = (*(stride // words if words > 1 else stride for stride in strides[:-1]), strides[-1])
    if box.fold:  # the last dimension in parts of so many elements
        extents = (*extents[:-1], extents[-1] // box.fold, box.fold)
        strides = (*strides[:-1], box.fold, 1)
    # One instruction copies at most a swizzle's bytes along the last dimension.
    *outer, last = (min(extent, _BOX_EXTENT) for extent in box.copied)
    copied = (*outer, min(last, box.swizzle * 8 // box.bits) if box.swizzle else last)
    block = box.copied if box.split is None else box.whole
    return TensorMap(
        box.descriptor, view.tensor, view.dtype, extents, strides, block, copied, box.swizzle, box.layout,
        words > 1,
    )  # fmt: skip
