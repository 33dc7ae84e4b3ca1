"""Slices of what is computed in a cut: kernels compute no more than is read, where that is faster."""

from __future__ import annotations

import pytest

from wsopt.graph.builder import GraphBuilder
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.make import build_cut


def last_rows() -> Graph:
    """y = (x w)[:, -1:], of which one kernel would write all rows."""
    g = GraphBuilder("last_rows")
    x, w = g.input("x", (4, 128, 192), "bf16"), g.input("w", (192, 256), "bf16", constant=True)
    g.output(g.cast(g.slice(g.matmul(x, w), axis=1, start=127), "bf16", name="y"))
    return g.build()


@pytest.mark.solver
def test_rows_that_nothing_reads_are_not_computed(h200: Machine) -> None:
    found = build_cut(last_rows(), h200, use_cache=False)
    assert max(place.nbytes for place in found.record.places) == 4 * 192 * 2


def normed_and_turned() -> Graph:
    """Queries that are normed a head, and turned by their position, half against half."""
    g = GraphBuilder("normed_and_turned")
    q, w = g.input("q", (512, 16, 128), "bf16"), g.input("w", (128,), "bf16", constant=True)
    cos, sin = (g.input(name, (512, 1, 64), "f32") for name in ("cos", "sin"))
    normed = g.cast(g.rms_norm(q, w), "bf16")
    first, second = g.slice(normed, axis=2, stop=64), g.slice(normed, axis=2, start=64)
    g.output(g.cast(g.concat(first * cos - second * sin, second * cos + first * sin, axis=2), "bf16"))
    return g.build()


@pytest.mark.solver
def test_what_is_normed_and_then_turned_lies_in_memory_nowhere(h200: Machine) -> None:
    found = build_cut(normed_and_turned(), h200, use_cache=False)
    assert [step.inputs.count("q") for step in found.record.steps] == [1, 1]
    assert max(place.nbytes for place in found.record.places) == 512 * 16 * 4
