"""The constants at the head of a kernel, with what they mean, and how tiles lie in registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from wsopt.emit import (
    dynamic,
    factors,
    flat,
    over_rows,
    pages,
    pairs,
    quantized,
    segments,
    splits,
    staggered,
    tensor_sums,
    tensor_values,
    threads,
    turning,
    widening,
)
from wsopt.emit.consumer import Consumer
from wsopt.emit.operands import rows_layout
from wsopt.emit.plan import KernelPlan
from wsopt.emit.prefetched import layout_constants
from wsopt.emit.sums import sum_layouts
from wsopt.emit.tensors import PAIRS_LAYOUT, turned
from wsopt.emit.vectors import halves_read
from wsopt.program.lazy import LEAST
from wsopt.program.row_layout import all_swizzled, reduces_outer, row_layout, widest_bits
from wsopt.tensors.views import Packing, Role, View


def constants(plan: KernelPlan, consumer: Consumer) -> list[tuple[str, int | str, str]]:
    """Name, value and comment of all constants that the kernel's text names: of the table those with a value."""
    s, buffers, when = plan.s, plan.verified.schedule.buffers, plan.refill
    tiled, copied = not plan.loops_over_tiles, bool(plan.inputs)
    waits = copied and (when.first or when.apart)
    row_length = plan.program.whole.extent(Role.COLUMN)
    group = s.group if plan.columns and not plan.in_order else None
    table: list[tuple[str, int | str | None, str]] = [
        ("TILE_ROWS", s.tile_rows, ""),
        ("TILE_COLUMNS", s.columns, ""),
        ("CONSUMERS", s.consumers, ""),
        ("CONSUMER_ROWS", s.rows * s.blocks, pairs.ROWS if s.paired else ""),
        ("TILE_DEPTH", s.depth if tiled else None, "elements of the streamed axis in a K-block"),
        ("SUBTILE_COLUMNS", s.subtile_columns if tiled else None, "columns that the epilogue treats at a time"),
        *splits.constants(plan, consumer.least),
        *threads.constants(plan),
        *over_rows.constants(plan),
        *_channels(plan),
        ("RASTER_GROUP", group, "tile rows whose tiles are taken column by column"),
        ("ROW_LENGTH", row_length if plan.reduces_rows else None, "elements of a row"),
        ("ROW_PARTS", -(-row_length // s.columns) if plan.program.long_rows else None, "tiles of columns in a row"),
        *flat.constants(plan),
        ("READS", 2 if plan.reads_twice and not s.retained else None, "times that a row is read"),
        ("RETAINED", s.retained or None, "tiles of columns that stay in the ring for the second pass"),
        ("IN_REGISTERS", s.in_registers or None, "tiles of columns that stay in registers for it"),
        *staggered.constants(plan),
        ("TAIL", s.tail or None, "of the last K-block, what products take: the rest is zeros"),
        ("KEPT", str(LEAST) if plan.program.lazy else None, "factor down to which rows keep their maximum"),
        *_layouts(plan),
        *dynamic.constants(plan),
        ("SUBTILES", s.subtiles if copied else None, ""),
        ("INPUT_BUFFERS", buffers.inputs if copied else None, "subtiles of an input at a time"),
        ("CONSTANTS_AHEAD", plan.constants_ahead, "slots whose constants are copied while the kernel before ends"),
        ("INPUTS_AHEAD", plan.inputs_ahead or None, "K-blocks whose copies come behind those of inputs"),
        ("REFILL_PASSES", when.first if waits else None,
         "passes under which the last tile's stores are read, before inputs are copied to their buffers"),
        ("REFILL_APART", (copied and when.apart) or None, "passes from the copy of a subtile to that of the next"),
        ("STORES", len(plan.staged.plan.stores) if plan.stores_apart else None, "of one consumer's tile"),
        ("LEAST", consumer.least if consumer.may_fall_short else None,
         "K-blocks that the overlapped loop takes at least"),
    ]  # fmt: skip
    return [(name, value, comment) for name, value, comment in table if value is not None]


def _channels(plan: KernelPlan) -> Iterator[tuple[str, int, str]]:
    s = plan.s
    if plan.stationary:
        held = sum(box.nbytes for box in plan.stationary)
        yield "STATIONARY_BYTES", held * s.consumers, "bytes of the tiles that the loop holds"
        yield "STATIONARY_SETS", s.stationary_sets, "sets of them: the next tile's come while the loop runs"
    for ring, (_, depth) in zip(plan.rings, plan.verified.schedule.rings, strict=True):
        yield ring.depth, depth, f"slots of {ring.name}"
        if ring.nbytes == "RING_BYTES" and not ring.plan.signals:
            yield ring.nbytes, ring.plan.slot_bytes, "bytes that fill a slot"


def _layouts(plan: KernelPlan) -> Iterator[tuple[str, str, str]]:
    """Layouts in registers that no tensor instruction gives."""
    s, machine = plan.s, plan.verified.machine
    streamed = [source.view for source in plan.program.streamed]
    if plan.loops_over_tiles:
        yield from _row_layouts(plan, streamed)
    elif streamed and not plan.computes and not plan.values_apart:
        yield _k_block_layout(plan, streamed)
    if not plan.loops_over_tiles:
        warps = machine.warps_per_warpgroup if s.transforms else s.consumer_warps
        yield from quantized.layouts([*streamed, *factors.of_sets(plan)], s.rows, s.depth, warps)
        yield from factors.layouts(plan)
        yield from widening.layouts(plan)
    if pages.apart(plan):
        yield pages.LAYOUT, "gl.BlockedLayout([1], [32], [1], [0])", "a K-block's places, of a thread each"
    if plan.sums_apart:
        yield from (tensor_values if plan.values_apart else tensor_sums).layouts(plan)
    yield from segments.layouts(plan)
    if any(one.along_columns for one in plan.prefetched.values()):
        yield from layout_constants(s, machine)


def _row_layouts(plan: KernelPlan, streamed: Sequence[View]) -> Iterator[tuple[str, str, str]]:
    """Layouts of a tile of rows that streams as these views: as its loop takes it, in pairs, and by columns."""
    s, tiles = plan.s, plan.program.row_tiles
    rows = rows_layout(plan)
    yield plan.loop_layout, rows.text(), "how a tile of rows lies in a consumer's registers"
    for step in sorted({view.step for view in (*streamed, *plan.halves, *halves_read(plan))} - {1}):
        wider = replace(rows, vector=rows.vector * step).text()
        yield PAIRS_LAYOUT, wider, "how a tile of pairs lies there, of which others have one of each"
    yield from turning.constants(plan)
    if reduces_outer(tiles) and not all_swizzled(tiles, s.rows, s.columns):
        yield turned(plan.loop_layout), rows.turned().text(), "the same of columns, as they lie in memory"


def _k_block_layout(plan: KernelPlan, streamed: Sequence[View]) -> tuple[str, str, str]:
    """The layout of a K-block that threads compute operands of products from."""
    s, machine = plan.s, plan.verified.machine
    warps = machine.warps_per_warpgroup if s.transforms else s.consumer_warps
    layout = row_layout(widest_bits(streamed), s.rows, s.depth, warps, machine).text()
    if any(view.packing is Packing.FRAGMENTS for view in streamed):
        deep = 256 // plan.program.whole.dtype.bits
        layout = (
            f"gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[{warps}, 1], "
            f"instr_shape=[16, {s.depth}, {deep}])"
        )
    where = "a transform warpgroup's" if s.transforms else "a consumer's"
    beside = "" if s.transforms else ", beside the products"
    return plan.loop_layout, layout, f"how a K-block lies in {where} registers{beside}"


def accumulator_layouts(plan: KernelPlan) -> list[tuple[str, int]]:
    """The layouts of what tensor instructions leave in registers, by name, with their columns."""
    if plan.loops_over_tiles or plan.sums_apart:
        return []
    return [*sum_layouts(plan.s), *([(plan.loop_layout, plan.s.depth)] if plan.computes else [])]
