"""Random inputs of a simulation for which outputs overflow are made smaller: sums of infinities have no one value."""

from __future__ import annotations

import numpy as np
import pytest
from emit_builds import build, graph_of, h200

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.lowering.structures import structures
from wsopt.simulation import _expected, _has_numbers, simulate


def grown(g: GraphBuilder, low: float = 0.0) -> Symbol:
    """Products of exponentials that grow with the place in the row, by a rate that is not known."""
    x, rate = g.input("x", (64, 256), "f32"), g.input("rate", (64, 1), "f32")
    place = g.cast(g.iota(shape=(1, 256), axis=1), "f32")
    return g.reduce_sum(g.where(place < 200.0, x * g.exp(rate * place), low), axis=1, name="y")


def test_inputs_are_made_smaller_until_outputs_are_numbers() -> None:
    graph = graph_of(grown)
    inputs = random_inputs(graph, 0)
    rates = inputs["rate"].copy()
    assert np.isfinite(_expected(graph, inputs)["y"].value).all()
    assert (np.abs(inputs["rate"]) < np.abs(rates)).all()


def test_infinities_that_a_graph_means_leave_inputs_as_they_are() -> None:
    graph = graph_of(lambda g: g.where(g.input("x", (8, 128), "f32") > 0.0, 1.0, float("-inf"), name="y"))
    inputs = random_inputs(graph, 0)
    before = inputs["x"].copy()
    assert np.isinf(_expected(graph, inputs)["y"].value).any()
    assert (inputs["x"] == before).all()


def test_extents_at_which_smaller_inputs_have_numbers_are_executed() -> None:
    """Sums of infinities of both signs are no numbers of the first inputs; smaller ones have a sum."""
    assert np.isnan(evaluate(graph_of(grown), random_inputs(graph_of(grown), 0))["y"]).any()
    assert _has_numbers(graph_of(grown))
    assert not _has_numbers(graph_of(lambda g: g.div(0.0 * g.input("x", (8, 128), "f32"), 0.0, name="y")))


@pytest.mark.slow
def test_a_kernel_of_what_grows_is_simulated() -> None:
    graph = graph_of(grown)
    kernel = build(graph, next(structures(find_region(graph), h200())))
    assert simulate(kernel.graph, kernel.verified, kernel.source, 2).max_relative_error < 1e-4
