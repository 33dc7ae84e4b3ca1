"""Drawn masks and chains between two products: the region means what the graph does, or is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from attention_graphs import Parts, Sizes, parts, scores
from hypothesis import event, given, settings
from hypothesis import strategies as st
from region_numpy import evaluate_region

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs, relative_error
from wsopt.graph.types import Graph

Draw = st.DrawFn
TOLERANCE = 0.012
"""Of a result of several roundings to bf16, one of them in the loop."""


def condition(draw: Draw, p: Parts) -> Symbol:
    """A comparison of whole numbers, written in one of many ways."""
    g = p.g
    kind = draw(st.sampled_from(["line", "line", "line", "width", "row", "key", "same", "float"]))
    c = draw(st.integers(-30, 60))
    op = draw(st.sampled_from(["less", "less_equal", "greater", "greater_equal"]))
    left, right = draw(st.permutations([p.rows, p.columns]))
    if kind == "line":
        forms = (
            lambda: g.apply(op, [left, right + c], {}),
            lambda: g.apply(op, [left - right, c], {}),
            lambda: g.apply(op, [-(left - c), right * -1], {}),
            lambda: g.logical_not(g.apply(op, [c, left + right], {})),
            lambda: g.apply(op, [left * 2, right * 2 + c], {}),
        )
        return draw(st.sampled_from(forms))()
    if kind == "width":
        return g.less(g.abs(left - right), abs(c) + 1)
    if kind == "same":
        return g.logical_or(g.equal(left, right), g.apply(op, [left, right], {}))
    if kind == "float":
        return g.apply(op, [g.cast(left, dtype="f32") * 1.0, g.cast(right, dtype="f32") + float(c)], {})
    return g.apply(op, [p.rows if kind == "row" else p.columns, c], {})


def mask(draw: Draw, p: Parts, x: Symbol, fills: tuple[float, ...]) -> Symbol:
    """A choice by one or two conditions, either way round."""
    c = condition(draw, p)
    if draw(st.booleans()):
        c = p.g.apply(
            draw(st.sampled_from(["logical_and", "logical_and", "logical_or"])), [c, condition(draw, p)], {}
        )
    fill = draw(st.sampled_from(fills))
    if draw(st.booleans()):
        return p.g.where(p.g.logical_not(c), fill, x)
    return p.g.where(c, x, fill)


def step(draw: Draw, p: Parts, x: Symbol, number: int, masked: bool) -> Symbol:
    """One elementwise operation on scores; of those with a mask none that makes an infinity positive."""
    g, s = p.g, p.sizes
    key = lambda: g.input(f"key{number}", (s.keys,), "f32")  # noqa: E731
    row = lambda: g.input(f"row{number}", (s.queries, 1), "f32")  # noqa: E731
    head = lambda: g.input(f"head{number}", (s.heads, 1, 1), "f32")  # noqa: E731
    forms = (
        lambda: x * draw(st.sampled_from([0.5, 2.0, 1.0])),
        lambda: g.tanh(x * 0.2) * 5.0,
        lambda: x + key(),
        lambda: row() + x,
        lambda: x - row(),
        lambda: x + head() * g.cast(p.columns - p.rows, dtype="f32") * 0.05,
        lambda: x + g.cast(p.columns, dtype="f32") * 0.02,
        lambda: g.maximum(x, -0.5),
        lambda: x + g.input(f"tile{number}", (s.queries, s.keys), "bf16"),
        lambda: g.where(g.greater(x, 0.3), x, x * 0.1),
    )
    signed = (
        lambda: x * -1.0,
        lambda: x / -2.0,
        lambda: x * head(),
        lambda: g.abs(x),
        lambda: x * x * 0.3,
        lambda: 1.5 - x,
    )
    return draw(st.sampled_from(forms if masked else forms + signed))()


def weights(draw: Draw, p: Parts, x: Symbol) -> Symbol:
    """What is summed up: a softmax, one written out, exponentials, or the scores themselves."""
    g = p.g
    kind = draw(st.sampled_from(["softmax", "softmax", "written out", "exponentials", "linear"]))
    event(kind)
    if kind == "softmax":
        return g.softmax(x)
    if kind == "linear":
        x = g.where(g.less(g.abs(x), 1e3), x, 0.0)
        return x / (g.reduce_sum(g.abs(x), axis=-1, keepdims=True) + 1.0) if draw(st.booleans()) else x
    e = g.exp(x - g.reduce_max(x, axis=-1, keepdims=True))
    if kind == "written out":
        return e / g.reduce_sum(e, axis=-1, keepdims=True)
    return e


@st.composite
def graphs(draw: Draw) -> Graph:
    """Two products with drawn values between them."""
    g = GraphBuilder("drawn")
    sizes = Sizes(
        batch=draw(st.integers(1, 2)),
        heads=draw(st.integers(1, 2)),
        queries=draw(st.sampled_from([1, 16, 33, 45])),
        keys=draw(st.sampled_from([5, 16, 40, 61])),
        inner=8,
        column=8,
        dtype=draw(st.sampled_from(["bf16", "f16"])),
    )
    p = parts(g, sizes)
    x = scores(p)
    masked = False
    for number in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            x, masked = mask(draw, p, x, (-math.inf, -math.inf, -1e30, -2.0)), True
        else:
            x = step(draw, p, x, number, masked)
    w = weights(draw, p, x)
    if draw(st.booleans()):
        w = mask(draw, p, w, (0.0,))
    if draw(st.booleans()):
        w = w * g.input("gain", (sizes.keys,), "f32")
    o = g.matmul(g.cast(w, dtype=sizes.dtype), p.v, name="pv")
    g.output(g.cast(o, dtype=sizes.dtype, name="o"))
    if draw(st.booleans()):
        g.output(g.add(g.reduce_max(x, axis=-1), 1.0, name="largest"))
    return g.build()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(0, 3), st.sampled_from([(32, 16), (8, 32), (64, 8)]))
def test_drawn_chains(graph: Graph, seed: int, tile: tuple[int, int]) -> None:
    try:
        region = find_region(graph)
    except LoweringError as refusal:
        event(f"refused: {refusal}")
        return
    event("lowered")
    inputs = random_inputs(graph, seed)
    wanted = evaluate(graph, inputs)
    for split in (False, True):
        found, _ = evaluate_region(graph, region, inputs, rows=tile[0], k_block=tile[1], split=split)
        for name, array in wanted.items():
            a, b = found[name].astype(np.float32), array.astype(np.float32)
            assert relative_error(a[np.isfinite(b)], b[np.isfinite(b)]) < TOLERANCE, (name, split)
