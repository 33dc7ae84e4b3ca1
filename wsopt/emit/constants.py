"""The constants at the head of a kernel, with what they mean, and how tiles lie in registers."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit import tensor_sums
from wsopt.emit.consumer import Consumer
from wsopt.emit.plan import KernelPlan
from wsopt.emit.prefetched import layout_constants
from wsopt.program.row_layout import row_layout, widest_bits
from wsopt.tensors.views import Role

Constant = tuple[str, str, str]
"""Name, value, comment."""


def constants(plan: KernelPlan, consumer: Consumer) -> Iterator[Constant]:
    """All that the kernel's text names."""
    s = plan.s
    yield "TILE_ROWS", str(s.tile_rows), ""
    yield "TILE_COLUMNS", str(s.columns), ""
    yield "CONSUMERS", str(s.consumers), ""
    yield "CONSUMER_ROWS", str(s.rows), ""
    if not plan.loops_over_tiles:
        yield "TILE_DEPTH", str(s.depth), "elements of the streamed axis in a K-block"
        yield "SUBTILE_COLUMNS", str(s.subtile_columns), "columns that the epilogue treats at a time"
    yield from _channels(plan)
    if plan.columns:
        yield "RASTER_GROUP", str(s.group), "tile rows whose tiles are taken column by column"
    if plan.reduces_rows:
        yield "ROW_LENGTH", str(plan.program.whole.extent(Role.COLUMN)), "elements of a row"
    if s.tail:
        yield "TAIL", str(s.tail), "of the last K-block, what products take: the rest is zeros"
    yield from _layouts(plan)
    yield from _inputs(plan)
    if plan.stores_apart:
        yield "STORES", str(len(plan.staged.plan.stores)), "of one consumer's tile"
    if consumer.may_fall_short:
        yield "LEAST", str(consumer.least), "K-blocks that the overlapped loop takes at least"


def _channels(plan: KernelPlan) -> Iterator[Constant]:
    s = plan.s
    for box in plan.stationary:
        yield "STATIONARY_BYTES", str(box.nbytes * s.consumers), "bytes of the tiles that the loop holds"
        what = "sets of them: the next tile's come while the loop runs"
        yield "STATIONARY_SETS", str(s.stationary_sets), what
    for ring, (_, depth) in zip(plan.rings, plan.verified.schedule.rings, strict=True):
        yield ring.depth, str(depth), f"slots of {ring.name}"
        if ring.nbytes == "RING_BYTES":
            yield ring.nbytes, str(ring.plan.slot_bytes), "bytes that fill a slot"


def _layouts(plan: KernelPlan) -> Iterator[Constant]:
    """Layouts in registers that no tensor instruction gives."""
    program, s, machine = plan.program, plan.s, plan.verified.machine
    if plan.loops_over_tiles:
        outputs = (output.view for output in program.after.outputs)
        bits = widest_bits([*(source.view for source in program.streamed), *outputs])
        layout = row_layout(bits, s.rows, s.columns, s.consumer_warps, machine).text()
        yield plan.loop_layout, layout, "how a tile of rows lies in a consumer's registers"
    elif program.streamed and not plan.ranged:
        bits = widest_bits(x.view for x in program.streamed)
        layout = row_layout(bits, s.rows, s.depth, s.consumer_warps, machine).text()
        yield plan.loop_layout, layout, "how a K-block lies in a consumer's registers, beside the products"
    if plan.sums_apart:
        yield from tensor_sums.layouts(plan)
    if any(one.along_columns for one in plan.prefetched.values()):
        yield from layout_constants(s, machine)


def _inputs(plan: KernelPlan) -> Iterator[Constant]:
    """Constants for copies of full inputs and for the waits for them."""
    if not plan.inputs:
        return
    when = plan.refill
    yield "SUBTILES", str(plan.s.subtiles), ""
    yield "INPUT_BUFFERS", str(plan.verified.schedule.buffers.inputs), "subtiles of an input at a time"
    if when.first or when.apart:
        what = "passes under which the last tile's stores are read, before inputs are copied to their buffers"
        yield "REFILL_PASSES", str(when.first), what
    if when.apart:
        yield "REFILL_APART", str(when.apart), "passes from the copy of a subtile to that of the next"


def accumulator_layouts(plan: KernelPlan) -> list[tuple[str, int]]:
    """The layouts of what tensor instructions leave in registers, by name, with their columns."""
    if plan.loops_over_tiles or plan.sums_apart:
        return []
    s, columns = plan.s, plan.s.columns // 2
    found = [("SUM_LAYOUT", s.columns), ("SUBTILE_LAYOUT", s.subtile_columns)]
    while columns > s.subtile_columns:
        found.append((f"LAYOUT_{columns}", columns))
        columns //= 2
    return [*found, (plan.loop_layout, s.depth)] if plan.ranged else found
