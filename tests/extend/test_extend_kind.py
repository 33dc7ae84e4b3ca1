"""A new kind of operation is one entry: the solver places it, the emitter writes its lines, and the kernel runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from emit_builds import MARGIN, Emitted, build, case, graph_of, structure

from wsopt.checker import faults
from wsopt.codegen.aot import compile_kernel
from wsopt.emit.source import expected_instructions
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.cut import KINDS, KindEntry, Step, When
from wsopt.machine.types import Machine
from wsopt.perf.price import lower
from wsopt.program.facts import Cost
from wsopt.program.ids import OpKind
from wsopt.program.program import Unit
from wsopt.program.types import Structure
from wsopt.report.words import named_ops


def before_the_product(
    steps: Sequence[Step], region: Region, s: Structure, machine: Machine
) -> Iterator[Step]:
    """The rows of a K-block are read and written back before the product that reads them."""
    (product,) = [step for step in steps if step.kind is OpKind.MMA]
    latency, nbytes = machine.latency, s.rows * s.depth * region.operand_dtype.bits // 8
    port = math.ceil(2 * nbytes / machine.shared_memory_bytes_per_cycle)
    cycles = math.ceil(port + latency.smem_load + latency.smem_store + latency.fence)
    rectify = Step(OpKind.ADDED, "rectify", Cost(cycles, cycles, Unit.SHARED, port), product.inputs[:1])
    for step in steps:
        if step is product:
            yield rectify
            yield replace(step, after=(*step.after, (OpKind.ADDED, "rectify", When.SAME)))
        else:
            yield step


RECTIFY = KindEntry(
    name="rectify",
    words="rectify the rows",
    insert=before_the_product,
    text="""\
rows_layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
{{ tiles[0] }}.store(gl.maximum({{ tiles[0] }}.load(rows_layout), 0.0).to({{ tiles[0] }}.dtype))
fence_async_shared()""",
)


def product(g: GraphBuilder) -> Symbol:
    """y = x w'."""
    x, w = g.input("x", (200, 264), "bf16"), g.input("w", (136, 264), "bf16", constant=True)
    return g.cast(g.matmul(x, w, transpose_b=True, name="p"), dtype="bf16", name="y")


def of_rectified(g: GraphBuilder) -> Symbol:
    """y = relu(x) w'."""
    x, w = g.input("x", (200, 264), "bf16"), g.input("w", (136, 264), "bf16", constant=True)
    rectified = g.cast(g.relu(x), dtype="bf16")
    return g.cast(g.matmul(rectified, w, transpose_b=True, name="p"), dtype="bf16", name="y")


def made() -> Emitted:
    return build(graph_of(product), structure(64, 64, consumers=2))


@pytest.fixture(scope="module")
def rectified() -> Emitted:
    with KINDS.added(RECTIFY):
        return made()


def test_the_solver_places_it(rectified: Emitted) -> None:
    schedule, program = rectified.verified.schedule, rectified.verified.program
    for consumer in range(2):
        op = program.named(f"rectify@{consumer}")
        assert schedule.place(op.id).partition == f"consumer{consumer}"
        ready = schedule.start(op.id) + op.latency
        assert schedule.start(program.named(f"mma:p@{consumer}").id) >= ready
        assert schedule.start(program.named(f"release@{consumer}").id) >= ready
        copied = program.named(f"load:x@{consumer}")
        assert schedule.start(op.id) >= schedule.start(copied.id) + copied.latency


def test_the_checker_asks_for_it(rectified: Emitted) -> None:
    before, machine = made().verified, rectified.verified.machine
    with KINDS.added(RECTIFY):
        program = lower(before.program.region, before.program.structure, machine)
        (fault, *_) = faults(before.schedule, program, machine, MARGIN)
    assert "the loop has" in fault
    assert "'rectify@0', 'rectify@1'" in fault


def test_reports_name_it(rectified: Emitted) -> None:
    with KINDS.added(RECTIFY):
        words = [one.words for one in named_ops(rectified.verified) if one.key.startswith("X")]
    assert words == ["rectify the rows, consumer 0", "rectify the rows, consumer 1"]


def test_its_kernel_computes_it(rectified: Emitted) -> None:
    lines = [line.strip() for line in rectified.source.splitlines()]
    at = next(number for number, line in enumerate(lines) if "gl.maximum(x_ring" in line)
    assert (lines[at + 1], lines[at + 2][:18]) == ("fence_async_shared()", "p = warpgroup_mma(")
    assert case(graph_of(of_rectified)).fault(rectified.source, 3) is None
    assert "y is wrong" in (case(graph_of(product)).fault(rectified.source, 1) or "")


def test_the_interpreter_holds_its_lines_to_the_rules(rectified: Emitted) -> None:
    without = rectified.source.replace("            fence_async_shared()\n", "")
    told = case(graph_of(of_rectified)).fault(without, 1)
    assert told is not None
    assert "not fenced before the async proxy reads it" in told


@pytest.mark.compiler
def test_it_assembles(rectified: Emitted) -> None:
    compiled = compile_kernel(rectified.source, architecture=rectified.verified.machine.architecture)
    assert (compiled.spill_loads, compiled.spill_stores, compiled.warnings) == (0, 0, ())
    with KINDS.added(RECTIFY):
        assert compiled.tensor_instructions == expected_instructions(rectified.verified)


def test_the_page_on_extending_shows_this_entry() -> None:
    own = Path(__file__).read_text(encoding="utf-8")
    entry = own[own.index("def before_the_product(") :].partition("\n\n\ndef product")[0]
    page = Path(__file__).parents[2] / "docs" / "extend.md"
    assert f"```python\n{entry}\n```" in page.read_text(encoding="utf-8")
