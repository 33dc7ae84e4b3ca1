"""Reductions one after the other are written with the longest axis first: the same results, and a faster cut."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from wsopt.graph.builder import GraphBuilder
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.cut import cutter_of
from wsopt.partition.longest_first import with_longest_first
from wsopt.partition.prices import Prices

SHAPE = (2, 12, 5, 7)


def reduced(op: str, axes: tuple[int, ...], kept: tuple[bool, ...]) -> Graph:
    """A tensor reduced along these axes of its own, one after the other."""
    g = GraphBuilder("reduced")
    made, left = g.mul(g.input("x", SHAPE, "f32"), 0.5), list(range(len(SHAPE)))
    for number, (axis, keepdims) in enumerate(zip(axes, kept, strict=True)):
        last = number == len(axes) - 1
        made = getattr(g, op)(
            made, axis=left.index(axis), keepdims=keepdims, name="y" if last else f"r{number}"
        )
        if not keepdims:
            left.remove(axis)
    g.output(made)
    return g.build()


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "logsumexp"])
@pytest.mark.parametrize("axes", [(3, 1), (0, 3), (2, 1, 3), (0, 2, 1)])
def test_the_results_are_the_same(op: str, axes: tuple[int, ...]) -> None:
    for kept in itertools.product((False, True), repeat=len(axes)):
        graph = reduced(op, axes, kept)
        written, inputs = with_longest_first(graph), random_inputs(graph, 0)
        assert written is not graph
        one, other = (evaluate(which, inputs)["y"] for which in (graph, written))
        assert one.shape == other.shape
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def test_the_longest_axis_comes_first() -> None:
    written = with_longest_first(reduced("reduce_sum", (2, 1, 3), (False, False, False)))
    assert [node.type.shape for node in written.nodes if node.op == "reduce_sum"] == [
        (2, 5, 7), (2, 5), (2,),
    ]  # fmt: skip


def test_what_is_in_order_stays_as_it_is() -> None:
    graph = reduced("reduce_sum", (1, 3, 2), (True, False, True))
    assert with_longest_first(graph) is graph


def test_what_others_read_is_not_written_anew() -> None:
    g = GraphBuilder("read")
    first = g.reduce_sum(g.input("x", SHAPE, "f32"), axis=3, name="first")
    g.output(first, g.reduce_sum(first, axis=1, name="y"))
    graph = g.build()
    assert with_longest_first(graph) is graph


def test_groups_of_channels_are_reduced_last(h200: Machine) -> None:
    g = GraphBuilder("groups")
    parts = g.reshape(g.input("x", (16, 4096, 320), "bf16"), (16, 4096, 32, 10))
    means = g.reduce_mean(g.reduce_mean(parts, axis=3, name="short"), axis=1, name="y")
    g.output(means)
    graph, prices = g.build(), Prices(h200)
    before, after = (cutter_of(one, prices).least() for one in (graph, with_longest_first(graph)))
    assert after < before
