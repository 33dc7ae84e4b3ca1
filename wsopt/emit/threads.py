"""Rows that no SM holds, of which each thread reduces its own elements of all parts.

What a thread keeps of a row is reduced as if its elements were a row of their own, so that nothing is exchanged
between threads until the last part. Then they come together as parts of a loop do (`program/combination.py`): the
largest of their maxima is the row's, and each thread's sums are rescaled from its own maximum to that.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.emit.arithmetic import Arithmetic
from wsopt.emit.called import reduction
from wsopt.emit.expressions import Operand
from wsopt.emit.operands import rows_layout
from wsopt.emit.plan import KernelPlan
from wsopt.emit.scope import ROW
from wsopt.graph.types import DType
from wsopt.program.combination import Combination, kept_by_threads
from wsopt.program.ids import AGAIN
from wsopt.tensors.statements import BEFORE, Item
from wsopt.tensors.views import FULL

_LAYOUT = "THREADS_LAYOUT"
OWN = f"gl.SliceLayout(1, gl.SliceLayout(3, {_LAYOUT}))"
"""The layout of a value of each row and thread."""


def by_threads(plan: KernelPlan) -> bool:
    """Whether threads keep what they have reduced of rows until the last part."""
    return plan.program.long_rows and bool(plan.program.lane_sums)


def _root(plan: KernelPlan, name: str) -> str:
    """What identifiers made of a value's begin with."""
    return plan.value(name).rstrip("_")


def whole_name(plan: KernelPlan, name: str) -> str:
    """The identifier of a reduction behind the last part."""
    return plan.names(f"whole:{name}", f"{_root(plan, name)}_row") if by_threads(plan) else plan.value(name)


def _wide(plan: KernelPlan, name: str) -> str:
    """The identifier of a row's maximum for all of its threads."""
    return plan.names(f"wide:{name}", f"{_root(plan, name)}_wide")


def constants(plan: KernelPlan) -> Iterator[tuple[str, int | str, str]]:
    """Constants that the text names: the threads of a row, and how its elements lie in them."""
    if not by_threads(plan):
        return
    layout = rows_layout(plan)
    threads = layout.lanes[1] * layout.warps[1]
    runs = plan.s.columns // layout.columns
    shape = f"[1, {runs}, 1, {layout.vector}], [{layout.lanes[0]}, 1, {layout.lanes[1]}, 1]"
    warps = f"[{layout.warps[0]}, 1, {layout.warps[1]}, 1]"
    yield "THREADS", threads, "that share a row"
    yield "RUNS", runs, "of neighbours that each of them has of a row"
    why = "a tile of rows as rows, runs, threads, and the neighbours of a run"
    yield _LAYOUT, f"gl.BlockedLayout({shape}, {warps}, [3, 2, 1, 0])", why


def together(plan: KernelPlan) -> Iterator[str]:
    """The lines behind the last part by which the threads of a row bring together what each has."""
    parts = _combination(plan) if by_threads(plan) else None
    if parts is None:
        return
    for name in parts.maxima:
        largest = reduction("max", plan.value(name), 1, keeps_nan=name in parts.keep_nan)
        yield f"{_wide(plan, name)} = gl.expand_dims({largest}, 1)"
        yield f"{whole_name(plan, name)} = {_in_rows(largest)}"
    writer = _writer(plan, parts)
    yield from writer.phase(tuple(one.name for one in parts.statements), lambda _: 0, masked=True)
    for name, factor in parts.sums:
        times = f" * {writer.operand(factor).name}" if factor else ""
        yield f"{whole_name(plan, name)} = {_in_rows(f'gl.sum({plan.value(name)}{times}, axis=1)')}"


def _combination(plan: KernelPlan) -> Combination | None:
    """How what the threads have comes together: by the items of the first pass, which reduces."""
    return kept_by_threads(_first_pass(plan))


def _first_pass(plan: KernelPlan) -> list[Item]:
    """The items of the pass over rows that reduces them."""
    first = (op for op in plan.program.by_consumer[0] if op.id.subject != AGAIN)
    return [item for op in first for item in op.items]


def _in_rows(values: str) -> str:
    return f"gl.convert_layout({values}, gl.SliceLayout(1, ROWS_LAYOUT))"


def _writer(plan: KernelPlan, parts: Combination) -> Arithmetic:
    """Writes each thread's factors: its own maxima are those before, the row's are those of the part."""
    known = {name: Operand(_wide(plan, name), ROW, DType.F32) for name in parts.maxima}
    known |= {name + BEFORE: Operand(plan.value(name), ROW, DType.F32) for name in parts.maxima}
    return Arithmetic(
        items=parts.statements, s=plan.s, name=lambda name, _: plan.names(f"own:{name}", f"{_root(plan, name)}_own"),
        sources=known, tile=FULL, layout="ROWS_LAYOUT", asynchronous=False,
        wanted=frozenset(factor for _, factor in parts.sums if factor), carried=False,
    )  # fmt: skip
