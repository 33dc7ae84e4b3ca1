"""Operands of 8 bits that a transform warpgroup widens: a K-block goes from one slot to another, rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.instructions import FENCE
from wsopt.emit.operations import Operations
from wsopt.emit.plan import KernelPlan
from wsopt.emit.tensors import GLUON, Box, tile_view
from wsopt.graph.types import DType
from wsopt.program.ids import OpKind
from wsopt.program.program import TileOp
from wsopt.program.row_layout import row_layout
from wsopt.schedule.budget import transform_registers


def widened(plan: KernelPlan) -> tuple[Box, ...]:
    """The boxes of what is widened."""
    return tuple(box for box in plan.computed if any(not op.items for op in _makers(plan)))


def _makers(plan: KernelPlan) -> Iterator[TileOp]:
    return (op for op in plan.program.of(OpKind.ELEMENTWISE) if op.apart)


def _layout(box: Box) -> str:
    return f"{box.name}_REGISTERS"


def _rows(plan: KernelPlan, box: Box) -> int:
    """Rows of a box that are brought into registers at a time: 64 elements a thread take 48 registers before and
    after, and ptxas fits the role in 96; with 32 elements it is 64.
    """
    rows, columns = box.shape[-2:]
    threads = plan.verified.machine.warps_per_warpgroup * plan.verified.machine.threads_per_warp
    elements = 1 << (transform_registers(plan.s) * 2 // 3).bit_length() - 1
    return min(rows, max(1, elements * threads // columns))


def layouts(plan: KernelPlan) -> Iterator[tuple[str, str, str]]:
    """How rows of what is widened lie in a transform warpgroup's registers."""
    machine = plan.verified.machine
    for box in widened(plan):
        found = row_layout(box.bits, _rows(plan, box), box.shape[-1], machine.warps_per_warpgroup, machine)
        yield (
            _layout(box),
            found.text(),
            f"how rows of {box.view.tensor} lie in a transform warpgroup's registers",
        )


def _through(narrow: Box, wide: Box) -> tuple[str, ...]:
    """The types through which an element is converted. From f8 to bf16 hardware has no instruction; to f16, from that
    to f32, and to bf16 it has, which take half as long as from f16 to bf16 at once. All numbers of f8 are numbers of
    each.
    """
    if narrow.view.dtype.is_float and wide.view.dtype is DType.BF16:
        return (GLUON[DType.F16], GLUON[DType.F32], GLUON[DType.BF16])
    return (wide.gluon,)


def lines(plan: KernelPlan, own: Operations, op: TileOp) -> Iterator[str]:
    """The lines that widen a K-block of an operand, part by part of its tile."""
    assert op.output is not None, "what is computed apart is left in a slot"
    for (given, narrow, _), (made, wide, _) in zip(
        own.buffers(op.inputs[0], 0), own.buffers(op.output, 0), strict=True
    ):
        first, rows, extent = wide.view.roles[0], _rows(plan, wide), wide.shape[0]
        source, target = tile_view(given, narrow, first), tile_view(made, wide, first)
        converted = "".join(f".to({kind})" for kind in _through(narrow, wide))
        for begin in range(0, extent, rows):
            part = f".slice({begin}, {rows}, dim=0)" if rows < extent else ""
            yield f"{target}{part}.store({source}{part}.load({_layout(wide)}){converted})"
    yield FENCE
