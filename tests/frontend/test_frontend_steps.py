"""Slices with a step are one place of each so many: kernels read them where they lie."""

from __future__ import annotations

import numpy as np
import pytest
from emit_builds import Body, build, graph_of, h200

from wsopt.frontend.region import find_region
from wsopt.frontend.steps import takes_whole_steps, with_steps_as_axes
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.lowering.structures import structures
from wsopt.simulation import simulate


@pytest.mark.parametrize(
    ("extent", "start", "stop", "step", "whole"),
    [
        (12, 0, 12, 2, True),
        (12, 1, 12, 2, True),
        (12, 2, 11, 3, True),
        (12, 4, 9, 4, True),
        (7, 0, 7, 2, False),
        (7, 1, 7, 2, True),
        (8, 5, 6, 2, True),
    ],
)
def test_steps_are_an_axis_where_they_are_whole(
    extent: int, start: int, stop: int, step: int, whole: bool
) -> None:
    graph = graph_of(
        lambda g: g.slice(
            g.input("x", (4, extent, 3), "f32"), axis=1, start=start, stop=stop, step=step, name="y"
        )
    )
    assert takes_whole_steps(graph, graph.nodes[0]) is whole
    written, inputs = with_steps_as_axes(graph), random_inputs(graph, 0)
    assert (written is not graph) is whole
    np.testing.assert_array_equal(evaluate(written, inputs)["y"], evaluate(graph, inputs)["y"])


def alternating(g: GraphBuilder) -> Symbol:
    """A gate and what it scales, in every other column of one product."""
    x, w = g.input("x", (160, 128), "bf16"), g.input("w", (384, 128), "bf16", constant=True)
    b = g.input("b", (384,), "bf16", constant=True)
    h = g.add(g.matmul(x, w, transpose_b=True), b)
    gate, up = (g.slice(h, axis=1, start=at, step=2) for at in (0, 1))
    return g.cast(g.mul(g.silu(gate), up), "bf16", name="y")


def other_rows(g: GraphBuilder) -> Symbol:
    """A product of every second row of what it multiplies."""
    x, w = g.input("x", (320, 128), "bf16"), g.input("w", (192, 128), "bf16", constant=True)
    return g.cast(g.slice(g.matmul(x, w, transpose_b=True), axis=0, start=1, step=2), "bf16", name="y")


def half_of_heads(g: GraphBuilder) -> Symbol:
    """The first half of each of a row's heads, seen by a reshape of the row."""
    x = g.reshape(g.input("x", (96, 512), "bf16"), shape=(96, 4, 2, 64))
    return g.exp(g.reshape(g.slice(x, axis=2, start=1, stop=2), shape=(96, 4, 64)), name="y")


@pytest.mark.slow
@pytest.mark.parametrize("body", [alternating, other_rows, half_of_heads])
def test_one_kernel_reads_what_steps_leave_where_it_lies(body: Body) -> None:
    graph = graph_of(body)
    few = [s for s in structures(find_region(graph), h200()) if s.consumers == 1 and not s.occupancy]
    made = build(graph, few[len(few) // 3])
    assert simulate(graph, made.verified, made.source, 2).max_relative_error < 1e-5
