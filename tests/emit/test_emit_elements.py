"""Kernels without products and reductions: executed at their own and at other extents, and mistakes in them found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import element_graphs
import pytest
from emit_builds import MARGIN, SEEDS, Body, build, case, check_shows, graph_of, h200, small_case
from emit_checks import check_machine_code
from emit_mutants import survives
from row_builds import emitted, structure

from wsopt.emit.source import expected_instructions
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.types import Graph
from wsopt.interpret import Mutant, mutants
from wsopt.lowering.structures import structures
from wsopt.perf.price import lower
from wsopt.solve.bound import infeasible

CUTS: tuple[tuple[Body, tuple[int, ...]], ...] = (
    (element_graphs.gated, (4, 512, 2)),
    (element_graphs.gated, (1, 2048, 1)),
    (element_graphs.biased, (2, 256, 3)),
    (element_graphs.biased, (2, 1024, 2)),
    (element_graphs.residual, (2, 256, 2)),
    (element_graphs.odd, (1, 256, 1)),
    (element_graphs.short, (2, 512, 1)),
    (element_graphs.vector, (1, 1024, 1)),
    (element_graphs.positions, (8, 256, 2)),
    (element_graphs.rotary, (16, 64, 2)),
    (element_graphs.counted, (4, 256, 1)),
    (element_graphs.columns_counted, (1, 1024, 1)),
    (element_graphs.side_by_side, (8, 256, 1)),
    (element_graphs.packed_gate, (2, 256, 2)),
    (element_graphs.groups_of_channels, (4, 128, 1)),
    (element_graphs.upsampled, (2, 32, 1)),
    (element_graphs.turned, (16, 64, 1)),
    (element_graphs.half_turned, (8, 64, 1)),
    (element_graphs.stacked, (4, 256, 1)),
    (element_graphs.biased_slice, (4, 512, 2)),
    (element_graphs.padded, (4, 256, 2)),
    (element_graphs.wider_heads, (8, 64, 2)),
    (element_graphs.neighbours, (4, 64, 1)),
    (element_graphs.queries_of_all, (8, 32, 1)),
    (element_graphs.patches, (4, 64, 2)),
)


@pytest.mark.slow
@pytest.mark.parametrize(("body", "cut"), CUTS, ids=lambda x: x.__name__ if callable(x) else str(x))
def test_computes(body: Body, cut: tuple[int, ...]) -> None:
    made = emitted(body, *cut)
    assert case(made.graph).fault(made.source, SEEDS) is None
    assert small_case(made).fault(made.source, 3) is None


@pytest.mark.compiler
@pytest.mark.parametrize(("body", "cut"), CUTS[::3], ids=lambda x: x.__name__ if callable(x) else str(x))
def test_machine_code_is_what_was_asked_for(body: Body, cut: tuple[int, ...]) -> None:
    made = emitted(body, *cut)
    assert expected_instructions(made.verified) == 0
    check_machine_code(made)


@pytest.mark.slow
def test_every_structure_computes() -> None:
    """Tiles of all sizes that the budgets let through: how a tile lies over warps changes no value."""
    graph = graph_of(element_graphs.biased)
    region, machine = find_region(graph), h200()
    few = [s for s in structures(region, machine) if s.consumers < 3 and s.tile_rows < 64]
    found = [s for s in few if not infeasible(lower(region, s, machine), machine, MARGIN)]
    assert {s.columns for s in found} == {256, 512, 1024}
    for s in found:
        made = build(graph, s)
        assert case(graph).fault(made.source, 1) is None, s.describe()


def doubled(shape: tuple[int, ...]) -> Body:
    return lambda g: g.cast(g.mul(g.input("x", shape, "bf16"), 2.0), "bf16", name="y")


def test_other_extents_run_too() -> None:
    made = build(graph_of(doubled((6, 1024))), structure(2, 256, 2))
    for rows, columns in ((1, 256), (9, 2048), (3, 512)):
        assert case(graph_of(doubled((rows, columns)))).fault(made.source, 1) is None
    fault = case(graph_of(doubled((4, 320)))).check(made.source, 0)
    assert fault is None  # one box is as wide as TMA's: no row is seen in parts


def test_rows_that_are_seen_in_parts_have_whole_ones() -> None:
    made = build(graph_of(doubled((6, 1024))), structure(2, 512, 2))
    assert case(graph_of(doubled((5, 768)))).fault(made.source, 1) is None
    fault = case(graph_of(doubled((4, 320)))).check(made.source, 0)
    assert fault is not None
    assert "rows have 320 elements: this schedule takes multiples of 256" in fault


def test_a_mask_that_ends_between_whole_runs_lets_threads_load_them() -> None:
    """Rows that are seen in parts are multiples of these, so that no run of 16 ends within; else Triton loads one by
    one. Of what a run holds beyond the end nothing is read.
    """

    def shifted(shape: tuple[int, int]) -> Body:
        def body(g: GraphBuilder) -> Symbol:
            return g.cast(
                g.add(g.input("x", shape, "bf16"), g.input("b", shape[1:], "bf16")), "bf16", name="y"
            )

        return body

    made = build(graph_of(shifted((6, 1024))), structure(2, 512, 2))
    good = "mask=columns // 16 < column_extent // 16"
    assert good in made.source
    for shape in ((6, 1024), (5, 768)):
        assert case(graph_of(shifted(shape))).fault(made.source, 1) is None
    wrong = made.source.replace(good, good + " + 1")
    assert case(graph_of(shifted((5, 768)))).fault(wrong, 1) is not None


def test_one_row_may_be_of_any_length() -> None:
    made = build(graph_of(doubled((7, 100))), structure(1, 256, 1))
    for shape in ((7, 100), (1, 3), (11, 77)):
        assert case(graph_of(doubled(shape))).fault(made.source, 1) is None


def test_a_vector_takes_multiples_of_its_rows() -> None:
    made = build(graph_of(doubled((512 * 37,))), structure(1, 1024, 1))
    (rows, columns) = made.verified.program.whole.extents
    assert case(graph_of(doubled((rows[1] * columns[1] * 2,)))).fault(made.source, 1) is None
    fault = case(graph_of(doubled((columns[1] + 8,)))).check(made.source, 0)
    assert fault is not None
    assert f"dimension 0 has to be a multiple of {columns[1]}" in fault


def test_a_slice_has_the_places_that_it_had() -> None:
    made = emitted(element_graphs.packed_gate, 2, 256, 2)

    def other(rows: int, columns: int) -> Body:
        return lambda g: g.neg(g.slice(g.input("x", (rows, columns), "bf16"), stop=columns // 2), name="y")

    fault = case(graph_of(other(9, 1200))).check(made.source, 0)
    assert fault is not None
    assert "tensor x: dimension 1 has 1200 elements: a slice of 1216 is read" in fault


def test_nothing_beyond_a_slice_is_read_or_written() -> None:
    """Rows of 304 and tiles of 512: a tensor map ends with the slice, and begins before it."""
    made = emitted(element_graphs.biased_slice, 4, 512, 2)
    assert "x_extents = [x.shape[0] - 2, 408]" in made.source
    for good, wrong in (("TILE_COLUMNS + 104", "TILE_COLUMNS + 96"), ("TILE_ROWS + 5", "TILE_ROWS + 4")):
        check_shows(made, good, wrong)


def _sliced(g: GraphBuilder, start: int) -> Symbol:
    x = g.input("x", (40, 512), "bf16")
    return g.cast(g.silu(g.slice(x, start=start, stop=start + 304)), "bf16", name="y")


def _surrounded(g: GraphBuilder, low: int) -> Symbol:
    x = g.input("x", (40, 304), "bf16")
    return g.cast(g.silu(g.pad(x, low=(0, low), high=(0, 16 - low))), "bf16", name="y")


@pytest.mark.parametrize("body", [_sliced, _surrounded])
@pytest.mark.parametrize("place", [5, 8])
def test_parts_of_rows_begin_at_16_bytes(body: Callable[[GraphBuilder, int], Symbol], place: int) -> None:
    """Elsewhere a copy is an illegal instruction, and threads read the tile."""
    region = find_region(graph_of(lambda g: body(g, place)))
    assert region.by_threads is (place == 5)
    assert next(structures(region, h200()), None) is not None


def test_zeros_around_a_tensor_are_no_other_elements() -> None:
    """A map that does not end with the tensor, and a place that is not before it."""
    made = emitted(element_graphs.padded, 4, 256, 2)
    for good, wrong in (
        ("x_extents = [x.shape[0], 304]", "x_extents = [x.shape[0] + 1, 304]"),
        ("TILE_COLUMNS + -8", "TILE_COLUMNS + 0"),
    ):
        check_shows(made, good, wrong)
    assert "dimension 0 has 36 elements: a slice of 37 is read" in (
        case(_shorter()).check(made.source, 0) or ""
    )


def _shorter() -> Graph:
    def body(g: GraphBuilder) -> Symbol:
        x, z = g.input("x", (36, 304), "bf16"), g.input("z", (42, 320), "bf16")
        return g.cast(g.add(g.pad(x, low=(2, 8), high=(4, 8)), z), "bf16", name="y")

    return graph_of(body)


# --- mutants ----------------------------------------------------------------------------------------------

SUBJECTS: dict[str, tuple[Body, tuple[int, ...], int, tuple[int, ...]]] = {
    "biased": (element_graphs.biased, (2, 256, 2), 7, (4, 3)),
    "rotary": (element_graphs.rotary, (4, 64, 1), 12, (4, 3)),
    "turned": (element_graphs.turned, (4, 64, 1), 15, (4, 3)),
}
EQUIVALENT = {
    "biased": {"double-wait": 2, "swap-argument": 2},
    "rotary": {"double-wait": 2},
    "turned": {"double-wait": 2},
}
"""A wait that has passed passes again; and two consumers' own buffers, or their numbers, are interchangeable."""


def kind(mutant: Mutant) -> str:
    return mutant.name.partition("@")[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_mutant_is_found(name: str) -> None:
    body, cut, kib, tiles = SUBJECTS[name]
    made = emitted(body, *cut, 4, kib)
    assert made.depth in (2, 3)
    cases = [small_case(made, count) for count in tiles]
    assert survives(cases, made.source, SEEDS)
    alive = Counter(kind(mutant) for mutant in mutants(made.source) if survives(cases, mutant.source, SEEDS))
    assert alive == EQUIVALENT[name]


FAULTS = {
    "columns < column_extent": "columns < column_extent + 1",
    "rows < row_extent": "rows < row_extent + 1",
    "column = column_tile * TILE_COLUMNS": "column = column_tile * CONSUMER_ROWS",
    "[row, column]": "[row, 0]",
}


@pytest.mark.parametrize("good", FAULTS)
def test_faults_are_found(good: str) -> None:
    made = emitted(element_graphs.biased, 2, 256, 3)
    check_shows(made, good, FAULTS[good])
