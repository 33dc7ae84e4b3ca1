"""Kernels for rows that no SM holds: parts of rows stream in one pass or two, and mistakes in them are found."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter

import numpy as np
import pytest
import row_graphs
from emit_builds import MARGIN, SEEDS, Body, build, case, graph_of, h200
from emit_checks import check_machine_code
from emit_mutants import survives
from row_builds import emitted, structure
from tile_graphs import region_of

from wsopt.checker import verify
from wsopt.emit.source import emit
from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.interpret import Mutant, mutants
from wsopt.lowering.structures import structures
from wsopt.perf.price import lower
from wsopt.program.conditions import Conditions
from wsopt.simulation import simulate
from wsopt.solve.optimum import solve
from wsopt.solve.search import Search
from wsopt.tensors.views import Role

CUTS: tuple[tuple[Body, tuple[int, ...]], ...] = (
    (row_graphs.long_logsumexp, (2, 2048, 2)),
    (row_graphs.long_logsumexp, (1, 1024, 1)),
    (row_graphs.long_softmax, (2, 2048, 2)),
    (row_graphs.long_softmax, (1, 2048, 3, 8)),
    (row_graphs.long_norm, (1, 4096, 2)),
)


@pytest.mark.slow
@pytest.mark.parametrize(("body", "cut"), CUTS, ids=lambda x: x.__name__ if callable(x) else str(x))
def test_computes(body: Body, cut: tuple[int, ...]) -> None:
    made = emitted(body, *cut)
    assert case(made.graph).fault(made.source, SEEDS) is None


@pytest.mark.compiler
@pytest.mark.parametrize(("body", "cut"), CUTS[::2], ids=lambda x: x.__name__ if callable(x) else str(x))
def test_machine_code_is_what_was_asked_for(body: Body, cut: tuple[int, ...]) -> None:
    made = emitted(body, *cut)
    check_machine_code(made)


def test_a_row_of_nothing_gives_zeros() -> None:
    made = emitted(row_graphs.long_softmax, 2, 4096, 2)
    inputs = random_inputs(made.graph, 0)
    inputs["x"][5] = -np.inf
    inputs["x"][6, :30000] = -np.inf  # parts without an element before one that has some
    found = case(made.graph, inputs=inputs)
    assert (found.referee.expected["y"].value.astype(np.float32)[5] == 0).all()
    assert found.check(made.source, 0) is None


@pytest.mark.slow
def test_the_longest_part_may_reach_beyond_the_end_of_a_row() -> None:
    """Of a row of 9 * 4096 elements the last part of 8192 is half a part, whose zeros count in no sum."""

    def body(g: GraphBuilder) -> Symbol:
        return g.logsumexp(g.input("x", (64, 36864), "bf16"), axis=1, name="y")

    wide = max(s.columns for s in structures(find_region(graph_of(body)), h200()))
    kernel = emitted(body, 1, wide)
    assert kernel.verified.program.whole.extent(Role.COLUMN) % wide
    assert simulate(kernel.graph, kernel.verified, kernel.source, 2).seeds == 2


def _of_a_row(op: str, shape: tuple[int, ...]) -> Body:
    return lambda g: g.apply(op, [g.input("x", shape, "f32")], {"axis": len(shape) - 1}, "y")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "columns"),
    [
        (_of_a_row("reduce_sum", (5, 40000)), 4096),
        (_of_a_row("reduce_max", (5, 65536)), 4096),
        (_of_a_row("reduce_sum", (40000,)), 2048),
        (_of_a_row("reduce_sum", (1000,)), 1024),
        (_of_a_row("reduce_argmax", (40000,)), 4096),
    ],
)
def test_one_value_of_a_row_is_all_that_there_is(body: Body, columns: int) -> None:
    """Every line runs where no element needs a value of its row, and a vector has one value at no row at all."""
    kernel = emitted(body, 1, columns)
    assert simulate(kernel.graph, kernel.verified, kernel.source, 2).seeds == 2


def test_other_numbers_of_rows_run_and_other_lengths_do_not() -> None:
    made = emitted(row_graphs.long_logsumexp, 2, 4096, 2)

    def other(rows: int, columns: int) -> Body:
        return lambda g: g.reduce_max(
            g.input("x", (rows, columns), "bf16"), axis=1, keepdims=True, name="lse"
        )

    fault = case(graph_of(other(4, 36000))).check(made.source, 0)
    assert fault is not None
    assert "rows have 36000 elements: this schedule reduces rows of 40000" in fault


def test_passes_are_as_many_as_outputs_ask_for() -> None:
    one, two = emitted(row_graphs.long_logsumexp, 2, 4096, 2), emitted(row_graphs.long_softmax, 2, 4096, 2)
    assert "\nREADS =" not in one.source
    assert one.verified.program.tiles == 3 * 10  # four rows a tile, parts of 4096
    assert two.verified.program.tiles == 2 * 3 * 9
    assert two.source.count("for part in range(ROW_PARTS):") == 2
    assert two.source.count("for part in range(READS * ROW_PARTS):") == 1


def test_rows_read_again_come_from_memory_where_l2_does_not_keep_them() -> None:
    region = region_of(lambda g: row_graphs.long_softmax(g, 128256))
    few, many = (lower(region, structure(rows, 2048), h200()) for rows in (1, 8))
    again = region.compulsory_bytes // 2
    assert 0.7 < (few.dram_bytes - region.compulsory_bytes) / again < 0.9
    assert 0.99 < (many.dram_bytes - region.compulsory_bytes) / again <= 1
    short = region_of(row_graphs.long_softmax)
    assert lower(short, structure(1, 2048), h200()).dram_bytes == short.compulsory_bytes


@pytest.mark.parametrize(
    ("shape", "dtype", "long_rows"),
    [
        ((10, 32768), "bf16", False),
        ((10, 32776), "bf16", True),
        ((10, 16384), "f32", False),
        ((10, 32000), "f32", True),
    ],
)
def test_rows_are_held_as_long_as_an_sm_can(shape: tuple[int, ...], dtype: str, long_rows: bool) -> None:
    region = region_of(lambda g: g.cast(g.softmax(g.input("x", shape, dtype)), dtype))
    assert bool(region.running) is long_rows
    found = {s.columns for s in structures(region, h200()) if not s.occupancy}
    assert found == ({2048, 4096, 8192} if long_rows else {shape[1]})


@pytest.mark.solver
def test_rows_of_any_length_have_a_schedule() -> None:
    def body(g: GraphBuilder) -> Symbol:
        return g.cast(g.softmax(g.input("x", (512, 131072), "bf16"), axis=-1), "bf16", name="y")

    verified, _ = Search(find_region(graph_of(body)), h200()).run()
    assert verified.schedule.structure.columns < 131072


def variance(g: GraphBuilder) -> Symbol:
    x = g.input("x", (10, 40000), "bf16")
    rest = g.sub(x, g.reduce_mean(x, axis=-1, keepdims=True))
    return g.reduce_mean(g.mul(rest, rest), axis=-1, name="variance")


def of_squares(g: GraphBuilder) -> Symbol:
    x = g.input("x", (10, 40000), "bf16")
    middle = g.reduce_mean(x, axis=-1)
    return g.sub(g.reduce_mean(g.mul(x, x), axis=-1), g.mul(middle, middle), name="variance")


def test_a_reduction_of_another_one_is_refused_and_its_remedy_works() -> None:
    says = "cannot be summed in one pass along the reduced axis"
    with pytest.raises(LoweringError, match=re.escape(says)):
        region_of(variance)
    made = build(graph_of(of_squares), structure(2, 4096))
    assert case(made.graph).fault(made.source, 1) is None


def test_a_buffer_is_free_before_its_turn_comes_again() -> None:
    """Two staging buffers in turns, and an odd number of parts: the first one stored has the turn of the last one."""
    machine = dataclasses.replace(h200(), shared_memory_per_block_bytes=60 * 1024)
    graph = graph_of(row_graphs.long_softmax)
    program = lower(find_region(graph), structure(1, 4096), machine)
    program = dataclasses.replace(program, conditions=Conditions(buffers=(("staging", 2),)))
    solved = solve(program, machine, MARGIN)
    assert solved.schedule is not None, solved.reason
    source = emit(verify(solved.schedule, program, machine, MARGIN))
    free = "        tma.store_wait(0)\n        for part in range(ROW_PARTS):"
    assert source.count(free) == 1
    assert case(graph).fault(source, SEEDS) is None
    late = source.replace(free, free.replace("tma.store_wait(0)", "tma.store_wait(1)"))
    assert case(graph, processors=1).fault(late, SEEDS) is not None


def loss(g: GraphBuilder) -> Symbol:
    """Cross-entropy of each row, whose target comes by address."""
    x, target = g.input("x", (10, 40000), "bf16"), g.input("target", (10, 1), "i32")
    own = g.where(g.equal(g.iota(shape=(1, 40000), axis=1), target), x, 0.0)
    total = g.logsumexp(x, axis=-1, keepdims=True)
    return g.sub(total, g.reduce_sum(own, axis=-1, keepdims=True), name="loss")


def shifted(g: GraphBuilder) -> Symbol:
    """Rows less a number of their own, which comes by address, in front of the reduction."""
    x, shift = g.input("x", (10, 40000), "bf16"), g.input("shift", (10, 1), "f32")
    return g.logsumexp(g.mul(g.sub(x, shift), g.tanh(x)), axis=-1, name="y")


def test_a_value_of_a_row_is_loaded_once_for_all_parts() -> None:
    made = emitted(shifted, 2, 4096, 2)
    before, _, parts = made.source.partition("for part in range(ROW_PARTS):\n            column")
    assert before.count("shift_value = gl.load") == 1
    assert "gl.load(shift" not in parts
    assert case(made.graph).fault(made.source, SEEDS) is None
    consumer = before.index("def consumer")
    early = before[:consumer] + before[consumer:].replace("    gdc_wait()\n", "", 1)
    assert case(made.graph).check(early + made.source[len(before) :], 0) is not None


def test_the_element_at_a_label_is_read_by_its_address_once_a_row() -> None:
    """No part is compared with labels; one that is no column reads nothing, and counts as zero."""
    made = emitted(loss, 2, 4096, 2)
    _, _, behind = made.source.partition("_row = gl.convert_layout(")
    assert made.source.count("gl.load(target_ptr") == behind.count("gl.load(target_ptr") == 1
    assert made.source.count("gl.load(x__ptr") == behind.count("gl.load(x__ptr") == 1
    inputs = random_inputs(made.graph, 0)
    inputs["target"][:, 0] = [0, 4095, 4096, 8191, 20000, 39999, 40000, -1, -4096, 36864]
    places = case(made.graph, inputs=inputs)
    assert places.fault(made.source, SEEDS) is None
    for asked in (" & (x_place >= 0)", " & (x_place < x_places)"):
        other = made.source.replace(asked, "")
        assert other != made.source
        assert places.check(other, 0) is not None


# --- mutants ----------------------------------------------------------------------------------------------

SUBJECTS: dict[str, tuple[Body, tuple[int, ...], int]] = {
    "long_logsumexp": (row_graphs.long_logsumexp, (1, 4096, 2), 49),
    "long_softmax": (row_graphs.long_softmax, (1, 4096, 1), 35),
}
EQUIVALENT = {
    "long_logsumexp": {"double-wait": 2, "swap-argument": 1},
    "long_softmax": {"double-wait": 3},
}
"""A wait that has passed passes again; and the two consumers' numbers are interchangeable."""


def kind(mutant: Mutant) -> str:
    return mutant.name.partition("@")[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_mutant_is_found(name: str) -> None:
    body, cut, kib = SUBJECTS[name]
    made = emitted(body, *cut, 4, kib)
    assert made.depth in (2, 3)
    cases = [case(made.graph)]
    assert survives(cases, made.source, SEEDS)
    alive = Counter(kind(mutant) for mutant in mutants(made.source) if survives(cases, mutant.source, 3))
    assert alive == EQUIVALENT[name]
