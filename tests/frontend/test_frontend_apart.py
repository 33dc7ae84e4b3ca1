"""Joined tensors that end in reductions and in parts are taken apart, and mean what they meant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from wsopt.frontend.apart import taken_apart
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph

Build = Callable[[GraphBuilder, Symbol], Symbol]


def joined(build: Build, *, third: int = 3) -> Graph:
    """What is made of three tensors of 4, 1 and `third` columns, side by side."""
    g = GraphBuilder("joined")
    parts = [g.input(name, (2, 5, extent), "f32") for name, extent in (("a", 4), ("b", 1), ("c", third))]
    g.output(build(g, g.concat(*parts, axis=-1)))
    return g.build()


def first(g: GraphBuilder, x: Symbol) -> Symbol:
    return g.slice(x, axis=2, start=0, stop=4)


def less_maximum(g: GraphBuilder, x: Symbol) -> Symbol:
    return x - g.reduce_max(x, axis=2, keepdims=True)


def safe_twice(g: GraphBuilder, x: Symbol) -> Symbol:
    weights = g.exp(less_maximum(g, less_maximum(g, x)))
    return first(g, weights) / g.reduce_sum(weights, axis=2, keepdims=True)


APART: dict[str, Build] = {
    "softmax": lambda g, x: first(g, g.softmax(x)) * 2.0,
    "softmax, a part of a part": lambda g, x: g.slice(g.softmax(x), axis=2, start=6, stop=8),
    "every second": lambda g, x: g.slice(g.softmax(x), axis=2, start=0, stop=4, step=2) * 2.0,
    "softmax less its maximum": lambda g, x: first(g, g.softmax(less_maximum(g, x))) + 1.0,
    "softmax less its maximum, written out": safe_twice,
    "written out": lambda g, x: (
        first(g, g.exp(x)) / g.reduce_sum(g.cast(g.exp(x), dtype="bf16"), axis=2, keepdims=True)
    ),
    "least, without its axis": lambda g, x: g.reduce_min(g.relu(x), axis=2),
    "what goes along with rows": lambda g, x: g.reduce_sum(x * g.input("r", (5, 1), "f32"), axis=2),
}


@pytest.mark.parametrize("form", APART)
def test_what_is_taken_apart_means_the_same(form: str) -> None:
    graph = joined(APART[form])
    apart = taken_apart(graph)
    assert "concat" not in {node.op for node in apart.nodes}
    assert taken_apart(apart) is apart
    inputs = random_inputs(graph, 0)
    inputs["a"][0, 0], inputs["b"][0, 0], inputs["c"][0, 0] = -np.inf, -np.inf, -np.inf
    for name, wanted in evaluate(graph, inputs).items():
        np.testing.assert_allclose(evaluate(apart, inputs)[name], wanted, rtol=1e-5, atol=1e-6)


WHOLE: dict[str, Build] = {
    "an output": lambda g, x: g.softmax(x),
    "a part across two": lambda g, x: g.slice(g.softmax(x), axis=2, start=2, stop=6),
    "a part that is an output": lambda g, x: first(g, g.softmax(x)),
    "a vector along the axis": lambda g, x: first(g, g.softmax(x) * g.input("v", (8,), "f32")) * 2.0,
    "no reduction along it": lambda g, x: first(g, g.reduce_max(x, axis=1, keepdims=True)) * 2.0,
    "rows beside it": lambda g, x: g.reduce_sum(g.softmax(x), axis=1),
}


@pytest.mark.parametrize("form", WHOLE)
def test_what_is_read_as_one_stays(form: str) -> None:
    graph = joined(WHOLE[form])
    assert taken_apart(graph) is graph
