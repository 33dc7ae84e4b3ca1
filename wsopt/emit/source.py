"""From a kernel plan to source text: instructions through their macros, the rest through one skeleton."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wsopt import __version__
from wsopt.emit import inputs, store_warp, text
from wsopt.emit.called import called
from wsopt.emit.held import layout_constants
from wsopt.emit.instructions import Advance, Expect, Mma, WaitEmpty
from wsopt.emit.integers import PYTHON
from wsopt.emit.integers import text as integer_text
from wsopt.emit.k_block_plan import KBlockPlan
from wsopt.emit.k_block_source import k_block_constants, k_block_context, k_block_layouts
from wsopt.emit.kernel_plan import kernel_plan
from wsopt.emit.launch_counts import tiles
from wsopt.emit.launcher import launcher_context
from wsopt.emit.plan import KernelPlan
from wsopt.emit.product_body import consumer_body, coordinates, epilogue_parameters, starts_stores
from wsopt.emit.recipe_of import recipe_of
from wsopt.emit.rows_plan import RowsPlan
from wsopt.emit.rows_source import rows_constants, rows_context
from wsopt.emit.tensors import Box
from wsopt.frontend.types import K_BLOCK, Role
from wsopt.perf.costs import mma_instructions
from wsopt.perf.k_block_costs import inner_extent, product_instructions
from wsopt.program.beside import k_block_layout
from wsopt.program.program import OpKind
from wsopt.schedule.verified import VerifiedSchedule


def printable_lines(foreign: str) -> list[str]:
    """Foreign text as lines that can stand in a comment and cannot end it."""
    lines = foreign.splitlines()
    return ["".join(c if c.isprintable() else " " for c in line) for line in lines]


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
        layout = k_block_layout(plan.program.region, s, plan.verified.machine).text()
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
    """What every kernel's template needs: its head, its epilogue."""
    region, s, schedule = plan.program.region, plan.s, plan.verified.schedule
    piece = text.write(plan.piece())
    workers = schedule.partitions[1:]
    return {
        "name": region.name,
        "summary": _summary(plan),
        "doc": printable_lines(region.doc),
        "boxes": _boxes(plan),
        "register_layouts": _register_layouts(plan),
        "consumer_warps": s.consumer_warps,
        "uses_products": True,
        "mma_k": 256 // region.operand_dtype.bits,
        **called(piece),
        "uses_lane_sums": False,
        "has_batch": plan.has_batch,
        "pieces": s.pieces,
        "persistent": s.persistent,
        "piece": piece,
        "worker_warps": [p.warps for p in workers],
        "worker_registers": [p.registers for p in workers],
        "base_registers": schedule.base_registers,
        "tiles": integer_text(tiles(plan), PYTHON),
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
    launch = launcher_context(recipe_of(plan))
    template = text.environment().get_template("kernel.py.jinja")
    return template.render(kernel=_context(plan), launch=launch, version=__version__)


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
    whole = mma_instructions(region, s, verified.machine)
    count = sum(whole * (one.part or s.depth) // s.depth for one in products)
    if s.tail:  # each product meets the last K-block once
        short = mma_instructions(region, replace(s, depth=s.tail), verified.machine)
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
                count += product_instructions(s.rows, deep[product.name], region, machine) // groups
    return count * s.consumers
