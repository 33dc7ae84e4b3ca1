"""A row's bits do not depend on timing, nor on how many rows there are: what a deterministic graph asks for."""

from __future__ import annotations

import functools

import emit_builds as builds
import numpy as np
import pytest
from emit_builds import Body, Emitted, build, graph_of, structure

from wsopt.graph.reference import random_inputs
from wsopt.interpret import execute
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
