"""Reductions over an axis that a reshape has made of several: dimensions of an image, or all of a tensor's."""

from __future__ import annotations

import numpy as np
import pytest
from emit_builds import Body, Emitted, build, case, graph_of, h200

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.simulation import simulate


def instance_norm(g: GraphBuilder) -> Symbol:
    """A norm of each channel of an image, whose result has the image's dimensions."""
    h = g.reshape(g.input("x", (2, 6, 4, 20), "f32"), shape=(12, 80))
    apart = h - g.reduce_mean(h, axis=1, keepdims=True)
    spread = g.reduce_mean(apart * apart, axis=1, keepdims=True)
    return g.reshape(apart * g.rsqrt(spread + 1e-5), shape=(2, 6, 4, 20), name="y")


def pooled(g: GraphBuilder) -> Symbol:
    """The mean of each channel of an image whose channels lie next to each other."""
    return g.reduce_mean(g.reshape(g.input("x", (3, 4, 5, 72), "bf16"), shape=(3, 20, 72)), axis=1, name="y")


def loss(g: GraphBuilder) -> Symbol:
    """The mean of all squares, one number."""
    apart = g.input("x", (10, 256), "bf16") - g.input("y", (10, 256), "bf16")
    return g.reduce_mean(g.reshape(apart * apart, shape=(2560,)), axis=0, name="z")


def long_sum(g: GraphBuilder) -> Symbol:
    """The same of more elements than an SM holds."""
    return g.reduce_sum(g.reshape(g.input("x", (80, 512), "bf16"), shape=(40960,)), axis=0, name="y")


def place(g: GraphBuilder) -> Symbol:
    """The place of the largest, counted through all dimensions."""
    return g.reduce_argmax(g.reshape(g.input("x", (16, 8, 24), "bf16"), shape=(16, 192)), axis=1, name="y")


def weighted(g: GraphBuilder) -> Symbol:
    """Weights of an element each lie as the elements do."""
    x, w = g.input("x", (4, 8, 32), "f32"), g.input("w", (8, 32), "f32")
    return g.softmax(g.reshape(x * w, shape=(4, 256)), axis=1, name="y")


def by_channel(g: GraphBuilder) -> Symbol:
    """Weights that neighbours of a row share."""
    x, w = g.input("x", (2, 32, 8, 32), "f32"), g.input("w", (8, 1), "f32")
    return g.reduce_sum(g.reshape(x * w, shape=(2, 32, 256)), axis=2, name="y")


def made(body: Body) -> Emitted:
    graph = graph_of(body)
    return build(graph, next(structures(find_region(graph), h200())))


@pytest.mark.slow
@pytest.mark.parametrize("body", [instance_norm, pooled, loss, long_sum, place, weighted, by_channel])
def test_computes(body: Body) -> None:
    kernel = made(body)
    assert case(kernel.graph).fault(kernel.source, 2) is None
    assert simulate(kernel.graph, kernel.verified, kernel.source, 2).seeds == 2


def test_what_lies_apart_at_a_call_is_refused() -> None:
    kernel = made(pooled)
    inputs = case(kernel.graph).inputs
    apart = np.zeros((3, 4, 8, 72), inputs["x"].dtype)[:, :, :5]
    fault = case(kernel.graph, inputs={"x": apart}).check(kernel.source, 0)
    assert fault is not None
    assert "tensor x: dimensions 1 and 2 do not lie contiguously" in fault


def two_axes(g: GraphBuilder) -> Symbol:
    x = g.input("x", (2, 4, 8, 32), "f32")
    whole = g.reduce_sum(g.reshape(x, shape=(2, 4, 256)), axis=2, name="a")
    return g.sub(g.reduce_sum(g.reduce_max(x, axis=3, name="b"), axis=2, name="c"), whole, name="y")


def test_axes_that_are_not_one_everywhere_are_refused() -> None:
    told = "nodes a and b and c reduce different axes, one of them of those that a reshape merges"
    with pytest.raises(LoweringError, match=told):
        find_region(graph_of(two_axes))
