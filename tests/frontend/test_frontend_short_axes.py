"""Reductions along a few places of an outer axis are elementwise operations on slices, and mean what they meant."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from wsopt.frontend.kinds import Kind, reduces_rows
from wsopt.frontend.region import find_region
from wsopt.frontend.roles import graph_axes
from wsopt.frontend.short_axes import with_short_axes
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph

Build = Callable[[GraphBuilder, Symbol], Symbol | tuple[Symbol, ...]]


def graph_of(build: Build, shape: tuple[int, ...] = (40, 4, 96), dtype: str = "bf16") -> Graph:
    g = GraphBuilder("short")
    made = build(g, g.input("x", shape, dtype))
    g.output(*(made if isinstance(made, tuple) else (made,)))
    return g.build()


def of_experts(g: GraphBuilder, x: Symbol) -> Symbol:
    """What each token's experts gave, where they left it, weighted."""
    rows = g.input("rows", (160, 96), "bf16")
    places, weights = g.input("places", (40, 4), "i32"), g.input("weights", (40, 4), "f32")
    return g.reduce_sum((g.gather(rows, places) + x) * g.reshape(weights, (40, 4, 1)), axis=1)


def normed(g: GraphBuilder, x: Symbol) -> tuple[Symbol, ...]:
    total = g.reduce_sum(x * g.input("share", (40, 4, 1), "f32"), axis=1)
    return g.cast(g.rms_norm(total, g.input("w", (96,), "f32")), "bf16"), g.cast(total, "bf16")


def pooled(
    g: GraphBuilder, op: str, axes: tuple[int, int], parts: tuple[int, ...] = (3, 8, 2, 9, 2, 64)
) -> Symbol:
    """What an image's squares have, one axis after the other."""
    value = g.reshape(g.input("image", (math.prod(parts),), "bf16"), parts)
    for axis in axes:
        value = getattr(g, op)(value, axis=axis)
    return value


WRITTEN: dict[str, Build] = {
    "a sum": lambda g, x: g.reduce_sum(x, axis=1),
    "a mean that keeps its axis": lambda g, x: g.reduce_mean(x * x, axis=1, keepdims=True),
    "the largest and the least": lambda g, x: (g.reduce_max(x, axis=1), g.reduce_min(x, axis=1)),
    "what an axis in front has": lambda g, x: g.reduce_sum(g.input("z", (2, 40, 96), "bf16"), axis=0) + 1.0,
    "pairs of neighbours": lambda g, x: g.reduce_max(g.reshape(x, (40, 4, 48, 2)), axis=3),
    "squares of channels": lambda g, x: pooled(g, "reduce_max", (4, 2)),
    "squares of rows": lambda g, x: pooled(g, "reduce_mean", (5, 3), (3, 5, 8, 2, 9, 2)),
    "rows of squares first": lambda g, x: pooled(g, "reduce_sum", (3, 4), (3, 5, 8, 2, 9, 2)),
    "experts": of_experts,
    "in front of a norm": normed,
}


@pytest.mark.parametrize("name", WRITTEN)
def test_they_are_written_out(name: str) -> None:
    graph = graph_of(WRITTEN[name])
    written, inputs = with_short_axes(graph), random_inputs(graph, 0)
    if "places" in inputs:
        inputs["places"] = np.random.default_rng(0).integers(-1, 161, (40, 4)).astype(np.int32)
    assert not any(reduces_rows(node) and node.op != "rms_norm" for node in written.nodes)
    read = {one.name: inputs[one.name] for one in written.inputs}
    before, after = evaluate(graph, inputs), evaluate(written, read)
    for output in graph.outputs:
        one, other = (found[output].astype(np.float32) for found in (before, after))
        np.testing.assert_allclose(other, one, rtol=1e-2 if graph.type_of(output).dtype.bits == 16 else 1e-5)
    expected = Kind.ROWS if name == "in front of a norm" else Kind.ELEMENTWISE
    assert graph_axes(graph).kind is expected
    assert find_region(graph).outputs


OTHERS: dict[str, Build] = {
    "stored beside": lambda g, x: (g.reduce_sum(x * 2.0, axis=1), x * 3.0),
    "read again": lambda g, x: x - g.reduce_mean(x, axis=1, keepdims=True),
    "along the last axis": lambda g, x: g.reduce_sum(g.input("z", (40, 96, 4), "f32"), axis=2),
    "of a softmax": lambda g, x: g.reduce_sum(g.softmax(x, axis=2), axis=1),
    "of short pieces": lambda g, x: g.reduce_sum(g.input("z", (40, 4, 32), "f32"), axis=1),
    "of large squares": lambda g, x: pooled(g, "reduce_max", (5, 3), (3, 5, 8, 4, 9, 4)),
    "of many places": lambda g, x: g.reduce_sum(g.input("z", (40, 16, 96), "f32"), axis=1),
    "of one row each": lambda g, x: g.reduce_sum(g.input("z", (8, 1, 96), "bf16"), axis=0),
    "of places that are known": lambda g, x: g.reduce_sum(
        g.where(g.greater(g.iota(shape=(4, 1), axis=0), 1), x, 0.0), axis=1
    ),
    "of a product": lambda g, x: g.reduce_sum(g.matmul(x, g.input("w", (96, 64), "bf16")), axis=1),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    graph = graph_of(OTHERS[name])
    assert with_short_axes(graph) is graph


@pytest.mark.parametrize("name", ["of places that are known", "of one row each"])
def test_what_slices_have_no_kernel_for_has_one(name: str) -> None:
    """In a slice a condition by the place is one truth, and a result of one row has no rows beside it."""
    assert find_region(graph_of(OTHERS[name])).outputs


def test_places_that_a_reshape_has_parted_are_slices() -> None:
    """Of every two columns of an image each is read where it lies."""

    def pooled(g: GraphBuilder, x: Symbol) -> Symbol:
        return g.reduce_mean(g.reshape(x, (8, 56, 28, 2, 64)), axis=3)

    graph = graph_of(pooled, (8, 56, 56, 64))
    assert graph_axes(graph).kind is Kind.ELEMENTWISE
    assert find_region(graph).outputs
