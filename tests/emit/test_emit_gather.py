"""Kernels that read rows at indices: executed, compiled, and mistakes in them found."""

from __future__ import annotations

import functools
from collections import Counter

import gather_graphs
import numpy as np
import pytest
from emit_builds import SEEDS, Body, Emitted, build, case, check_shows, graph_of, h200, small_case
from emit_checks import check_machine_code
from emit_mutants import survives

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.interpret import mutants
from wsopt.lowering.structures import structures
from wsopt.perf.price import lower
from wsopt.program.types import Sharing, Structure


def structure(rows: int, columns: int, consumers: int = 2) -> Structure:
    return Structure(rows, columns, 1, consumers, 4, Sharing.COOPERATIVE, True, False, 1, 1)


@functools.cache
def emitted(body: Body, rows: int, columns: int, consumers: int = 2) -> Emitted:
    return build(graph_of(body), structure(rows, columns, consumers), 24)


CUTS: tuple[tuple[Body, tuple[int, ...]], ...] = (
    (gather_graphs.chosen, (4, 512)),
    (gather_graphs.embedded, (1, 512, 3)),
    (gather_graphs.padded, (16, 64)),
    (gather_graphs.two_tables, (2, 256)),
    (gather_graphs.inner_axis, (4, 256)),
    (gather_graphs.blocks, (1, 1024)),
    (gather_graphs.normed, (2, 512)),
)


@pytest.mark.slow
@pytest.mark.parametrize(("body", "cut"), CUTS, ids=lambda x: x.__name__ if callable(x) else str(x))
def test_computes(body: Body, cut: tuple[int, ...]) -> None:
    made = emitted(body, *cut)
    assert case(made.graph).fault(made.source, 2) is None
    assert small_case(made).fault(made.source, 1) is None


@pytest.mark.compiler
@pytest.mark.parametrize(("body", "cut"), CUTS[1:2], ids=lambda x: x.__name__ if callable(x) else str(x))
def test_machine_code_is_what_was_asked_for(body: Body, cut: tuple[int, ...]) -> None:
    made = emitted(body, *cut)
    check_machine_code(made)


def of_any_width(columns: int, dtype: str = "f32") -> Body:
    """Rows that TMA cannot begin with, or shorter than a copy, as of a table of biases of heads."""

    def body(g: GraphBuilder) -> Symbol:
        rows = g.gather(g.input("x", (19, columns), dtype), g.input("i", (45,), "i32"))
        return g.cast(g.mul(rows, 2.0), dtype, name="y")

    return body


@pytest.mark.parametrize(("columns", "dtype"), [(6, "f32"), (16, "bf16"), (301, "bf16")])
def test_rows_of_any_width_are_read_by_threads(columns: int, dtype: str) -> None:
    found = next(structures(find_region(graph_of(of_any_width(columns, dtype))), h200()))
    made = build(graph_of(of_any_width(columns, dtype)), found)
    assert "tma_load(" not in made.source
    assert case(made.graph).fault(made.source, 1) is None


BY_THREADS: tuple[tuple[Body, tuple[int, int]], ...] = (
    (gather_graphs.chosen, (2, 512)),
    (gather_graphs.embedded, (1, 512)),
    (gather_graphs.padded, (16, 64)),
    (gather_graphs.two_tables, (2, 256)),
    (gather_graphs.inner_axis, (4, 256)),
    (gather_graphs.blocks, (1, 1024)),
    (gather_graphs.normed, (2, 512)),
)


@functools.cache
def side_by_side(body: Body, rows: int, columns: int) -> Emitted:
    """The kernel of small blocks, several on an SM, whose threads read the rows."""
    s = Structure(rows, columns, 1, 1, 4, Sharing.COOPERATIVE, False, False, 1, 1, occupancy=8)
    return build(graph_of(body), s)


@pytest.mark.slow
@pytest.mark.parametrize(("body", "cut"), BY_THREADS, ids=lambda x: x.__name__ if callable(x) else str(x))
def test_threads_read_rows_at_indices(body: Body, cut: tuple[int, int]) -> None:
    made = side_by_side(body, *cut)
    assert "tma_load(" not in made.source
    assert case(made.graph).fault(made.source, 2) is None


@pytest.mark.compiler
def test_machine_code_of_threads_that_read() -> None:
    check_machine_code(side_by_side(gather_graphs.embedded, 1, 512))


@pytest.mark.parametrize("good", ["(gl.expand_dims(table_place, 1) >= 0) & ", " + rows, mask="])
def test_faults_of_threads_that_read_are_found(good: str) -> None:
    made = side_by_side(gather_graphs.chosen, 2, 512)
    inputs = random_inputs(made.graph, 0)
    inputs["tokens"][:2] = (-3, 299)
    found = case(made.graph, inputs=inputs)
    assert found.fault(made.source, 1) is None
    bad = " + rows + 1, mask=" if good.startswith(" + rows") else ""
    assert good in made.source
    assert found.fault(made.source.replace(good, bad), 1) is not None


def test_an_index_outside_reads_zeros_and_nothing_else() -> None:
    for made in (emitted(gather_graphs.chosen, 4, 512), side_by_side(gather_graphs.chosen, 2, 512)):
        _check_indices_outside(made)


def _check_indices_outside(made: Emitted) -> None:
    inputs = random_inputs(made.graph, 0)
    inputs["tokens"][:5] = (-1, 300, 2**31 - 1, -(2**31), 299)
    found = case(made.graph, inputs=inputs)
    expected = found.referee.expected["y"].value.astype(np.float32)
    assert (expected[:4] == 0).all()
    assert (expected[4] != 0).any()
    assert found.check(made.source, 0) is None


def test_other_numbers_of_rows_and_of_indices_run() -> None:
    every = (emitted(gather_graphs.chosen, 4, 512), side_by_side(gather_graphs.chosen, 2, 512))

    def other(rows: int, indices: int) -> Body:
        def body(g: GraphBuilder) -> Symbol:
            return g.gather(
                g.input("table", (rows, 512), "bf16"), g.input("tokens", (indices,), "i32"), name="y"
            )

        return body

    for rows, indices in ((7, 1), (1000, 90)):
        for made in every:
            assert case(graph_of(other(rows, indices))).fault(made.source, 1) is None


def test_bytes_are_those_of_the_rows_that_are_chosen() -> None:
    region = find_region(graph_of(gather_graphs.chosen))
    assert region.compulsory_bytes == 37 * (2 * 512 * 2 + 4)
    two = find_region(graph_of(gather_graphs.two_tables))
    assert two.compulsory_bytes == 33 * (4 * 512 * 2 + 3 * 4)


def test_rows_apart_take_an_instruction_and_a_place_each() -> None:
    region = find_region(graph_of(gather_graphs.chosen))
    issue = [lower(region, structure(rows, 512), h200()).ops[0].issue for rows in (1, 8, 16)]
    assert issue[0] < issue[1] < issue[2] < 16 * issue[0]
    found = list(structures(region, h200()))
    assert max(s.rows for s in found if not s.occupancy) == 16, "what threads read is no text of each row"


FAULTS = {
    "CONSUMER_ROWS + 3 < row_extent": "CONSUMER_ROWS + 3 < row_extent + 3",
    "table_ring.index(slot * 2).slice(1, 1, dim=0)": "table_ring.index(slot * 2).slice(2, 1, dim=0)",
    "(row_tile * TILE_ROWS + 1)": "(row_tile * TILE_ROWS + 2)",
    "[tokens_place_3,": "[tokens_place_2,",
    "    gdc_wait()\n": "",
}


@pytest.mark.parametrize("good", FAULTS)
def test_faults_are_found(good: str) -> None:
    made = emitted(gather_graphs.chosen, 4, 512)
    check_shows(made, good, FAULTS[good], 1)


@pytest.mark.slow
def test_every_mutant_is_found() -> None:
    made = build(graph_of(gather_graphs.embedded), structure(2, 256, 1), 9)
    assert made.depth in (2, 3)
    cases = [small_case(made, count) for count in (4, 3)]
    assert survives(cases, made.source, SEEDS)
    alive = Counter(
        mutant.name.partition("@")[0] for mutant in mutants(made.source) if survives(cases, mutant.source, 2)
    )
    assert alive == {"double-wait": 2}


def _input(g: GraphBuilder, *shape: int, dtype: str = "bf16", name: str = "x") -> Symbol:
    return g.input(name, shape, dtype)


def _indices(g: GraphBuilder, *shape: int) -> Symbol:
    return g.input("i", shape, "i32")


REFUSED: dict[str, tuple[Body, str]] = {
    "a computed table": (lambda g: g.gather(g.cast(g.exp(_input(g, 64, 256)), "bf16", name="e"), _indices(g, 9)),
        "e, of which it reads elements, is computed; compute e before"),
    "computed indices": (lambda g: g.gather(_input(g, 64, 256), g.add(_indices(g, 9), 1, name="j")),
        "j, at which it reads elements, is computed; compute j before"),
    "single elements": (lambda g: g.add(g.gather(_input(g, 64), _indices(g, 9, 256)), _input(g, 9, 256, name="z")),
        "indices choose single elements along axis 0 of x"),
    "columns": (lambda g: g.gather(_input(g, 64, 256), _indices(g, 9), axis=1), "single elements along axis 1 of x"),
    "one row for all": (
        lambda g: g.add(g.gather(_input(g, 64, 256), _indices(g)), _input(g, 9, 256, name="z")),
        "is the same along the rows or columns"),
    "a slice": (lambda g: g.gather(g.slice(_input(g, 64, 256), axis=0, start=8, name="s"), _indices(g, 9)),
        "a view takes axis 0 of s apart, or a part of it, along which indices choose; compute s before"),
    "a product's operand": (lambda g: g.matmul(g.gather(_input(g, 64, 256), _indices(g, 128), name="rows"),
        _input(g, 256, 128, name="w")), "gather is not lowered beside products; compute rows before"),
    "a product's neighbour": (lambda g: g.add(
        g.matmul(_input(g, 128, 256, name="a"), _input(g, 256, 128, name="w")),
        g.gather(_input(g, 64, 128), _indices(g, 128), name="rows")),
        "gather is not lowered beside products; compute rows before"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    body, told = REFUSED[name]
    with pytest.raises(LoweringError, match=told):
        find_region(graph_of(lambda g: g.cast(body(g), "f16", name="y")))
