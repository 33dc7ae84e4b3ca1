"""Kernels that stream rows: executed, compiled, and every single mistake in them found."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
import row_graphs
from emit_builds import MARGIN, SEEDS, Body, Case, build, case, graph_of, h200, small_case
from emit_checks import check_machine_code
from emit_mutants import survives
from row_builds import emitted

from wsopt.emit.source import expected_instructions
from wsopt.frontend.region import find_region
from wsopt.graph.reference import random_inputs
from wsopt.interpret import Mutant, mutants
from wsopt.lowering.structures import structures
from wsopt.perf.price import lower
from wsopt.solve.bound import infeasible

CUTS: tuple[tuple[Body, tuple[int, ...]], ...] = (
    (row_graphs.softmax, (4, 512, 2)),
    (row_graphs.softmax, (2, 512, 3, 8)),
    (row_graphs.layer_norm, (4, 1024, 2)),
    (row_graphs.layer_norm, (1, 1024, 1)),
    (row_graphs.ragged_softmax, (4, 1024, 2)),
    (row_graphs.residual_norm, (2, 1024, 2)),
    (row_graphs.written_out, (16, 128, 2)),
    (row_graphs.masked, (4, 256, 3)),
    (row_graphs.sums, (2, 1024, 2)),
    (row_graphs.weights_and_logsumexp, (4, 512, 2)),
    (row_graphs.quantized, (8, 128, 2)),
    (row_graphs.cross_entropy, (4, 512, 2)),
    (row_graphs.one_vector, (1, 1024, 1)),
    (row_graphs.logged, (2, 256, 3)),
    (row_graphs.sliced_norm, (8, 128, 2)),
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
    assert expected_instructions(made.verified) == 0
    check_machine_code(made)


def test_every_structure_computes() -> None:
    """All of up to two consumers that the budgets let through: how a tile lies over warps changes no value."""
    graph = graph_of(row_graphs.softmax)
    region, machine = find_region(graph), dataclasses.replace(h200(), shared_memory_per_block_bytes=65536)
    few = [s for s in structures(region, machine) if s.consumers < 3]
    found = [s for s in few if not infeasible(lower(region, s, machine), machine, MARGIN)]
    assert len(found) > 10
    for s in found:
        made = build(graph, s, 64)
        assert case(graph).fault(made.source, 1) is None, s.describe()


def test_a_row_of_nothing_gives_zeros() -> None:
    """A softmax whose elements are all -inf: by graph.json's rule zeros, and no nan."""
    made = emitted(row_graphs.softmax, 4, 512, 2)
    inputs = random_inputs(made.graph, 0)
    inputs["x"][5] = -np.inf
    found = case(made.graph, inputs=inputs)
    expected = found.referee.expected["y"].value.astype(np.float32)
    assert (expected[5] == 0).all()
    assert np.isfinite(expected).all()
    assert found.check(made.source, 0) is None


def test_values_of_rows_are_stored_inside_the_tensor_alone() -> None:
    made = emitted(row_graphs.cross_entropy, 4, 512, 2)
    bound = "mask=rows < row_extent)"
    assert made.source.count(bound) == 1
    assert case(made.graph).fault(made.source.replace(bound, "mask=rows < row_extent + 1)"), 1) is not None
    assert case(made.graph).fault(made.source.replace(bound, "mask=rows < row_extent - 1)"), 1) is not None


def test_values_of_rows_take_no_staging() -> None:
    alone, beside = emitted(row_graphs.sums, 2, 1024, 2), emitted(row_graphs.weights_and_logsumexp, 4, 512, 2)
    assert alone.verified.program.epilogue.staged_bytes == alone.verified.program.epilogue.stores == 0
    assert "staging" not in alone.source
    assert beside.verified.program.epilogue.stores == 1


def test_rows_of_another_number_run_and_of_another_length_do_not() -> None:
    made = emitted(row_graphs.softmax, 4, 512, 2)

    def other(rows: int, columns: int) -> Case:
        return case(
            graph_of(
                lambda g: g.cast(
                    g.softmax(g.input("x", (rows, columns), "bf16"), axis=-1), dtype="bf16", name="y"
                )
            )
        )

    assert other(9, 512).fault(made.source, 2) is None
    fault = other(16, 256).check(made.source, 0)
    assert fault is not None
    assert "rows have 256 elements: this schedule reduces rows of 512" in fault


# --- mutants ----------------------------------------------------------------------------------------------

TWICE = "a wait that has passed passes again"
MIRROR = "the two consumers' own buffers, or their numbers, are interchangeable"
SUBJECTS: dict[str, tuple[Body, tuple[int, ...], int, tuple[int, ...]]] = {
    "softmax": (row_graphs.softmax, (4, 512, 2), 27, (4, 3)),
    "residual_norm": (row_graphs.residual_norm, (2, 1024, 1), 27, (4, 3)),
    "weights_and_logsumexp": (row_graphs.weights_and_logsumexp, (4, 512, 2), 27, (4, 3)),
    "sums": (row_graphs.sums, (2, 1024, 2), 20, (4, 3)),
}
EQUIVALENT = {
    "softmax": {
        "double-wait": (2, TWICE),
        "swap-argument": (2, MIRROR),
    },
    "residual_norm": {"double-wait": (2, TWICE)},
    "weights_and_logsumexp": {"double-wait": (2, TWICE), "swap-argument": (2, MIRROR)},
    "sums": {"double-wait": (2, TWICE), "swap-argument": (1, MIRROR)},
}


def kind(mutant: Mutant) -> str:
    return mutant.name.partition("@")[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_mutant_is_found(name: str) -> None:
    body, cut, kib, tiles = SUBJECTS[name]
    consumers = cut[2]
    made = emitted(body, *cut[:2], consumers, 4, kib)
    assert made.depth in (2, 3)
    cases = [small_case(made, count) for count in tiles]
    assert survives(cases, made.source, SEEDS)
    alive = Counter(kind(mutant) for mutant in mutants(made.source) if survives(cases, mutant.source, SEEDS))
    assert alive == {what: count for what, (count, _) in EQUIVALENT[name].items()}
