"""Statistics of rows that a mask leaves nothing of are what the graph means, in every spelling of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from emit_builds import Body, build, graph_of, structure

from wsopt.codegen import compile_kernel
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.interpret import execute
from wsopt.simulation import simulate

EMPTY = 40
"""The first row that has nothing left."""


def statistics(safe: bool) -> Body:
    def body(g: GraphBuilder) -> tuple[Symbol, ...]:
        q, k, v = (g.input(name, (1, 72, 64), "bf16") for name in "qkv")
        left = g.iota((72, 1), axis=0) < EMPTY
        scores = g.where(left, g.matmul(q, k, transpose_b=True) * 0.125, -math.inf)
        peak = g.reduce_max(scores, axis=-1, keepdims=True)
        if safe:
            peak = g.where(g.equal(peak, -math.inf), 0.0, peak)
        weights = g.exp(scores - peak)
        total = g.reduce_sum(weights, axis=-1, keepdims=True)
        lse = g.cast(peak + g.log(total), dtype="f32", name="lse")
        return lse, g.cast(g.matmul(g.cast(weights / total, dtype="bf16"), v), dtype="f32", name="y")

    return body


@pytest.mark.parametrize("safe", [False, True])
def test_a_row_of_nothing(safe: bool) -> None:
    made = build(graph_of(statistics(safe)), structure(64, 64))
    assert simulate(made.graph, made.verified, made.source, 1).worst.accepted
    inputs = random_inputs(made.graph, 0)
    found = execute(made.source, inputs, seed=0).outputs["lse"][0, :, 0]
    meant = evaluate(made.graph, inputs)["lse"][0, :, 0]
    assert np.isfinite(found[:EMPTY]).all()
    assert (np.isneginf(meant[EMPTY:]) if safe else np.isnan(meant[EMPTY:])).all()
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(meant))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(meant))


def one_key(g: GraphBuilder) -> tuple[Symbol, ...]:
    """The statistics keep an axis that has one element, as the keys have."""
    q, k, v = (g.input(name, (3, 1, 64), "bf16") for name in "qkv")
    scores = g.matmul(q, k, transpose_b=True) * 0.125
    peak = g.reduce_max(scores, axis=-1, keepdims=True)
    weights = g.exp(scores - peak)
    total = g.reduce_sum(weights, axis=-1, keepdims=True)
    lse = g.cast(peak + g.log(total), dtype="f32", name="lse")
    return lse, g.cast(g.matmul(g.cast(weights / total, dtype="bf16"), v), dtype="f32", name="y")


def rounded_before_the_mask(g: GraphBuilder) -> Symbol:
    q, k, v = (g.input(name, (1, 72, 64), "f16") for name in "qkv")
    scores = g.cast(g.matmul(q, k, transpose_b=True) * 0.125, dtype="f16")
    other = g.not_equal(g.iota((72, 1), axis=0), g.iota((1, 72), axis=1))
    p = g.softmax(g.where(other, scores, -math.inf))
    return g.cast(g.matmul(g.cast(p, dtype="f16"), v), dtype="f32", name="y")


@pytest.mark.compiler
@pytest.mark.parametrize("body", [one_key, rounded_before_the_mask])
def test_found_by_chance(body: Body) -> None:
    """Graphs that random ones have led to: an output's axis of one element, and a choice between rounded values."""
    made = build(graph_of(body), structure(64, 64))
    assert simulate(made.graph, made.verified, made.source, 1).worst.accepted
    assert compile_kernel(made.source).spill_stores == 0
