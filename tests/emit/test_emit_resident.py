"""Blocks of one tile each, several on an SM: threads read and store, and there is neither ring nor loader."""

from __future__ import annotations

from dataclasses import replace

import pytest
from emit_builds import Body, build, check_computes, check_shows, graph_of, h200
from test_emit_rows_by_threads import biased, loss, norm, softmax

from wsopt.checker import verify
from wsopt.codegen import compile_kernel
from wsopt.codegen.oracle import verdict
from wsopt.emit.source import emit, expectation
from wsopt.emit.stamps import Trace
from wsopt.errors import CheckError, LoweringError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Sharing, Structure


def wide_norm(g: GraphBuilder) -> Symbol:
    """A layer norm of rows that TMA could copy, whose weight and bias are read behind the reductions."""
    x, w, b = g.input("x", (45, 512), "bf16"), g.input("w", (512,), "bf16"), g.input("b", (512,), "bf16")
    return g.cast(g.layer_norm(x, w, b), "bf16", name="y")


def gate(g: GraphBuilder) -> Symbol:
    """Elements of two tensors, of which a tile has some columns."""
    x, z = g.input("x", (37, 1000), "bf16"), g.input("z", (37, 1000), "bf16")
    return g.cast(g.silu(x) * z, "bf16", name="y")


def narrowed(g: GraphBuilder) -> Symbol:
    return g.cast(g.input("x", (37, 1000), "f32"), "f16", name="y")


def columns(g: GraphBuilder) -> Symbol:
    """Two columns side by side: each is every other element of what is stored."""
    return g.concat(*(g.input(name, (2048, 1), "f32") for name in "ab"), axis=1, name="y")


def cut(rows: int, columns: int, warps: int = 4, blocks: int = 8) -> Structure:
    return Structure(
        rows, columns, 1, 1, warps, Sharing.COOPERATIVE, False, False, 1, 1, occupancy=blocks
    )  # fmt: skip


CASES: dict[str, tuple[Body, Structure]] = {
    "softmax": (softmax(45, 512), cut(4, 512)),
    "softmax of odd rows": (softmax(45, 201), cut(4, 256)),
    "softmax of one warp": (softmax(45, 512), cut(1, 512, 1, 16)),
    "softmax of f32": (softmax(45, 256, dtype="f32"), cut(4, 256)),
    "long softmax": (softmax(5, 40963), cut(1, 2048)),
    "long softmax of whole accesses": (softmax(5, 40960), cut(1, 2048, 8, 4)),
    "loss": (loss(45, 49), cut(8, 64, 2, 16)),
    "norm of odd rows": (norm, cut(4, 256)),
    "norm": (wide_norm, cut(2, 512)),
    "gate": (gate, cut(4, 512)),
    "narrowed": (narrowed, cut(4, 512, 2, 16)),
    "biased": (biased, cut(2, 256)),
    "columns side by side": (columns, cut(1, 512)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_the_graph_means(name: str) -> None:
    body, s = CASES[name]
    check_computes(build(graph_of(body), s))


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["norm", "gate"])
def test_the_compiler_finds_no_more_than_a_threads_share_of_registers(name: str) -> None:
    body, s = CASES[name]
    made = build(graph_of(body), s)
    compiled = compile_kernel(made.source)
    assert not verdict(compiled, expectation(made.verified))


def test_a_block_has_no_ring_and_one_role() -> None:
    made = build(graph_of(wide_norm), cut(2, 512))
    schedule = made.verified.schedule
    assert not schedule.rings
    assert [one.name for one in schedule.partitions] == ["consumer0"]
    for absent in ("mbarrier.", "warp_specialize(", "tma_load(", "tma_store("):
        assert absent not in made.source.split("OPTIONS")[0].split("# The tile")[1]


def test_registers_of_all_blocks_of_an_sm_fit_it() -> None:
    for blocks, warps, registers in ((8, 4, 64), (12, 4, 40), (4, 8, 64), (16, 2, 64)):
        made = build(graph_of(softmax(45, 512)), cut(1, 512, warps, blocks))
        assert made.verified.schedule.base_registers == registers


def test_vectors_are_loaded_where_they_are_read() -> None:
    source = build(graph_of(wide_norm), cut(2, 512)).source
    assert source.index("gl.sum(") < source.index("w_value = gl.load(")


def test_a_run_shows_what_its_reads_need() -> None:
    made = build(graph_of(wide_norm), cut(2, 512))
    check_shows(made, "    gdc_wait()\n", "")
    check_shows(made, "// 8 * 8", "// 16 * 8", 1)
    odd = build(graph_of(softmax(45, 201)), cut(4, 256))
    check_shows(odd, "columns < ROW_LENGTH", "columns < ROW_LENGTH - 1")


def test_a_launch_checks_what_the_compiler_is_told() -> None:
    source = build(graph_of(gate), cut(4, 512)).source
    assert "this schedule takes multiples of 8" in source
    assert "strides have to be multiples of 16 bytes" in source
    odd = build(graph_of(softmax(45, 201)), cut(4, 256)).source
    assert (
        "multiples of 16 bytes"
        not in odd.split("def _new_outputs")[1].split("_LAUNCHER")[0].split("class ")[0]
    )


def test_more_than_an_sm_has_is_rejected() -> None:
    made = build(graph_of(wide_norm), cut(2, 512))
    schedule = replace(made.verified.schedule, base_registers=72)
    with pytest.raises(CheckError, match="registers"):
        verify(schedule, made.verified.program, h200(), 8)


def test_a_trace_tells_why_there_is_none() -> None:
    made = build(graph_of(wide_norm), cut(2, 512))
    with pytest.raises(LoweringError, match="--under occupancy=0"):
        emit(made.verified, Trace(run=True))
