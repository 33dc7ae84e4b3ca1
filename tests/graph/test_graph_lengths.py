"""Which inputs of a graph are compared with indices, and the values that they are tried with."""

from __future__ import annotations

import numpy as np

from wsopt.graph.builder import GraphBuilder
from wsopt.graph.lengths import KINDS, compared_extents, lengths_to_try
from wsopt.graph.reference import random_inputs
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.runtime import raw_graph


def graph() -> Graph:
    """Scores under a mask by lengths, an offset, and segments that are compared with each other alone."""
    g = GraphBuilder("masked")
    x, n = g.input("x", (2, 24, 40), "f32"), g.input("n", (2,), "i32")
    offset, a, b = g.input("offset", (), "i32"), g.input("a", (24, 1), "i32"), g.input("b", (1, 40), "i32")
    i, j = g.iota(shape=(24, 1), axis=0), g.iota(shape=(1, 40), axis=-1)
    seen = g.logical_and(j < g.reshape(n, shape=(2, 1, 1)), i < offset + 3)
    g.output(g.where(g.logical_and(seen, g.equal(a, b)), x, 0.0))
    return g.build()


def test_lengths_are_what_is_compared_with_an_index() -> None:
    assert compared_extents(graph()) == {"n": 40, "offset": 24}
    assert raw_graph.compared_extents(raw_graph.raw_graph(graph_to_json(graph()))) == {"n": 40, "offset": 24}


def test_every_element_sees_every_kind_of_value() -> None:
    seen = [random_inputs(graph(), seed) for seed in range(KINDS)]
    for values in (np.array([one["offset"] for one in seen]), *np.array([one["n"] for one in seen]).T):
        extent = 24 if values[0] == seen[0]["offset"] else 40
        assert {0, extent, 2**31 - 1, -(2**31)} <= {*values.tolist()}
        assert ((values < 0) & (values >= -extent)).any()
        assert ((values > extent) & (values <= 2 * extent + 1)).any()
        assert ((values > 0) & (values <= extent)).sum() >= 3
    assert all(np.abs(one[name]).max() <= 8 for one in seen for name in "ab")
    assert seen[0]["n"][0] in range(1, 41)


def test_values_repeat_for_a_seed() -> None:
    drawn = [lengths_to_try((3, 1), 100, 5, np.random.default_rng(1)) for _ in range(2)]
    assert (drawn[0] == drawn[1]).all()
    assert (drawn[0].shape, drawn[0].dtype) == ((3, 1), np.int32)
