"""Rows that begin between two places that TMA takes, copied as pieces of one flat row of all elements."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
from emit_builds import SEEDS, Body, Emitted, build, case, check_shows, graph_of, h200
from emit_checks import check_machine_code
from tile_graphs import region_of

from wsopt.codegen.aot import compile_kernel
from wsopt.frontend.flat_rows import flat_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.program.facts import Store
from wsopt.program.types import Sharing, Structure
from wsopt.schedule.types import PartitionRole

STEP = 8
"""Elements of bf16 in 16 bytes."""


def softmax(g: GraphBuilder, columns: int = 1001, rows: int = 37) -> Symbol:
    """A softmax of rows that begin at every even byte."""
    x = g.input("x", (rows, columns), "bf16")
    return g.cast(g.softmax(x, axis=1), "bf16", name="y")


def mixed(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Rows of two types, of two batches, an output of each kind, and places along the columns."""
    x, z = g.input("x", (2, 19, 1001), "f32"), g.input("z", (2, 19, 1001), "bf16")
    sums = g.add(x, g.mul(z, g.cast(g.iota((2, 19, 1001), axis=2), "f32")))
    return g.cast(sums, "f16", name="y"), g.reduce_max(sums, axis=2, name="largest")


def norm(g: GraphBuilder, columns: int = 1001, rows: int = 37, dtype: str = "bf16") -> Symbol:
    """A norm of rows, for whose sums TMA's zeros beyond a row's end would do."""
    x = g.input("x", (rows, columns), "bf16")
    squares = g.reshape(g.reduce_sum(g.mul(x, x), axis=1), (rows, 1))
    return g.cast(g.mul(x, g.rsqrt(g.add(squares, 1.0))), dtype, name="y")


def long_norm(g: GraphBuilder) -> Symbol:
    """Rows that no SM holds, to so many digits that a few elements of another row are seen."""
    return norm(g, 36001, 9, "f32")


def long_softmax(g: GraphBuilder) -> Symbol:
    """The same, with a maximum."""
    return softmax(g, 36001, 9)


def long_logsumexp(g: GraphBuilder) -> Symbol:
    """One value of each row that no SM holds."""
    return g.logsumexp(g.input("x", (9, 40003), "f16"), axis=1, name="y")


def shares(g: GraphBuilder) -> Symbol:
    """Sums up to each element, of what is not zero in front of a row's first."""
    shifted = g.add(g.input("x", (37, 1001), "bf16"), 1.0)
    return g.apply("cumsum", [shifted], {"axis": 1}, name="y")


def structure(
    columns: int, consumers: int = 1, *, stored: bool = True, retained: int = 0, kept: int = 0
) -> Structure:
    return Structure(
        1, columns, 1, consumers, 4, Sharing.COOPERATIVE, True, False, 1, 1,
        stored_by_threads=stored, retained=retained, in_registers=kept, flat=True,
    )  # fmt: skip


@functools.cache
def emitted(body: Body, s: Structure, kib: int) -> Emitted:
    return build(graph_of(body), s, kib)


CUTS: dict[str, tuple[Body, Structure, int]] = {
    "whole rows": (softmax, structure(1024, 2), 24),
    "sums of whole rows": (norm, structure(1024, 2), 24),
    "at run time": (norm, replace(structure(1024, 2), dynamic=True), 24),
    "sums up to each": (shares, structure(1024), 48),
    "two types": (mixed, structure(1024), 48),
    "all of a row stays": (long_norm, structure(4096, retained=6, kept=3), 75),
    "some are copied again": (long_softmax, structure(4096, retained=3), 60),
    "one value a row": (long_logsumexp, structure(4096, stored=False), 60),
    "parts at run time": (
        long_softmax,
        replace(structure(4096, 2, retained=6), dynamic=True, staggered=True),
        160,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CUTS)
def test_computes(name: str) -> None:
    made = emitted(*CUTS[name])
    assert "tma_load(" in made.source
    assert case(made.graph).fault(made.source, SEEDS) is None


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["whole rows", "all of a row stays"])
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    check_machine_code(emitted(*CUTS[name]))


@pytest.mark.parametrize(
    ("name", "line", "wrong", "times"),
    [
        ("whole rows", "row * ROW_LENGTH % FLAT_STEP", "row * ROW_LENGTH % 1", 1),
        ("sums of whole rows", "gl.where(gl.expand_dims(columns < ROW_LENGTH, 0), x_value, 0)", "x_value", 1),
        ("all of a row stays", "(column < 0) | (column + TILE_COLUMNS > ROW_LENGTH)", "column < 0", 1),
        ("all of a row stays", "if column < 0:", "if column < -1000:", 1),
        ("whole rows", "(run >= 0) &", "(run >= -FLAT_STEP) &", 1),
        ("whole rows", "(run + FLAT_STEP <= ROW_LENGTH)", "(run <= ROW_LENGTH)", 1),
        ("whole rows", "apart = (columns >= 0)", "apart = (columns >= 1)", 1),
        ("all of a row stays", "if (first == 0) | (first", "if (first == 1) | (first", 1),
        ("whole rows", "& 0x7FFFFFFF", "& -1", 1),
        ("whole rows", "ROW_LENGTH // FLAT_STEP * FLAT_STEP]", "ROW_LENGTH // 1 * 1]", 1),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_mistakes_are_found(name: str, line: str, wrong: str, times: int) -> None:
    check_shows(emitted(*CUTS[name]), line, wrong, times)


@pytest.mark.compiler
def test_a_loading_warp_that_takes_flat_rows_at_run_time_has_registers_for_it() -> None:
    made = emitted(*CUTS["parts at run time"])
    loader = next(p for p in made.verified.schedule.partitions if p.role is PartitionRole.LOADER)
    assert loader.registers == 40
    compiled = compile_kernel(made.source)
    assert (compiled.spill_loads, compiled.spill_stores, compiled.stack_bytes) == (0, 0, 0)


def test_the_last_tile_of_a_row_reaches_its_end_wherever_it_begins() -> None:
    def found(columns: int) -> set[int]:
        region = region_of(lambda g: softmax(g, columns))
        return {s.columns for s in structures(region, h200()) if s.flat}

    assert found(1024 - STEP + 1) == {1024}
    assert found(1024 - STEP + 3) == set(), "at 7 elements behind, the row's last would be missed"


def test_threads_that_store_have_no_more_elements_than_a_part() -> None:
    """Of rows of 8 bits they take 16 neighbours each, of which copies of what is stored in 16 bits would take 8."""

    def widened(g: GraphBuilder) -> tuple[Symbol, ...]:
        x = g.cast(g.input("x", (9, 36001), "f8e4m3"), "f32")
        return g.cast(x, "f16", name="y"), g.reduce_max(x, axis=1, name="largest")

    found = {(s.columns, s.consumer_warps) for s in structures(region_of(widened), h200()) if s.flat}
    assert (2048, 4) in found
    assert (2048, 8) not in found, "256 threads of 16 elements have 4096"


def test_rows_that_tma_takes_are_not_flat() -> None:
    assert flat_region(region_of(softmax)) is not None
    assert flat_region(region_of(lambda g: softmax(g, 1000))) is None


def test_rows_that_lie_apart_are_not_flat() -> None:
    def sliced(g: GraphBuilder) -> Symbol:
        x = g.slice(g.input("x", (37, 1003), "bf16"), axis=1, start=0, stop=1001)
        return g.cast(g.softmax(x, axis=1), "bf16", name="y")

    assert flat_region(region_of(sliced)) is None


def test_vectors_along_the_columns_are_not_read_beside_flat_rows() -> None:
    def weighted(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (37, 1001), "bf16"), g.input("w", (1001,), "bf16")
        return g.cast(g.mul(g.softmax(x, axis=1), w), "bf16", name="y")

    assert flat_region(region_of(weighted)) is None


def test_tensors_of_more_elements_than_coordinates_reach_are_not_flat() -> None:
    rows = 2**31 // 1001
    assert flat_region(region_of(lambda g: softmax(g, 1001, rows))) is not None
    assert flat_region(region_of(lambda g: softmax(g, 1001, rows + 1))) is None


def test_a_call_with_rows_that_lie_apart_is_refused() -> None:
    source = emitted(*CUTS["whole rows"]).source
    assert "tensor x: rows have to lie one behind the other" in source
    assert "tensor y: rows have to lie one behind the other" in source
    assert "tensor x has 2^31 elements or more" in source


def test_threads_store_sixteen_bytes_at_a_time() -> None:
    plain = replace(CUTS["whole rows"][1], flat=False, stored_by_threads=False)
    assert plain.describe() != CUTS["whole rows"][1].describe()
    counts = (op.counts for op in emitted(*CUTS["whole rows"]).verified.program.ops)
    assert {one.at_once for one in counts if isinstance(one, Store)} == {STEP}
