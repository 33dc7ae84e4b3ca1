"""Reductions along an axis whose elements lie apart in memory: tiles of rows that are neighbours there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from emit_builds import MARGIN, Body, build, case, graph_of, h200, kernels_of
from emit_checks import check_machine_code
from other_compiler import compiled_by
from row_builds import structure
from tile_graphs import region_of

from wsopt.errors import LoweringError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.lowering.structures import structures
from wsopt.perf.price import lower
from wsopt.program.row_layout import all_swizzled, outer_layout, tile_layout
from wsopt.program.types import Structure
from wsopt.simulation import simulate
from wsopt.solve.bound import infeasible
from wsopt.tensors.views import Role


def softmax(shape: tuple[int, ...], axis: int) -> Body:
    return lambda g: g.cast(g.softmax(g.input("x", shape, "bf16"), axis=axis), "bf16", name="y")


def reduced(shape: tuple[int, ...], dtype: str, op: str) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        reduce: Callable[..., Symbol] = getattr(g, op)
        return g.cast(reduce(g.input("x", shape, dtype), axis=0), "f32", name="y")

    return body


def norm(g: GraphBuilder) -> Symbol:
    """A norm over a middle axis with a weight an element of it."""
    x, w = g.input("x", (2, 100, 144), "bf16"), g.input("w", (100, 1), "f32")
    apart = x - g.reduce_mean(x, axis=1, keepdims=True)
    spread = g.reduce_mean(apart * apart, axis=1, keepdims=True)
    return g.cast(apart * g.rsqrt(spread + 1e-5) * w, "bf16", name="y")


def logsumexp(g: GraphBuilder) -> Symbol:
    x = g.input("x", (5000, 72), "bf16")
    peak = g.reduce_max(x, axis=0, keepdims=True)
    total = g.reduce_sum(g.exp(g.sub(x, peak)), axis=0, keepdims=True)
    return g.add(g.log(total), peak, name="y")


CASES: dict[str, tuple[Body, Structure]] = {
    "middle": (softmax((3, 100, 72), 1), structure(16, 128, 2)),
    "not swizzled": (softmax((3, 100, 72), 1), structure(8, 128)),
    "first": (softmax((512, 136), 0), structure(32, 512, 1, 8)),
    "norm": (norm, structure(64, 128)),
    "sum": (reduced((1000, 136), "f32", "reduce_sum"), structure(32, 128, 2)),
    "columns' largest": (reduced((1000, 136), "bf16", "reduce_max"), structure(64, 64)),
    "parts that end with the row": (reduced((512, 136), "f32", "reduce_max"), structure(16, 128)),
    "parts": (softmax((5000, 72), 0), structure(16, 256, 2)),
    "logarithm of a sum": (logsumexp, structure(16, 256, 2)),
}
made = kernels_of(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    kernel = made(name)
    assert simulate(kernel.graph, kernel.verified, kernel.source, 2).seeds == 2


@pytest.mark.compiler
def test_compiles(other_triton: str) -> None:
    kernels = [made(name) for name in ("sum",)]
    for kernel in kernels:
        check_machine_code(kernel)
    found = compiled_by(other_triton, [kernel.source for kernel in kernels])
    assert [(one["spill_loads"], one["stack_bytes"]) for one in found] == [(0, 0)] * len(kernels)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("not swizzled", ".load(ROWS_LAYOUT_TURNED).permute((1, 0))", ".permute((1, 0)).load(ROWS_LAYOUT)"),
        ("not swizzled", "store(y_0_.permute((1, 0)))", "permute((1, 0)).store(y_0_)"),
        ("sum", ".permute((1, 0)).load(ROWS_LAYOUT)", ".load(ROWS_LAYOUT)"),
        ("middle", "columns < ROW_LENGTH", "columns < ROW_LENGTH + 1"),
        ("columns' largest", "column = part * TILE_COLUMNS", "column = part"),
        ("sum", "axis=1", "axis=0"),
    ],
)
def test_faults_are_found(name: str, old: str, new: str) -> None:
    kernel = made(name)
    inputs = random_inputs(kernel.graph, 0)
    inputs["x"] = -np.abs(inputs["x"])  # zeros beyond the end are larger
    whole = case(kernel.graph, inputs=inputs)
    assert whole.check(kernel.source, 0) is None
    assert old in kernel.source
    assert whole.check(kernel.source.replace(old, new), 0) is not None


def test_rows_that_no_box_has_and_tiles_that_no_registers_hold_are_no_structures() -> None:
    region = region_of(softmax((8, 512, 1024), 1))
    found = [s for s in structures(region, h200()) if not s.occupancy]
    assert {s.columns for s in found} == {512}
    assert min(s.rows for s in found) == 8  # 16 bytes of bf16
    wide = [s for s in found if s.rows == 128 and s.consumer_warps == 4]
    assert wide
    assert all(infeasible(lower(region, s, h200()), h200(), MARGIN) for s in wide)


def weighted(g: GraphBuilder) -> Symbol:
    """What twelve experts of each token gave, by their weights."""
    y, weights = g.input("x", (32, 12, 136), "bf16"), g.input("weights", (32, 12, 1), "f32")
    return g.cast(g.reduce_sum(y * weights, axis=1), "bf16", name="y")


def few_normed(g: GraphBuilder) -> Symbol:
    x = g.input("x", (3, 3, 136), "f16")
    apart = x - g.reduce_mean(x, axis=1, keepdims=True)
    return g.cast(
        apart * g.rsqrt(g.reduce_mean(apart * apart, axis=1, keepdims=True) + 1e-5), "f16", name="y"
    )


@pytest.mark.slow
@pytest.mark.parametrize("body", [weighted, few_normed, softmax((3, 2, 136), 1), softmax((5, 4, 72), 1)])
def test_rows_of_fewer_elements_than_a_consumer_takes_at_a_time(body: Body) -> None:
    """A tile has more columns than such rows, and what lies beyond their end counts in nothing."""
    graph = graph_of(body)
    found = [s for s in structures(region_of(body), h200()) if s.consumers == 1 and not s.occupancy]
    assert {s.columns for s in found} <= {4, 8, 16}
    for s in {s.columns: s for s in found}.values():
        kernel = build(graph, s)
        assert simulate(kernel.graph, kernel.verified, kernel.source, 2).seeds == 2


def test_a_sum_streams_parts_of_any_length() -> None:
    region = region_of(reduced((8192, 4096), "f32", "reduce_sum"))
    assert region.running
    assert not region.whole_rows
    assert region.row_sources[0].view.roles == (Role.COLUMN, Role.ROW)
    assert {s.columns for s in structures(region, h200()) if not s.occupancy} == {32, 64, 128, 256, 512}


def test_threads_take_neighbours_of_one_column() -> None:
    layout = outer_layout(16, 32, 512, 4, h200())
    assert layout.text() == "gl.BlockedLayout([8, 1], [1, 32], [4, 1], [0, 1])"
    assert (layout.rows, layout.columns) == (32, 32)
    assert layout.turned().text() == "gl.BlockedLayout([1, 8], [32, 1], [1, 4], [1, 0])"


def test_lanes_whose_accesses_go_together_read_banks_of_their_own() -> None:
    """Of a swizzled box the same 16 bytes of eight columns lie in all banks, and of one that is not in the same ones;
    where a warp's lanes fill a line of a column they lie along it.
    """
    view = region_of(softmax((3, 512, 1024), 1)).row_sources[0].view
    for rows, order in ((8, "[0, 1]"), (16, "[1, 0]"), (64, "[1, 0]"), (128, "[1, 0]"), (256, "[0, 1]")):
        layout = tile_layout([view], rows, 128, 4, h200())
        assert layout.text().endswith(f"{order})"), rows
        assert all_swizzled([view], rows, 128) is (rows > 8)


@pytest.mark.parametrize(("rows", "warps", "lanes", "apart"), [
    (16, 4, (1, 32), (2, 2)), (64, 4, (2, 16), (4, 1)), (64, 8, (1, 32), (8, 1)), (256, 4, (8, 4), (4, 1)),
])  # fmt: skip
def test_warps_have_rows_of_their_own_while_there_are_rows(
    rows: int, warps: int, lanes: tuple[int, int], apart: tuple[int, int]
) -> None:
    layout = outer_layout(16, rows, 128, warps, h200())
    assert (layout.lanes, layout.warps) == (lanes, apart)
    assert layout.rows <= rows


def test_pieces_of_a_line_take_the_whole_of_it_from_l2() -> None:
    region = region_of(reduced((8192, 4096), "f32", "reduce_sum"))
    narrow, wide = (lower(region, structure(rows, 64), h200()) for rows in (8, 32))
    each = [next(iter(program.loop)).busy for program in (narrow, wide)]
    assert each[0] == each[1]  # a fourth of the bytes, of as many lines


def test_rows_that_no_block_holds_want_reductions_that_run_on() -> None:
    def variance(g: GraphBuilder) -> Symbol:
        x = g.input("x", (8192, 256), "bf16")
        apart = x - g.reduce_mean(x, axis=0, keepdims=True)
        return g.reduce_mean(apart * apart, axis=0, name="y")

    with pytest.raises(LoweringError, match="as a variance is the mean of squares less the squared mean"):
        region_of(variance)
