"""From a verified schedule to source text: a plan's functions, constants and launcher through one skeleton."""

from __future__ import annotations

from typing import Any

from wsopt import __version__
from wsopt.codegen.oracle import Expectation
from wsopt.emit import (
    dynamic,
    flat,
    over_rows,
    pairs,
    records,
    segments,
    shares,
    splits,
    tensor_sums,
    tensor_values,
    text,
    threads,
)
from wsopt.emit.called import COLUMNS_FROM, OWN, called, exponential, numbers
from wsopt.emit.channels import allocations, barrier_groups
from wsopt.emit.combination import parts_of
from wsopt.emit.constants import accumulator_layouts, constants
from wsopt.emit.consumer import Consumer
from wsopt.emit.consumer_of import consumer_of
from wsopt.emit.epilogue import epilogue
from wsopt.emit.functions import Function, launched, partitions
from wsopt.emit.grid import LARGEST_QUOTIENT, divided_by_f32, divides, grid_parameters
from wsopt.emit.launcher import launcher_context
from wsopt.emit.loader import loader
from wsopt.emit.operations import Operations
from wsopt.emit.plan import KernelPlan
from wsopt.emit.plan_of import plan_of
from wsopt.emit.quantized import Unpacking, narrow_functions, unpacking
from wsopt.emit.ranges import range_lines
from wsopt.emit.recipe_of import recipe_of
from wsopt.emit.stamps import Trace
from wsopt.emit.store_warp import store_warp
from wsopt.emit.sums import operand_layouts
from wsopt.emit.transform import transform
from wsopt.errors import LoweringError
from wsopt.graph.types import DType
from wsopt.program.ids import OpKind
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.targets import target_of
from wsopt.tensors.views import Packing

_RELEASE = "3.6"
"""The first release of Triton that kernels are compiled by."""


def printable_lines(foreign: str) -> list[str]:
    """Foreign text as lines that can stand in a comment and cannot end it."""
    lines = foreign.splitlines()
    return ["".join(c if c.isprintable() else " " for c in line) for line in lines]


def _summary(plan: KernelPlan) -> str:
    schedule = plan.verified.schedule
    roles = ", ".join(f"{p.name} ({p.warps} warps, {p.registers} registers)" for p in schedule.partitions)
    slots = (
        ["No ring"]
        if not schedule.rings
        else [f"Ring of {schedule.rings[0][1]} slots"]
        if len(schedule.rings) == 1
        else [f"{n} of {d} slots" for n, d in schedule.rings]
    )
    rings = ", ".join(slots)
    return (
        f"Tile {plan.s.describe()}.\nPartitions: {roles}.\n"
        f"{rings}; initiation interval {schedule.ii} cycles; "
        f"predicted {schedule.prediction.microseconds:.1f} us on {schedule.machine}."
    )


def _shares_columns(plan: KernelPlan) -> bool:
    """Whether a tile in tensor memory lies in another's columns."""
    return any(value.within is not None for value in plan.program.values)


def _mma_warp(plan: KernelPlan, operations: Operations) -> Function:
    """The function of the warp that issues products into tensor memory."""
    if plan.values_apart:
        return tensor_values.mma_warp(plan, operations)
    return tensor_sums.mma_warp(plan, operations)


def _device(plan: KernelPlan, consumer: Consumer) -> dict[str, Any]:
    """The device functions, and the constants and layouts that they name."""
    written = _functions(plan, consumer)
    names = frozenset[str]().union(*(function.called for function in written))
    return {
        **_head(plan),
        **_called(plan, names),
        **_tiles(plan),
        **_launched(plan, written),
        "constants": [*constants(plan, consumer), *numbers(names), *records.constants(plan)],
    }


def _functions(plan: KernelPlan, consumer: Consumer) -> list[Function]:
    """The functions of the kernel's partitions and those that they call, in the order in which they are written."""
    parts = parts_of(plan)
    return [
        *segments.functions(plan),
        *(loader(plan, number) for number in range(len(plan.loaders))),
        *([] if plan.loops_over_tiles else [epilogue(plan)]),
        *([_mma_warp(plan, consumer.operations)] if plan.sums_apart else []),
        *(transform(plan, number) for number in range(plan.s.transforms)),
        *([tensor_values.correction(plan)] if plan.s.corrections else []),
        *([Function("combine", parts.parameters, *parts.body())] if parts else []),
        *([over_rows.end_function(plan)] if plan.carried else []),
        consumer.function(),
        *([store_warp(plan)] if plan.stores_apart else []),
    ]


def _head(plan: KernelPlan) -> dict[str, Any]:
    """What the kernel is called, its docstring, and what it imports of Triton."""
    target, whole = target_of(plan.verified.machine), plan.program.whole
    return {
        "name": whole.name,
        "summary": _summary(plan),
        "doc": printable_lines(whole.doc),
        "release": pairs.RELEASE if plan.s.paired else _RELEASE,
        "module": target.module,
        "imports": target.imports(products=not plan.loops_over_tiles, shared_columns=_shares_columns(plan)),
    }


def _called(plan: KernelPlan, names: frozenset[str]) -> dict[str, Any]:
    """The functions of the kernel's own that those of its partitions call, among some names."""
    return {
        **called(names),
        "own_numbers": plan.values_apart or plan.s.flat or OWN in names,
        "uses_columns_from": COLUMNS_FROM in names or (plan.s.flat and plan.program.long_rows),
        "part_columns": flat.columns(plan, flat.tile_columns(plan)),
        "narrow": narrow_functions(names),
        "unpackings": _unpackings(plan, names),
        "spreads": "spread" in names,
        "exponential": exponential(names, plan.s.exp2_eighths),
    }


def _tiles(plan: KernelPlan) -> dict[str, Any]:
    """How tiles lie in memory and in registers, and which of them a block takes."""
    s, whole = plan.s, plan.program.whole
    rowless = plan.own_k_blocks and plan.live.rowless
    ranges = {"lines": range_lines(plan), "rowless": rowless, "scalars": [*plan.scalars.values()]}
    grid = {
        "by_axes": bool(plan.launch_axes),
        "parameters": grid_parameters(plan),
        "outer": plan.outer,
        "columns": plan.columns,
        "in_order": plan.in_order,
        "divides": divides(plan),
        "by_f32": LARGEST_QUOTIENT if divided_by_f32(plan) else 0,
        "longest_last": plan.longest_last,
    }
    return {
        "boxes": [*plan.moved, *plan.computed, *plan.inputs.values(), *plan.outputs.values()],
        "register_layouts": accumulator_layouts(plan),
        "operand_layouts": operand_layouts(s) if plan.computes else (),
        "shares_columns": _shares_columns(plan),
        "tf32": bool(plan.summed) and whole.dtype is DType.F32,
        "mma_k": 256 // whole.dtype.bits,
        "subtiles": 1 if plan.sums_apart or s.splits > 1 else s.subtiles,
        "splits": splits.device(plan),
        "shares": shares.device(plan),
        "over_rows": over_rows.device(plan),
        "dynamic": s.dynamic,
        "grid": grid,
        "ranges": ranges if plan.ranged else None,
        "counts_slots": plan.counts_slots,
        "goes_back": s.retained > 0,
        "staggered": s.staggered,
        "by_threads": threads.by_threads(plan),
        "flat_loads": plan.s.flat and plan.s.resident,
        "flat_stores": plan.s.flat and any(one.of.by_threads for one in plan.outputs_by_address),
    }


def _launched(plan: KernelPlan, written: list[Function]) -> dict[str, Any]:
    """The partitions with their warps and registers, and the memory and barriers that a block sets up for them."""
    default, *workers = launched(plan)
    return {
        "functions": written,
        "partitions": partitions(plan, written),
        "allocations": list(allocations(plan)),
        "barriers": barrier_groups(plan),
        "traced": plan.trace is not None,
        "paired": plan.s.paired,
        "default_warps": default.warps,
        "consumer_warps": plan.s.consumer_warps,
        "worker_warps": [p.warps for p in workers],
        "worker_registers": [p.registers for p in workers],
        "base_registers": plan.verified.schedule.base_registers,
    }


def _unpackings(plan: KernelPlan, names: frozenset[str]) -> list[Unpacking]:
    """The functions of the kernel's own that take packed fragments apart, among some names."""
    views = (one.view for one in plan.program.streamed if one.view.packing is Packing.FRAGMENTS)
    found = {one.name: one for one in (unpacking(view, plan.program.whole.dtype) for view in views)}
    return [one for name, one in found.items() if name in names]


def emit(verified: VerifiedSchedule, trace: Trace | None = None) -> str:
    """The source of `kernel.py` for a verified schedule. The same schedule gives the same bytes.

    With a `trace` it has stamps between its instructions, and the records as one output more (`records.py`).
    Raises LoweringError for a trace that is run of a kernel whose blocks do not have whole tiles in turns.
    """
    plan = plan_of(verified, trace)
    if trace is not None and trace.run and (reason := _untraced(plan)):
        raise LoweringError(f"graph {plan.program.whole.name}: {reason}")
    consumer = consumer_of(plan)
    template = text.environment().get_template("kernel.py.jinja")
    launch = launcher_context(recipe_of(plan, consumer.least))
    return template.render(kernel=_device(plan, consumer), launch=launch, version=__version__)


def _untraced(plan: KernelPlan) -> str:
    """Why a kernel that runs has no stamps, and what to do; empty if it has."""
    told = "and the stamps of a traced kernel are of"
    if plan.split:
        over, asked = ("blocks", "shares=no") if plan.s.shares else (f"{plan.s.splits} blocks", "splits=1")
        return (
            f"its sums are split over {over}, {told} whole tiles: trace a build made with `--under {asked}`"
        )
    if plan.carried:
        return (
            f"its blocks leave parts of sums over the rows, {told} tiles alone: trace a build of the graph without "
            "those outputs"
        )
    if plan.s.paired:
        return f"pairs of blocks work on its tiles, {told} single blocks: trace a build made with `--under paired=no`"
    if plan.s.resident:
        why = f"an SM has several of its blocks at a time, {told} one that has it to itself"
        streams = any(source.is_tile for source in plan.program.after.vectors)
        return f"{why}: trace a build made with `--under occupancy=0`" if streams else why
    if plan.s.dynamic:
        return f"blocks take tiles at run time, {told} tiles in turns: trace a build made with `--under dynamic=no`"
    return ""


def expected_instructions(verified: VerifiedSchedule) -> int:
    """Tensor instructions that the compiled kernel has to contain, of all consumers together.

    Each consumer is compiled on its own; passes of the prologue and the drain repeat its products.
    """
    plan = plan_of(verified)
    if plan.sums_apart:
        s, products = plan.s, plan.program.of(OpKind.MMA)  # a last K-block that ends early is text of its own
        return sum(op.instructions + op.instructions * s.tail // s.depth for op in products)
    return consumer_of(plan).tensor_instructions() * plan.s.consumers


def expectation(verified: VerifiedSchedule) -> Expectation:
    """Demands on the compiled kernel: its tensor instructions, and the most shared and tensor memory."""
    columns = verified.program.tensor_columns * verified.schedule.buffers.sums
    # PTX ISA, tcgen05.alloc: a power of two, and 32 at least.
    allocated = max(32, 1 << (columns - 1).bit_length()) if columns else 0
    # In the loop of the warp that issues, products of several K-blocks stand under conditions on its counter, which
    # LLVM resolves by peeling where it takes the body for small.
    peelable = sum(op.instructions for op in verified.program.of(OpKind.MMA)) if columns else 0
    program = verified.program
    return Expectation(
        expected_instructions(verified), verified.schedule.shared_memory_bytes, allocated, peelable,
        dynamic.lone_arrivals(program), once=program.structure.resident and not program.long_rows,
    )  # fmt: skip


def covering_k_blocks(verified: VerifiedSchedule) -> int:
    """The least K-blocks of a tile with which every pass of a consumer's loop runs, and a loading warp's loop where
    a block's only tile has slots that are filled ahead.
    """
    plan = plan_of(verified)
    least = consumer_of(plan).covering_k_blocks()
    if (plan.s.persistent and plan.s.parted) or not plan.constants:
        return least
    return max(least, 1 + max(slots for _, slots in verified.schedule.rings))
