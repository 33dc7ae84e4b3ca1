"""Kernels whose rows are cut by run-time offsets: executed with offsets of all kinds, mutated, compiled, refused."""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from emit_builds import Body, Case, Emitted, build, case, graph_of, structure
from other_compiler import compiled_by, ir_by

from wsopt.codegen import compile_kernel, verdict
from wsopt.emit.source import expectation
from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.grouped import OFFSET_KINDS
from wsopt.graph.reference import random_inputs
from wsopt.interpret import mutants
from wsopt.interpret.mutate import deletions
from wsopt.lowering.lower import grid_of
from wsopt.lowering.structures import structures
from wsopt.machine import load_machine
from wsopt.program.limits import Limit
from wsopt.program.types import Structure
from wsopt.report.text import segments_of

ROWS, COLUMNS, DEPTH, GROUPS = 200, 80, 144, 4


def operands(g: GraphBuilder, rows: int = ROWS, columns: int = COLUMNS) -> tuple[Symbol, Symbol, Symbol]:
    """x, w with a matrix for each group, and offsets."""
    x, w = g.input("x", (rows, DEPTH), "bf16"), g.input("w", (GROUPS, columns, DEPTH), "bf16", constant=True)
    return x, w, g.input("offsets", (GROUPS,), "i32")


def plain(g: GraphBuilder) -> Symbol:
    return g.cast(g.grouped_matmul(*operands(g), transpose_b=True, name="p"), "bf16", name="y")


def residual(g: GraphBuilder) -> Symbol:
    """Matrices as they lie, and a full tile of the epilogue."""
    x, w = g.input("x", (ROWS, DEPTH), "bf16"), g.input("w", (GROUPS, DEPTH, COLUMNS), "bf16", constant=True)
    product = g.grouped_matmul(x, w, g.input("offsets", (GROUPS,), "i32"), name="p")
    return g.cast(product + g.input("r", (ROWS, COLUMNS), "bf16"), "bf16", name="y")


def gated(g: GraphBuilder) -> Symbol:
    """Two products of one x and one cut."""
    x, w, offsets = operands(g)
    v = g.input("v", (GROUPS, COLUMNS, DEPTH), "bf16", constant=True)
    gate, up = (g.grouped_matmul(x, one, offsets, transpose_b=True) for one in (w, v))
    return g.cast(g.silu(gate) * up, "bf16", name="y")


def weighted(g: GraphBuilder) -> tuple[Symbol, ...]:
    """A factor of each row, and an output that is not rounded."""
    product = g.grouped_matmul(*operands(g), transpose_b=True, name="p")
    return g.cast(product * g.input("s", (ROWS, 1), "f32"), "bf16", name="y"), g.mul(product, 2.0, name="z")


def narrow(g: GraphBuilder) -> Symbol:
    """Rows of 70 columns, of which TMA stores none."""
    product = g.grouped_matmul(*operands(g, columns=70), transpose_b=True, name="p")
    return g.cast(product, "bf16", name="y")


CUTS: dict[str, tuple[Body, Structure]] = {
    "two consumers of a tile": (plain, structure(consumers=2, subtiles=2)),
    "a full tile read": (residual, structure()),
    "a gate, in turns": (gated, structure(consumers=2, ping_pong=True)),
    "two outputs": (weighted, structure(128, subtiles=2)),
    "stored by threads": (narrow, structure(consumers=2)),
}


@functools.cache
def emitted(name: str) -> Emitted:
    body, s = CUTS[name]
    return build(graph_of(body), s, 96)


def given(made: Emitted, *offsets: int) -> Case:
    """Random inputs with these offsets."""
    inputs = random_inputs(made.graph, 0)
    inputs["offsets"][...] = offsets
    return case(made.graph, inputs=inputs)


@pytest.mark.parametrize("name", CUTS)
def test_computes_for_offsets_of_all_kinds(name: str) -> None:
    made = emitted(name)
    for draw in range(OFFSET_KINDS):
        assert case(made.graph, inputs=random_inputs(made.graph, draw)).fault(made.source, 1) is None


@pytest.mark.parametrize("processors", [1, 5])
def test_computes_with_other_blocks(processors: int) -> None:
    made = emitted("two consumers of a tile")
    inputs = random_inputs(made.graph, 0)
    assert replace(case(made.graph, inputs=inputs), processors=processors).fault(made.source, 2) is None


def test_other_rows_and_groups_run() -> None:
    """One kernel takes any number of both."""
    made = emitted("two consumers of a tile")
    g = GraphBuilder("other")
    x, w = g.input("x", (330, DEPTH), "bf16"), g.input("w", (7, COLUMNS, DEPTH), "bf16", constant=True)
    product = g.grouped_matmul(x, w, g.input("offsets", (7,), "i32"), transpose_b=True, name="p")
    g.output(g.cast(product, "bf16", name="y"))
    graph = g.build()
    for draw in (0, 3):
        assert case(graph, inputs=random_inputs(graph, draw)).fault(made.source, 1) is None


def test_rows_of_no_group_are_zero_whatever_the_tensors_hold() -> None:
    made = emitted("two consumers of a tile")
    tried = given(made, 30, 30, 100, 130)
    tried.inputs["x"][130:] = np.nan
    assert not np.isnan(tried.referee.expected["y"].value).any()
    assert tried.fault(made.source, 1) is None
    outside = "gl.where(segment < segments, first_row, row_extent)"
    assert outside in made.source
    assert tried.fault(made.source.replace(outside, "first_row"), 1) is not None


def test_rows_of_another_group_do_not_reach_a_tile() -> None:
    """A tile that ends within a group has rows of the next one, which are not numbers, and stores its own alone."""
    made = emitted("two consumers of a tile")
    inputs = random_inputs(made.graph, 0)
    inputs["offsets"][...] = 40, 40, 140, 200
    inputs["x"][40:140] = np.inf
    tried = case(made.graph, inputs=inputs)
    assert np.isfinite(tried.referee.expected["y"].value[:40].astype(np.float32)).all()
    assert tried.fault(made.source, 1) is None


KINDS = {"unheld-end", "offset-behind", "left-out", "segment", "others-rows", "forgotten"}


def test_every_mistake_with_segments_is_found() -> None:
    made = emitted("a full tile read")
    cases = [given(made, 70, 130, 120, 190), given(made, -5, 30, 30, 260)]
    found = {
        m.name: any(one.check(m.source, 0) for one in cases) for m in mutants(made.source) if m.kind in KINDS
    }
    assert {name.partition("@")[0] for name in found} == KINDS
    assert len(found) >= 9
    assert all(found.values()), found


def test_every_wait_and_arrival_is_needed() -> None:
    """Each is left out of the kernel once; what has no effect is named."""
    made = emitted("a gate, in turns")
    tried = given(made, 70, 130, 120, 190)
    passed = [str(place) for place, mutant in deletions(made.source) if tried.check(mutant.source, 0) is None]
    assert passed == []


@functools.cache
def large() -> Emitted:
    """A kernel of tiles as large as they get."""
    g = GraphBuilder("large")
    x, w = g.input("x", (4096, 1024), "bf16"), g.input("w", (128, 1024, 1024), "bf16", constant=True)
    product = g.grouped_matmul(x, w, g.input("offsets", (128,), "i32"), transpose_b=True, name="p")
    g.output(g.cast(product, "bf16", name="y"))
    return build(g.build(), structure(256, warps=8, rows=128, subtiles=2))


@pytest.mark.compiler
def test_machine_code_has_no_spills_and_products_run_on(other_triton: str) -> None:
    """A branch that reads sums would have products serialized."""
    made = large()
    asked = expectation(made.verified)
    assert verdict(compile_kernel(made.source), asked) == ()
    (other,) = compiled_by(other_triton, [made.source])
    assert other["tensor_instructions"] == asked.tensor_instructions
    assert (other["stack_bytes"], other["spill_stores"], other["warnings"]) == (0, 0, [])


@pytest.mark.compiler
def test_every_role_hands_its_segment_on(other_triton: str) -> None:
    """Triton 3.6 takes some of what loops hand on for dead: not this, by either release."""
    handed_on = re.compile(r"scf\.yield .*(%tiles\w*)#0, \1#1, \1#2, \1#3")
    for python in (sys.executable, other_triton):
        assert len(handed_on.findall(ir_by(python, large().source))) == 2  # consumer and loader


# --- what the space holds, and what is refused ----------------------------------------------------------


def test_blocks_are_persistent_and_take_whole_tiles() -> None:
    region, machine = find_region(graph_of(plain)), load_machine("h200")
    found = list(structures(region, machine))
    assert found
    assert all(s.persistent and not s.parted and not s.swap for s in found)
    lifted = list(structures(region, machine, frozenset({Limit.SEGMENTS})))
    assert {*found} < {*lifted}
    assert any(not s.persistent for s in lifted)


def test_tiles_are_counted_with_half_a_tile_more_a_group() -> None:
    region = find_region(graph_of(plain))
    grid = grid_of(region, structure(rows=64))
    assert (grid.segments, grid.row_tiles) == (4, 6)  # ceil(4 * max(1, 200 / 4 / 64 + 1 / 2))
    assert grid_of(region, structure(rows=128)).row_tiles == 4
    assert region.flops == 2 * ROWS * COLUMNS * DEPTH
    assert (
        region.compulsory_bytes == 2 * (ROWS * DEPTH + GROUPS * COLUMNS * DEPTH + ROWS * COLUMNS) + 4 * GROUPS
    )


def test_the_report_says_how_groups_are_counted() -> None:
    (line,) = segments_of(emitted("two consumers of a tile").verified.program)
    assert line.startswith("groups     4 of rows, which end at offsets; counted as 4 tiles of rows")
    assert segments_of(build(graph_of(dense), structure(), 96).verified.program) == []


def dense(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (ROWS, DEPTH), "bf16"), g.input("s", (COLUMNS, DEPTH), "bf16")
    return g.cast(g.matmul(x, w, transpose_b=True), "bf16", name="y")


def beside_a_product(g: GraphBuilder) -> Symbol:
    x, w, offsets = operands(g)
    shared = g.matmul(x, g.input("s", (COLUMNS, DEPTH), "bf16"), transpose_b=True)
    return g.cast(g.grouped_matmul(x, w, offsets, transpose_b=True) + shared, "bf16")


def reduced_rows(g: GraphBuilder) -> Symbol:
    return g.cast(g.softmax(g.grouped_matmul(*operands(g), transpose_b=True)), "bf16")


def computed_offsets(g: GraphBuilder) -> Symbol:
    x, w, offsets = operands(g)
    return g.cast(g.grouped_matmul(x, w, g.add(offsets, 1), transpose_b=True), "bf16")


def other_offsets(g: GraphBuilder) -> Symbol:
    x, w, offsets = operands(g)
    second = g.grouped_matmul(x, w, g.input("others", (GROUPS,), "i32"), transpose_b=True, name="second")
    return g.cast(g.grouped_matmul(x, w, offsets, transpose_b=True) + second, "bf16")


def computed_matrices(g: GraphBuilder) -> Symbol:
    x, w, offsets = operands(g)
    return g.cast(g.grouped_matmul(x, g.cast(w * 2.0, "bf16"), offsets, transpose_b=True), "bf16")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (beside_a_product, "multiplies all rows by one matrix"),
        (reduced_rows, "nothing reduces its rows"),
        (computed_offsets, "its offsets are computed by the graph"),
        (other_offsets, "its groups end at"),
        (computed_matrices, "its operands are inputs"),
    ],
)
def test_what_one_kernel_does_not_hold_is_refused(body: Body, told: str) -> None:
    with pytest.raises(LoweringError, match=told):
        find_region(graph_of(body))


def test_a_target_whose_sums_are_in_tensor_memory_is_refused() -> None:
    with pytest.raises(
        LoweringError, match="rows that offsets cut into groups; compile it for a Hopper card"
    ):
        next(structures(find_region(graph_of(plain)), load_machine("b200")))
