"""Losses over rows that no SM holds, whose sums are of differences to the logarithm of the row's exponentials: one
pass over the row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from emit_builds import SEEDS, Body, case, graph_of
from row_builds import emitted

from wsopt.errors import LoweringError
from wsopt.frontend.kinds import Kind
from wsopt.frontend.region import find_region
from wsopt.frontend.roles import graph_axes
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs

ROWS, LENGTH, SMOOTHED = 6, 40000, 0.1
Loss = Callable[[GraphBuilder, Symbol, Symbol], Symbol]


def of_logarithms(loss: Loss) -> Body:
    """A loss of x less the logarithm of its row's exponentials, and of where the row's target is."""

    def body(g: GraphBuilder) -> Symbol:
        x, target = g.input("x", (ROWS, LENGTH), "bf16"), g.input("target", (ROWS, 1), "i32")
        hit = g.equal(g.iota(shape=(1, LENGTH), axis=1), target)
        return g.mul(loss(g, g.sub(x, g.logsumexp(x, axis=1, keepdims=True)), hit), 1.0, name="loss")

    return body


def smoothed(g: GraphBuilder, logarithms: Symbol, hit: Symbol) -> Symbol:
    own = g.reduce_sum(g.where(hit, logarithms, 0.0), axis=1)
    return g.neg(own * (1.0 - SMOOTHED)) - g.reduce_mean(logarithms, axis=1) * SMOOTHED


def weighted(g: GraphBuilder, logarithms: Symbol, hit: Symbol) -> Symbol:
    share = g.where(hit, 1.0 - SMOOTHED, SMOOTHED / LENGTH)
    return g.reduce_sum(g.neg(share * logarithms), axis=1)


def to_another(g: GraphBuilder, logarithms: Symbol, hit: Symbol) -> Symbol:
    """The sum of differences of the logarithms of two tensors, where one is the target's."""
    z = g.input("z", (ROWS, LENGTH), "bf16")
    apart = g.sub(g.sub(z, g.logsumexp(z, axis=1, keepdims=True)), logarithms)
    return g.reduce_sum(g.where(hit, 0.5, apart), axis=1)


def of_shares(g: GraphBuilder, logarithms: Symbol, hit: Symbol) -> Symbol:
    """What a row's logarithms are on average by the shares of another's softmax, which is divided behind the sum."""
    z = g.input("z", (ROWS, LENGTH), "bf16")
    return g.neg(g.reduce_sum(g.softmax(z * 3.0) * g.where(hit, 0.0, logarithms), axis=1))


def of_classes(g: GraphBuilder, logarithms: Symbol, _hit: Symbol) -> Symbol:
    """Smoothed labels whose classes have weights: what is summed up of them is the same in every row."""
    return g.reduce_sum(logarithms * g.input("weights", (1, LENGTH), "bf16"), axis=1)


def without_padding(g: GraphBuilder, logarithms: Symbol, _hit: Symbol) -> Symbol:
    """Of the words alone that there are, in rows with room behind them."""
    words = g.less(g.iota(shape=(1, LENGTH), axis=1), LENGTH - 777)
    return g.reduce_sum(g.where(words, logarithms, 0.0), axis=1)


LOSSES: dict[str, Loss] = {
    "smoothed": smoothed,
    "weighted": weighted,
    "to another": to_another,
    "of shares": of_shares,
    "of classes": of_classes,
    "without padding": without_padding,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_it_computes_what_the_graph_means(name: str) -> None:
    made = emitted(of_logarithms(LOSSES[name]), 2, 4096, 2)
    assert not made.verified.program.reads_twice
    inputs = random_inputs(made.graph, 0)
    inputs["target"][:3, 0] = (0, LENGTH - 1, 17)
    assert case(made.graph, inputs=inputs).fault(made.source, SEEDS) is None


@pytest.mark.slow
def test_a_row_without_an_element_and_without_a_target_has_no_loss() -> None:
    """What is subtracted is -inf there, and no element has any of it."""

    def own(g: GraphBuilder, logarithms: Symbol, hit: Symbol) -> Symbol:
        return g.reduce_sum(g.where(hit, logarithms, 0.0), axis=1)

    made = emitted(of_logarithms(own), 2, 4096, 2)
    inputs = random_inputs(made.graph, 0)
    inputs["x"][1] = -np.inf
    inputs["target"][:, 0] = (5, -100, LENGTH, 7, 8, 9)
    found = case(made.graph, inputs=inputs)
    assert (found.referee.expected["loss"].value[1:3] == 0).all()
    assert found.check(made.source, 0) is None


def test_logarithms_of_shares_are_summed_in_one_pass() -> None:
    graph = graph_of(of_logarithms(smoothed))
    assert graph_axes(graph).kind is Kind.LONG_ROWS
    assert find_region(graph).passes == 1


def test_what_a_maximum_and_weights_of_columns_share_is_not_nan_by_infinite_weights() -> None:
    """Of the elements beside the shares nothing is left, which is not multiplied by the weights."""

    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (ROWS, LENGTH), "bf16"), g.input("w", (1, LENGTH), "bf16")
        return g.reduce_sum(g.reduce_max(x, axis=1, keepdims=True) * w, axis=1, name="y")

    made = emitted(body, 2, 4096, 2)
    inputs = random_inputs(made.graph, 0)
    inputs["w"][0, 7] = np.inf
    assert case(made.graph, inputs=inputs).fault(made.source, 1) is None


@pytest.mark.parametrize("scale", [1e-25, np.inf])
def test_factors_that_are_known_before_a_row_stay_with_its_elements(scale: float) -> None:
    """Squares of large elements are finite only behind their scale, and what is infinite times one of either sign has
    no sum.
    """

    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (ROWS, LENGTH), "f32") * g.input("scale", (ROWS, 1), "f32")
        return g.reduce_sum(g.mul(x, x) if np.isfinite(scale) else x, axis=1, name="y")

    made = emitted(body, 2, 4096, 2)
    inputs = random_inputs(made.graph, 0)
    inputs["x"] *= 1e25 if np.isfinite(scale) else 1.0
    inputs["scale"][...] = scale
    assert case(made.graph, inputs=inputs).fault(made.source, 1) is None


def test_differences_to_a_mean_stay_as_they_are() -> None:
    """Numbers far from zero would be lost in the sums of both."""

    def body(g: GraphBuilder) -> Symbol:
        x, z = (g.input(name, (ROWS, LENGTH), "bf16") for name in "xz")
        return g.reduce_sum(z * (x - g.reduce_mean(x, axis=1, keepdims=True)), axis=1, name="y")

    with pytest.raises(LoweringError, match="write it by sums of the elements alone"):
        find_region(graph_of(body))
