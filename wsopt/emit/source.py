"""From a kernel plan to source text: instructions through their macros, the rest through one skeleton."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from wsopt import __version__
from wsopt.emit import inputs, store_warp, text
from wsopt.emit.addresses import contiguous_place
from wsopt.emit.called import called
from wsopt.emit.calls import calls
from wsopt.emit.extents import extent_texts, parts_text
from wsopt.emit.held import layout_constants
from wsopt.emit.instructions import Advance, Expect, Mma, WaitEmpty
from wsopt.emit.integers import PYTHON
from wsopt.emit.integers import text as integer_text
from wsopt.emit.k_block_plan import KBlockPlan
from wsopt.emit.k_block_source import k_block_constants, k_block_context, k_block_layouts
from wsopt.emit.kernel_plan import kernel_plan
from wsopt.emit.launch_counts import check_lines, count_lines, tiles
from wsopt.emit.plan import KernelPlan, TensorRead
from wsopt.emit.product_body import consumer_body, coordinates, epilogue_parameters, starts_stores
from wsopt.emit.rows_plan import RowsPlan
from wsopt.emit.rows_source import rows_constants, rows_context
from wsopt.emit.tensors import TORCH, Box
from wsopt.frontend.types import K_BLOCK, Output, Role
from wsopt.lowering.steps import inner_extent
from wsopt.perf.costs import mma_instructions, product_instructions
from wsopt.program.program import OpKind
from wsopt.program.row_layout import k_block_layout, widest_bits
from wsopt.runtime.text import launcher_text
from wsopt.schedule.verified import VerifiedSchedule


def printable_lines(foreign: str) -> list[str]:
    """Foreign text as lines that can stand in a comment and cannot end it."""
    lines = foreign.splitlines()
    return ["".join(c if c.isprintable() else " " for c in line) for line in lines]


@dataclass(frozen=True, slots=True)
class OutputText:
    """What the launcher says of one output."""

    name: str
    tensor: str
    dtype: str
    shape: tuple[str, ...]
    dims: tuple[tuple[int, ...], ...]
    rank: int
    box: Box | None
    parts: str
    near: int | None


def _loader_body(plan: KernelPlan) -> str:
    fill = [
        WaitEmpty("ring", "step", "RING_DEPTH"),
        Expect("ring_full.index(slot)", "RING_BYTES"),
        *plan.slot_loads(),
        Advance(1),
    ]
    return "for k in range(k_iterations):\n    slot = step % RING_DEPTH\n" + text.block(text.write(fill))


def _vector_arguments(plan: KernelPlan) -> list[str]:
    found = []
    for vector in plan.vectors().values():
        found += [vector.pointer, *(name for _, name in vector.strides)]
    return found


def _buffers(plan: KernelPlan) -> list[str]:
    """Names of a consumer's own buffers and barriers."""
    held = [one.name for one in plan.held().values() if one.along_columns]
    pools = [pool.name for pool in plan.pools()]
    return [*held, *inputs.input_names(plan), *pools, *plan.staged().barriers]


def _ring_names(plan: KernelPlan) -> list[str]:
    return [ring.name for ring in plan.rings()] + ["ring_full", "ring_empty"]


def _loader_parameters(plan: KernelPlan) -> list[str]:
    return [*(ring.box.descriptor for ring in plan.rings()), *_ring_names(plan), *plan.counts()]


def _consumer_parameters(plan: KernelPlan) -> list[str]:
    loads = inputs.input_descriptors(plan)
    stores = [] if plan.staged().barriers else starts_stores(plan)
    turn = ["turn"] if plan.in_turns else []
    return [
        *_ring_names(plan), *turn, *loads, *_vector_arguments(plan), *_buffers(plan), *stores, *plan.sizes(),
        "index: gl.constexpr",
    ]  # fmt: skip


def _allocations(plan: KernelPlan) -> list[str]:
    lines = []
    for ring in plan.rings():
        count = "RING_DEPTH" if ring.per_slot == 1 else f"RING_DEPTH * {ring.per_slot}"
        lines.append(text.allocate(ring.name, ring.box.gluon, count, ring.box))
    lines += [text.barrier("ring_full", "RING_DEPTH"), text.barrier("ring_empty", "RING_DEPTH")]
    if plan.in_turns:
        lines.append(text.barrier("turn", "CONSUMERS"))
    for consumer in range(plan.s.consumers):
        lines += [one.allocation(consumer) for one in plan.held().values() if one.along_columns]
        lines += inputs.input_allocations(plan, consumer)
        for pool in plan.pools():
            lines.append(text.allocate(f"{pool.name}_{consumer}", pool.box.gluon, str(pool.count), pool.box))
        lines += store_warp.allocations(plan, consumer)
    return lines


def _barriers(plan: KernelPlan) -> list[tuple[str, list[tuple[str, int]]]]:
    """How many of which barriers, and how many arrivals complete a phase of each."""
    readers = 1 if plan.in_turns else plan.s.consumers
    found = [("RING_DEPTH", [("ring_full", 1), ("ring_empty", readers)])]
    if plan.in_turns:
        found.append(("CONSUMERS", [("turn", 1)]))
    return [*found, *inputs.input_barriers(plan), *store_warp.barriers(plan)]


def _constants(plan: KernelPlan) -> list[tuple[str, str, str]]:
    s = plan.s
    found = [
        ("TILE_ROWS", str(s.tile_rows), ""),
        ("TILE_COLUMNS", str(s.columns), ""),
        ("TILE_DEPTH", str(s.depth), ""),
        ("CONSUMERS", str(s.consumers), ""),
        ("CONSUMER_ROWS", str(s.rows), ""),
        ("PIECE_COLUMNS", str(s.piece_columns), "columns that the epilogue treats at a time"),
        ("RING_DEPTH", str(plan.depth), ""),
        ("RING_BYTES", str(plan.slot_bytes()), "bytes that fill a slot"),
        ("GROUP", str(s.group), "tile rows that are walked before the next column"),
    ]
    if plan.program.region.whole_rows:
        found.append(("ROW_LENGTH", str(plan.program.region.extent(Role.COLUMN)), "elements of a row"))
    if plan.program.region.beside:
        bits = widest_bits(tile.view for tile in plan.program.region.tiles)
        layout = k_block_layout(bits, s, plan.verified.machine).text()
        found.append(
            ("K_BLOCK_LAYOUT", layout, "how a K-block lies in a consumer's registers, beside the products")
        )
    if s.tail:
        found.append(("TAIL", str(s.tail), "of the last K-block, what products take: the rest is zeros"))
    if any(one.along_columns for one in plan.held().values()):
        found += layout_constants(s, plan.verified.machine)
    return [*found, *inputs.input_constants(plan), *store_warp.constants(plan)]


def _numbers(written: str) -> list[tuple[str, str, str]]:
    """Numbers that Python has no literal for, where the text uses them."""
    found = []
    for name, value in (("NEG_INF", 'float("-inf")'), ("INF", 'float("inf")')):
        if name in written.replace("NEG_INF", "") or (name == "NEG_INF" and name in written):
            found.append((name, value, ""))
    return found


def _boxes(plan: KernelPlan) -> list[Box]:
    return [*plan.moved(), *plan.inputs().values(), *plan.outputs().values()]


def _register_layouts(plan: KernelPlan) -> list[tuple[str, int]]:
    s = plan.s
    found = [("SUM_LAYOUT", s.columns), ("PIECE_LAYOUT", s.piece_columns)]
    columns = s.columns // 2
    while columns > s.piece_columns:
        found.append((f"LAYOUT_{columns}", columns))
        columns //= 2
    return found


def _output(plan: KernelPlan, output: Output) -> OutputText:
    shape = extent_texts(output)
    box = plan.outputs().get(output.name)
    view = output.view
    name = plan.names(f"written:{output.name}", output.name)
    return OutputText(
        name,
        output.name,
        TORCH[view.dtype],
        shape,
        view.origin,
        view.rank,
        box,
        parts_text(view),
        None if box else contiguous_place(view),
    )


def _extents(plan: KernelPlan) -> list[tuple[str, str, int]]:
    """For every extent the first tensor read that has it."""
    found: dict[str, tuple[str, int]] = {}
    for read in plan.reads():
        for dim, extent in enumerate(read.extents):
            found.setdefault(extent, (read.name, dim))
    return [(name, read, dim) for name, (read, dim) in found.items()]


def _arguments(plan: KernelPlan, reads: tuple[TensorRead, ...]) -> list[str]:
    """What is passed for each of the kernel's arguments."""
    values: dict[str, str] = {"order_ptr": "order"}
    for row in plan.row_outputs():
        name = row.pointer.removesuffix("_ptr")
        values[row.pointer] = f'outputs["{row.output.name}"]'
        values |= {
            stride: f"{name}_strides[{row.output.view.roles.index(role)}]" for role, stride in row.strides
        }
    for read in reads:
        values[f"{read.name}_ptr"] = f'tensors["{read.tensor}"]'
        for dim, name in read.strides:
            values[name] = f"{read.name}_strides[{dim}]"
    return [values.get(name, name) for name, _ in plan.signature()]


def _summary(plan: KernelPlan) -> str:
    schedule = plan.verified.schedule
    roles = ", ".join(f"{p.name} ({p.warps} warps, {p.registers} registers)" for p in schedule.partitions)
    slots = (
        [f"Ring of {plan.depth} slots"]
        if len(schedule.rings) == 1
        else [f"{n} of {d} slots" for n, d in schedule.rings]
    )
    rings = ", ".join(slots)
    return (
        f"Tile {plan.s.describe()}.\nPartitions: {roles}.\n"
        f"{rings}; initiation interval {schedule.ii} cycles; "
        f"predicted {schedule.prediction.microseconds:.1f} us on {schedule.machine}."
    )


def _shared(plan: KernelPlan) -> dict[str, Any]:
    """What every kernel's template needs: its head, its epilogue, its launcher."""
    region, s, schedule = plan.program.region, plan.s, plan.verified.schedule
    reads = plan.reads()
    outputs = [_output(plan, output) for output in region.outputs]
    piece = text.write(plan.piece())
    inputs_read = list(dict.fromkeys(read.tensor for read in reads))
    workers = schedule.partitions[1:]
    return {
        "name": region.name,
        "summary": _summary(plan),
        "doc": printable_lines(region.doc),
        "boxes": _boxes(plan),
        "register_layouts": _register_layouts(plan),
        "consumer_warps": s.consumer_warps,
        "uses_products": True,
        "folds": any(box.fold for box in _boxes(plan)),
        "mma_k": 256 // region.operand_dtype.bits,
        **called(piece),
        "uses_lane_sums": False,
        "tile_order": "",
        "has_batch": plan.has_batch,
        "pieces": s.pieces,
        "persistent": s.persistent,
        "piece": piece,
        "sizes": ", ".join(f'"{name}"' for name, kind in plan.signature() if kind == '"i32"'),
        "parameters": [name for name, _ in plan.signature()],
        "worker_warps": [p.warps for p in workers],
        "worker_registers": [p.registers for p in workers],
        "base_registers": schedule.base_registers,
        "signature": plan.signature(),
        "reads": reads,
        "extents": _extents(plan),
        "outputs": outputs,
        "tile_rows": s.tile_rows,
        "tile_depth": s.depth,
        "counts": count_lines(plan),
        "tiles": integer_text(tiles(plan), PYTHON),
        "checks": check_lines(plan),
        "arguments": _arguments(plan, reads),
        "splits": any(read.parts for read in reads) or any(output.parts for output in outputs),
        "returns": ", ".join(output.tensor for output in outputs),
        "launcher": launcher_text(),
        **calls(inputs_read, [output.tensor for output in outputs]),
    }


def _products(plan: KernelPlan) -> dict[str, Any]:
    """What the device part needs where the loop is products alone."""
    storing = store_warp.parameters(plan) if plan.staged().barriers else []
    return {
        "device": "products.jinja",
        "operand_layout": False,
        "constants": [*_constants(plan), *_numbers(text.write(plan.piece()))],
        "coordinates": coordinates(plan),
        "body_indent": 8 if plan.s.persistent else 4,
        "loader_parameters": _loader_parameters(plan),
        "loader_body": _loader_body(plan),
        "epilogue_parameters": epilogue_parameters(plan),
        "consumer_parameters": _consumer_parameters(plan),
        "consumer_body": consumer_body(plan),
        "first_step": "index * k_iterations" if plan.in_turns else "0",
        "first_tile": "gl.program_id(0)" + (" + index * gl.num_programs(0)" if plan.in_turns else ""),
        "tile_stride": ("CONSUMERS * " if plan.in_turns else "") + "gl.num_programs(0)",
        "registers": plan.all_registers(),
        "allocations": _allocations(plan),
        "barriers": _barriers(plan),
        "store_warp_parameters": storing,
        "store_warp_body": store_warp.body(plan) if storing else "",
        "store_warp_leaves": store_warp.leaves_stores(plan),
        "partitions": text.partitions(
            plan, _loader_parameters(plan), _consumer_parameters(plan), set(_buffers(plan)), storing
        ),
        "early_reads": bool(plan.inputs() or plan.held()),
    }


def _k_blocks(plan: KBlockPlan) -> dict[str, Any]:
    """What the device part needs where the loop computes values."""
    device = k_block_context(plan)
    written = device["loops"] + text.write(plan.piece())
    layouts = [*_register_layouts(plan), *k_block_layouts(plan)]
    return device | {
        "operand_layout": True,
        "register_layouts": layouts,
        "constants": [*k_block_constants(plan), *_numbers(written)],
        **called(written),
        "uses_lane_sums": "lane_sums(" in written,
        "uses_by_lanes": "by_lanes(" in written,
    }


def _rows(plan: RowsPlan) -> dict[str, Any]:
    """What the device part needs where rows stream."""
    return rows_context(plan) | {"constants": [*rows_constants(plan), *_numbers(text.write(plan.piece()))]}


def _context(plan: KernelPlan) -> dict[str, Any]:
    if isinstance(plan, RowsPlan):
        return _shared(plan) | _rows(plan)
    return _shared(plan) | (_k_blocks(plan) if isinstance(plan, KBlockPlan) else _products(plan))


def emit(verified: VerifiedSchedule) -> str:
    """The source of `kernel.py` for a verified schedule. The same schedule gives the same bytes."""
    plan = kernel_plan(verified)
    template = text.environment().get_template("kernel.py.jinja")
    return template.render(kernel=_context(plan), version=__version__)


def expected_wgmma(verified: VerifiedSchedule) -> int:
    """Tensor instructions that the compiled kernel has to contain, of all consumers together.

    Each consumer is compiled on its own; passes of the prologue and the drain repeat its products.
    """
    plan = kernel_plan(verified)
    if isinstance(plan, RowsPlan):
        return 0
    if isinstance(plan, KBlockPlan):
        return _k_block_wgmma(plan)
    loop = plan.loop()
    pauses = plan.verified.schedule.buffers.inputs if plan.refill.apart else int(plan.refill.first > 0)
    steady = loop.steady * (1 + pauses)
    products = [one for one in (*loop.prologue, *steady, *loop.drain) if isinstance(one, Mma)]
    region, s = plan.program.region, plan.s
    whole = mma_instructions(region.operand_dtype, s, verified.machine)
    count = sum(whole * (one.part or s.depth) // s.depth for one in products)
    if s.tail:  # each product meets the last K-block once
        short = mma_instructions(region.operand_dtype, replace(s, depth=s.tail), verified.machine)
        count -= (whole - short) * sum(op.kind is OpKind.MMA and op.consumer == 0 for op in plan.program.loop)
    return count * s.consumers


def _k_block_wgmma(plan: KBlockPlan) -> int:
    """The same where the loop computes values: each loop over K-blocks has its products."""
    s, region, machine = plan.s, plan.program.region, plan.verified.machine
    deep = {
        c.name: inner_extent(region, machine) if c.spans == K_BLOCK else s.depth for c in region.contractions
    }
    groups = s.consumer_warps // machine.warps_per_warpgroup
    count = 0
    for loop in (stretch.loop for stretch in plan.stretches()):
        for one in (*loop.prologue, *loop.steady, *loop.drain):
            if isinstance(one, Mma):
                product = next(c for c in region.contractions if plan.writer().name(c.name) == one.target)
                count += (
                    product_instructions(s.rows, deep[product.name], region.operand_dtype, machine) // groups
                )
    return count * s.consumers
