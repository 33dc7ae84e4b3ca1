"""Transpositions of pairs of neighbours are two that are joined, and mean what they meant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from wsopt.frontend.region import find_region
from wsopt.frontend.turned_pairs import with_turned_pairs
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.tensors.views import PAIR

Build = Callable[[GraphBuilder], Symbol | tuple[Symbol, ...]]


def graph_of(build: Build) -> Graph:
    g = GraphBuilder("turned")
    made = build(g)
    g.output(*(made if isinstance(made, tuple) else (made,)))
    return g.build()


def together(g: GraphBuilder) -> Symbol:
    return g.transpose(g.input("x", (40, 2, 96), "f16"), perm=(0, 2, 1))


def apart(g: GraphBuilder) -> Symbol:
    return g.transpose(g.input("x", (40, 96, 2), "f16"), perm=(0, 2, 1))


def depth_to_space(g: GraphBuilder, side: int = 2) -> Symbol:
    """Channels that become the pixels of a square."""
    shape = (3, 5, side, side, 24, 32)
    x = g.reshape(g.input("x", (3, 5 * side**2, 24, 32), "f16"), shape=shape)
    y = g.reshape(g.transpose(g.silu(x), perm=(0, 1, 4, 2, 5, 3)), shape=(3, 5, 24 * side, 32 * side))
    return g.cast(y, "f16")


def beside(g: GraphBuilder) -> Symbol:
    """With what has the pairs together already, and what has one number for both."""
    z, k = g.input("z", (40, 96, 2), "bf16"), g.input("k", (96, 1), "f32")
    return g.exp(together(g)) * k + z


WRITTEN: dict[str, Build] = {
    "together": together, "apart": apart, "depth to space": depth_to_space, "beside others": beside
}  # fmt: skip
AS_THEY_ARE: dict[str, Build] = {
    "squares of three": lambda g: depth_to_space(g, 3),
    "other neighbours": lambda g: g.transpose(g.input("x", (96, 2, 40), "f16"), perm=(2, 0, 1)),
    "rows": lambda g: g.transpose(g.input("x", (2, 40, 96), "f16"), perm=(1, 0, 2)),
    "a square of four": lambda g: g.transpose(g.input("x", (64, 2, 2), "f16"), perm=(0, 2, 1)),
    "by their places": lambda g: together(g) * g.iota(shape=(96, 2), axis=0),
    "reduced": lambda g: g.reduce_max(together(g), axis=1),
    "multiplied": lambda g: g.matmul(apart(g), g.input("w", (96, 64), "f16")),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_each_of_the_two_has_its_slice(name: str) -> None:
    graph = graph_of(WRITTEN[name])
    found = with_turned_pairs(graph)
    assert [node.op for node in found.nodes].count("slice") == PAIR
    inputs = random_inputs(graph, seed=3)
    (meant,), (made,) = evaluate(graph, inputs).values(), evaluate(found, inputs).values()
    assert np.array_equal(made, meant)


@pytest.mark.parametrize("name", WRITTEN)
def test_no_tile_has_pairs_for_columns(name: str) -> None:
    region = find_region(graph_of(WRITTEN[name]))
    assert len(region.outputs) == PAIR
    views = [*(output.view for output in region.outputs), *region.operands]
    assert all(view.extents[-1] > PAIR for view in views if view.extents)


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_others_stay_as_they_are(name: str) -> None:
    graph = graph_of(AS_THEY_ARE[name])
    assert with_turned_pairs(graph) is graph
