"""Reductions over several axes beside each other are one over a reshape, and mean what they meant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from wsopt.frontend.kinds import reduces_rows
from wsopt.frontend.region import find_region
from wsopt.frontend.several_axes import with_joined_reductions
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.tensors.views import Role

Build = Callable[[GraphBuilder, Symbol], Symbol]


def graph_of(build: Build, shape: tuple[int, ...] = (4, 6, 8, 16)) -> Graph:
    g = GraphBuilder("several")
    g.output(build(g, g.input("x", shape, "f32")))
    return g.build()


def over(g: GraphBuilder, x: Symbol, op: str, *axes: int, keepdims: bool = True) -> Symbol:
    for axis in axes:
        x = getattr(g, op)(x, axis=axis, keepdims=keepdims)
    return x


def norm(g: GraphBuilder, x: Symbol, *axes: int) -> Symbol:
    apart = x - over(g, x, "reduce_mean", *axes)
    scale = g.rsqrt(over(g, apart * apart, "reduce_mean", *axes) + 1e-5)
    return apart * scale


ONE: dict[str, tuple[Build, int]] = {
    "a norm": (lambda g, x: norm(g, x, 3, 2), 128),
    "a norm with weights": (lambda g, x: norm(g, x, 2, 3) * g.input("w", (8, 16), "f32"), 128),
    "a norm over three axes": (lambda g, x: norm(g, x, 3, 2, 1), 768),
    "without their axes": (lambda g, x: over(g, x, "reduce_sum", 3, 2, keepdims=False), 128),
    "the largest, the outer axis first": (lambda g, x: over(g, x, "reduce_max", 2, 2, keepdims=False), 128),
    "over what is computed": (lambda g, x: x * over(g, g.exp(x), "logsumexp", 3, 2), 128),
}


@pytest.mark.parametrize("form", ONE)
def test_neighbours_are_reduced_as_one(form: str) -> None:
    build, extent = ONE[form]
    graph = graph_of(build)
    joined = with_joined_reductions(graph)
    assert {
        joined.type_of(n.tensors[0]).shape[n.attr("axis", int)] for n in joined.nodes if reduces_rows(n)
    } == {extent}
    assert [joined.type_of(name) for name in joined.outputs] == [
        graph.type_of(name) for name in graph.outputs
    ]
    inputs = random_inputs(graph, 0)
    for name, wanted in evaluate(graph, inputs).items():
        np.testing.assert_allclose(evaluate(joined, inputs)[name], wanted, rtol=1e-4, atol=1e-5)
    assert find_region(graph).extent(Role.COLUMN) == extent


def test_axes_of_one_element_between_them_are_no_axes() -> None:
    graph = graph_of(lambda g, x: x - over(g, x, "reduce_mean", 3, 1), (4, 8, 1, 16))
    assert find_region(graph).extent(Role.COLUMN) == 128


def read_between(g: GraphBuilder, x: Symbol) -> Symbol:
    inner = over(g, x, "reduce_max", 3)
    return x - over(g, inner, "reduce_max", 2) * inner


def beside_a_product(g: GraphBuilder, x: Symbol) -> Symbol:
    return over(g, g.matmul(x, g.input("w", (16, 16), "f32"), precision="tf32"), "reduce_sum", 3, 2)


APART: dict[str, Build] = {
    "an axis between them": lambda g, x: x - over(g, x, "reduce_sum", 3, 1),
    "two operations": lambda g, x: x - over(g, over(g, x, "reduce_sum", 3), "reduce_max", 2),
    "read between them": read_between,
    "one axis": lambda g, x: x - over(g, x, "reduce_sum", 3),
    "a product": beside_a_product,
}


@pytest.mark.parametrize("form", APART)
def test_others_stay(form: str) -> None:
    graph = graph_of(APART[form])
    assert with_joined_reductions(graph) is graph
