"""From a verified schedule to source text: a plan's functions, constants and launcher through one skeleton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wsopt import __version__
from wsopt.emit import text
from wsopt.emit.addresses import contiguous_place
from wsopt.emit.called import called, numbers
from wsopt.emit.calls import calls
from wsopt.emit.channels import allocations, barrier_groups
from wsopt.emit.constants import accumulator_layouts, constants
from wsopt.emit.consumer import Consumer
from wsopt.emit.extents import extent_texts, parts_text
from wsopt.emit.functions import functions, grid_parameters, partitions
from wsopt.emit.launch_counts import check_lines, count_lines
from wsopt.emit.plan import KernelPlan, TensorRead
from wsopt.emit.ranges import range_lines
from wsopt.emit.tensors import TORCH, Box
from wsopt.frontend.types import Output
from wsopt.program.ranges import narrowing
from wsopt.runtime.text import launcher_text, tile_order_text
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
        [f"Ring of {schedule.rings[0][1]} slots"]
        if len(schedule.rings) == 1
        else [f"{n} of {d} slots" for n, d in schedule.rings]
    )
    rings = ", ".join(slots)
    return (
        f"Tile {plan.s.describe()}.\nPartitions: {roles}.\n"
        f"{rings}; initiation interval {schedule.ii} cycles; "
        f"predicted {schedule.prediction.microseconds:.1f} us on {schedule.machine}."
    )


def _device(plan: KernelPlan) -> dict[str, Any]:
    """The device functions, and the constants and layouts that they name."""
    s, schedule, names = plan.s, plan.verified.schedule, set[str]()
    written = functions(plan, names)
    channels, workers = plan.channels(), schedule.partitions[1:]
    ranges = {"lines": range_lines(plan), "own": Consumer(plan).own_k_blocks}
    grid = {
        "parameters": grid_parameters(plan),
        "outer": plan.outer,
        "columns": plan.column() != "0",
        "longest_last": plan.longest_last,
    }
    return {
        **called(names),
        "constants": [*constants(plan), *numbers(names)],
        "boxes": [*plan.moved(), *plan.inputs().values(), *plan.outputs().values()],
        "register_layouts": accumulator_layouts(plan),
        "operand_layout": plan.ranged,
        "uses_products": not plan.streams_rows,
        "consumer_warps": s.consumer_warps,
        "mma_k": 256 // plan.program.region.operand_dtype.bits,
        "pieces": s.pieces,
        "grid": grid,
        "ranges": ranges if plan.ranged else None,
        "functions": written,
        "partitions": partitions(plan, written),
        "allocations": list(allocations(channels, s.consumers)),
        "barriers": barrier_groups(channels, s.consumers),
        "worker_warps": [p.warps for p in workers],
        "worker_registers": [p.registers for p in workers],
        "base_registers": schedule.base_registers,
    }


def _launcher(plan: KernelPlan) -> dict[str, Any]:
    """How the kernel is called."""
    region, s, reads = plan.program.region, plan.s, plan.reads()
    outputs = [_output(plan, output) for output in region.outputs]
    inputs_read = list(dict.fromkeys(read.tensor for read in reads))
    dealt = bool(plan.walk())
    return {
        "name": region.name,
        "summary": _summary(plan),
        "doc": printable_lines(region.doc),
        "folds": any(box.fold for box in (*plan.moved(), *plan.outputs().values())),
        "tile_order": tile_order_text() if dealt else "",
        "bounds": narrowing(plan.program.bounds),
        "longest_last": plan.longest_last,
        "persistent": s.persistent,
        "sizes": ", ".join(f'"{name}"' for name, kind in plan.signature() if kind == '"i32"'),
        "parameters": [name for name, _ in plan.signature()],
        "signature": plan.signature(),
        "reads": reads,
        "extents": _extents(plan),
        "outputs": outputs,
        "tile_rows": s.tile_rows,
        "tile_depth": s.depth,
        "counts": count_lines(plan),
        "checks": check_lines(plan),
        "arguments": _arguments(plan, reads),
        "splits": any(read.parts for read in reads) or any(output.parts for output in outputs),
        "returns": ", ".join(output.tensor for output in outputs),
        "launcher": launcher_text(),
        **calls(inputs_read, [output.tensor for output in outputs]),
    }


def emit(verified: VerifiedSchedule) -> str:
    """The source of `kernel.py` for a verified schedule. The same schedule gives the same bytes."""
    plan = KernelPlan(verified)
    template = text.environment().get_template("kernel.py.jinja")
    return template.render(kernel=_device(plan) | _launcher(plan), version=__version__)


def expected_wgmma(verified: VerifiedSchedule) -> int:
    """Tensor instructions that the compiled kernel has to contain, of all consumers together.

    Each consumer is compiled on its own; passes of the prologue and the drain repeat its products.
    """
    return Consumer(KernelPlan(verified)).wgmma() * verified.program.structure.consumers


def covering_k_blocks(verified: VerifiedSchedule) -> int:
    """The least K-blocks of a tile with which every pass of a consumer's loop runs."""
    return Consumer(KernelPlan(verified)).covering_k_blocks()
