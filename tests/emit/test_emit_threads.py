"""Rows that no SM holds, of which each thread keeps what it has reduced until the last part."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import row_graphs
from emit_builds import SEEDS, Body, case, h200
from emit_mutants import survives
from row_builds import emitted, structure
from tile_graphs import region_of

from wsopt.codegen import Expectation, compile_kernel, verdict
from wsopt.emit.called import BRANCH
from wsopt.emit.source import expected_instructions
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.graph.types import DType
from wsopt.interpret import mutants
from wsopt.perf.price import lower
from wsopt.program.combination import kept_by_threads
from wsopt.program.facts import Arithmetic
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import Role


def scaled(g: GraphBuilder) -> Symbol:
    """A logarithm of sums of rows times a factor of each, which comes by address."""
    x, factor = g.input("x", (10, 40000), "bf16"), g.input("factor", (10, 1), "f32")
    return g.logsumexp(g.mul(x, factor), axis=-1, name="lse")


def largest(g: GraphBuilder) -> Symbol:
    """Rows less their largest element: the second pass reads a reduction itself."""
    x = g.input("x", (10, 40000), "bf16")
    return g.cast(g.sub(x, g.reduce_max(x, axis=-1, keepdims=True)), "bf16", name="y")


def place(g: GraphBuilder) -> Symbol:
    return g.reduce_argmax(g.input("x", (10, 40000), "bf16"), axis=-1, name="place")


def causal(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Masks by the row's own place, beside a maximum of which each thread has its own."""
    x = g.input("x", (10, 40000), "bf16")
    row, column = g.iota((10, 40000), axis=0), g.iota((10, 40000), axis=1)
    seen = g.where(g.less_equal(column, g.mul(row, 4000)), x, 0.0)
    return g.logsumexp(seen, axis=-1, name="lse"), g.reduce_max(seen, axis=-1, name="largest")


CUTS: tuple[tuple[Body, tuple[int, ...]], ...] = (
    (row_graphs.long_softmax, (1, 4096, 1, 8)),
    (row_graphs.long_softmax, (2, 2048, 2)),  # two warps a row
    (row_graphs.long_softmax, (8, 1024, 1)),  # two rows a warp
    (row_graphs.long_logsumexp, (1, 1024, 2)),  # one run a thread
    (row_graphs.long_norm, (1, 4096, 2)),
    (largest, (1, 4096, 1)),
    (scaled, (2, 4096, 1)),
    (causal, (2, 4096, 1)),
)


@pytest.mark.slow
@pytest.mark.parametrize(("body", "cut"), CUTS, ids=lambda x: x.__name__ if callable(x) else str(x))
def test_computes(body: Body, cut: tuple[int, ...]) -> None:
    made = emitted(body, *cut)
    assert "by_threads(" in made.source
    assert case(made.graph).fault(made.source, SEEDS) is None


@pytest.mark.compiler
@pytest.mark.parametrize(("body", "cut"), CUTS[:3], ids=lambda x: x.__name__ if callable(x) else str(x))
def test_nothing_is_exchanged_before_the_last_part(body: Body, cut: tuple[int, ...]) -> None:
    made = emitted(body, *cut)
    compiled = compile_kernel(made.source)
    asked = Expectation(expected_instructions(made.verified), made.verified.schedule.shared_memory_bytes)
    assert verdict(compiled, asked) == ()
    rows, lanes = cut[0] // min(cut[0], cut[3] if len(cut) > 3 else 4), 5
    assert dict(compiled.sass)["SHFL"] <= made.verified.program.structure.consumers * 2 * rows * (lanes + 3)


def test_threads_without_an_element_before_the_end_have_no_share() -> None:
    made = emitted(row_graphs.long_softmax, 1, 8192, 1, 8)
    inputs = random_inputs(made.graph, 0)
    inputs["x"][5] = -np.inf
    inputs["x"][6, :-1] = -np.inf  # one thread has one
    found = case(made.graph, inputs=inputs)
    assert found.check(made.source, 0) is None


def test_what_cannot_come_together_is_exchanged_for_every_part() -> None:
    assert "by_threads(" not in emitted(place, 1, 4096).source
    items = region_of(row_graphs.long_softmax).running
    assert kept_by_threads(items) is not None
    rowed = next(i for i in items if isinstance(i, Statement) and len(i.spans) == 1 and i.reads)
    foreign = replace(rowed, args=("elsewhere", *rowed.args[1:]))
    assert kept_by_threads([foreign if i is rowed else i for i in items]) is None
    anew = [replace(i, rescale=i.name) if isinstance(i, Reduction) and i.kind == "max" else i for i in items]
    assert kept_by_threads(anew) is None


def test_an_exchange_is_paid_for_once_a_row() -> None:
    program = lower(region_of(row_graphs.long_softmax), structure(1, 4096), h200())
    (phase,) = (op.counts for op in program.by_consumer[0] if op.id.subject.startswith("phase"))
    assert isinstance(phase, Arithmetic)
    assert {one.share for one in phase.reductions} == {1 / (2 * 9)}
    every = lower(region_of(place), structure(1, 4096), h200())
    phases = [op.counts for op in every.by_consumer[0] if op.id.subject.startswith("phase")]
    shares = {one.share for phase in phases if isinstance(phase, Arithmetic) for one in phase.reductions}
    assert shares == {1.0}


def test_only_the_last_part_looks_where_its_row_ends() -> None:
    made = emitted(row_graphs.long_softmax, 2, 2048, 2)
    guard = "if column + TILE_COLUMNS > ROW_LENGTH:"
    lines = [line.strip() for line in made.source.splitlines()]
    asked = [place for place, line in enumerate(lines) if line.endswith("columns < ROW_LENGTH")]
    assert asked
    assert all(lines[place - 2] == guard and lines[place - 1] == BRANCH for place in asked)
    never = made.source.replace(guard, "if column + TILE_COLUMNS > 2 * ROW_LENGTH:")
    assert case(made.graph).check(never, 0) is not None


@pytest.mark.slow
def test_every_mutant_is_found() -> None:
    made = emitted(row_graphs.long_logsumexp, 1, 8192, 1, 8)
    cases = [case(made.graph)]
    assert survives(cases, made.source, SEEDS)
    alive = Counter(one.kind for one in mutants(made.source) if survives(cases, one.source, 3))
    assert alive == {"double-wait": 2}


def test_a_reduction_and_the_rows_own_place_do_not_come_together_by_threads() -> None:
    """What a thread has of a reduction lies elsewhere than the place of its row."""
    place = Statement("place", "iota_row", (), frozenset({Role.ROW}), DType.I32)
    largest = Reduction("largest", "max", "x")
    assert kept_by_threads((place, largest)) is not None
    shifted = Statement("shifted", "add", ("largest", "place"), place.spans, DType.F32)
    assert kept_by_threads((place, largest, shifted)) is None
