"""A row's bits do not depend on timing, nor on how many rows there are: what a deterministic graph asks for."""

from __future__ import annotations

import functools
import math

import emit_builds as builds
import numpy as np
import pytest
from emit_builds import Body, Emitted, build, graph_of, structure
from test_emit_combined import split

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.interpret import InterpreterError, execute
from wsopt.interpret.dtypes import Array
from wsopt.lowering.reduced import reduced
from wsopt.program.types import Structure
from wsopt.simulation import first_k_blocks

CASES: dict[str, tuple[Body, Structure]] = {
    "whole sums": (builds.plain, structure(consumers=2)),
    "split sums": (builds.plain, structure(splits=3)),
    "split sums of two consumers": (builds.plain, structure(128, consumers=2, subtiles=2, splits=4)),
}
ROWS = (1, 7, 64, 150)


@functools.cache
def made(name: str) -> tuple[Emitted, dict[str, Array]]:
    """A kernel, and inputs with the most rows."""
    body, s = CASES[name]
    found = build(graph_of(body), s)
    inputs = random_inputs(reduced(found.graph, s, first_k_blocks(found.verified)), 0)
    rows = np.resize(np.asarray(inputs["x"]), (max(ROWS), inputs["x"].shape[1]))
    return found, {**inputs, "x": rows}


def computed(name: str, rows: int, seed: int, processors: int) -> Array:
    found, inputs = made(name)
    given = {**inputs, "x": np.ascontiguousarray(inputs["x"][:rows])}
    constants = found.graph.constants
    run = execute(found.source, given, seed=seed, processors=processors, constants=constants)
    return run.outputs["y"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_rows_have_the_same_bits_whatever_is_beside_them(name: str) -> None:
    whole = computed(name, max(ROWS), 0, 2)
    for seed, rows in enumerate(ROWS):
        alone = computed(name, rows, seed, processors=1 + seed % 3)
        assert alone.tobytes() == whole[:rows].tobytes(), rows


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results_have_the_same_bits_whoever_comes_last(name: str) -> None:
    found = {
        computed(name, max(ROWS), seed, processors).tobytes() for seed in range(6) for processors in (1, 3)
    }
    assert len(found) == 1


# --- parts of a loop that computes values ---------------------------------------------------------------

QUERIES, KEYS = 72, 456


def attention(g: GraphBuilder, *, causal: bool) -> Symbol:
    """softmax(q k' / 8) v in f32, which hides no rounding of sums."""
    q = g.input("q", (2, QUERIES, 64), "bf16")
    k, v = (g.input(name, (2, KEYS, 64), "bf16") for name in "kv")
    s = g.matmul(q, k, transpose_b=True) * 0.125
    if causal:
        i, j = g.iota(shape=(QUERIES, 1), axis=0), g.iota(shape=(1, KEYS), axis=1)
        s = g.where(j <= i + (KEYS - QUERIES), s, -math.inf)
    return g.cast(g.matmul(g.cast(g.softmax(s), dtype="bf16"), v), dtype="f32", name="o")


@functools.cache
def attending(causal: bool) -> Emitted:
    return build(graph_of(lambda g: attention(g, causal=causal)), split(3, consumers=2))


def attended(causal: bool, rows: int, seed: int, processors: int, source: str = "") -> Array:
    """Both heads' outputs where there are so many rows."""
    made = attending(causal)
    inputs = random_inputs(made.graph, 0)
    inputs["q"] = np.ascontiguousarray(inputs["q"][:, :rows])
    return execute(source or made.source, inputs, seed=seed, processors=processors).outputs["o"]


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_combined_parts_have_the_same_bits(causal: bool) -> None:
    """Whoever comes last, and however many rows there are: what a mask leaves of the last one cuts no part anew."""
    whole = attended(causal, QUERIES, 0, 1)
    assert {attended(causal, QUERIES, seed, 3).tobytes() for seed in range(6)} == {whole.tobytes()}
    for rows in (1, 7, 64):
        assert attended(causal, rows, rows, 2).tobytes() == whole[:, :rows].tobytes(), rows


@pytest.mark.slow
def test_parts_in_the_order_of_their_arrival_are_seen() -> None:
    right, wrong = "first_part + part *", "first_part + (part + gl.program_id(0)) % SPLITS *"
    source = attending(False).source
    assert right in source
    changed = source.replace(right, wrong)
    with pytest.raises(InterpreterError, match="output o: launch 2 gives other bits than the one before"):
        _ = [attended(False, QUERIES, seed, 3, changed) for seed in range(6)]


@pytest.mark.slow
def test_parts_that_are_cut_by_the_last_row_are_seen() -> None:
    right, wrong = "(row_tile + 1) * TILE_ROWS, stream_extent", "row_extent, stream_extent"
    source = attending(True).source
    assert source.count(right) == 2
    one, many = (attended(True, rows, 0, 2, source.replace(right, wrong)) for rows in (1, QUERIES))
    assert one.tobytes() != many[:, :1].tobytes()
