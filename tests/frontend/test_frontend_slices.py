"""Slices of what is computed, taken of inputs: what they become means the same, and the others stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from emit_builds import graph_of
from tile_graphs import Body

from wsopt.errors import LoweringError
from wsopt.frontend.kinds import input_path
from wsopt.frontend.region import find_region
from wsopt.frontend.slices import with_sliced_inputs
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph

Of = Callable[[GraphBuilder, Symbol, Symbol], Symbol]


def sliced(of: Of) -> Body:
    """What is made of `x` [4, 6, 8] and `w` [8, 12], negated so that it is no output as it is."""
    return lambda g: g.neg(of(g, g.input("x", (4, 6, 8), "f32"), g.input("w", (8, 12), "f32")), name="y")


def product(g: GraphBuilder, x: Symbol, w: Symbol) -> Symbol:
    return g.matmul(x, w, precision="tf32")


def gated(g: GraphBuilder, x: Symbol, w: Symbol) -> Symbol:
    h = g.relu(product(g, x, w))
    return g.mul(g.slice(h, axis=2, stop=6), g.silu(g.slice(h, axis=2, start=6)))


def of_scores(g: GraphBuilder, x: Symbol, w: Symbol) -> Symbol:
    return g.slice(g.matmul(x, x, transpose_b=True, precision="tf32"), axis=2, start=1, stop=5)


def masked(g: GraphBuilder, x: Symbol, _: Symbol) -> Symbol:
    i, j = g.iota(shape=(6, 1), axis=0), g.iota(shape=(1, 8), axis=1)
    return g.slice(g.slice(g.where(g.less_equal(i, j), x, 0.0), axis=1, start=2), axis=2, start=3, stop=6)


def of_experts(g: GraphBuilder, x: Symbol, w: Symbol) -> Symbol:
    rows, experts = g.reshape(x, shape=(24, 8)), g.reshape(w, shape=(1, 8, 12))
    h = g.grouped_matmul(g.cast(rows, "bf16"), g.cast(experts, "bf16"), g.input("offsets", (1,), "i32"))
    return g.slice(h, axis=1, start=4, stop=8)


def halves(g: GraphBuilder, x: Symbol, w: Symbol) -> Symbol:
    normed = g.layer_norm(g.exp(x), g.input("r", (8,), "f32"), g.exp(g.input("b", (8,), "f32")))
    return g.mul(g.slice(normed, axis=2, stop=4), g.slice(normed, axis=2, start=4))


def beside_whole_rows(g: GraphBuilder, x: Symbol, w: Symbol) -> Symbol:
    normed = g.rms_norm(g.exp(x), g.input("r", (8,), "f32"))
    return g.mul(normed, g.slice(normed, axis=2, start=3, stop=4))


MOVED: dict[str, Of] = {
    "columns of a product": gated,
    "rows of a product": lambda g, x, w: g.slice(product(g, x, w), axis=1, start=1, stop=3),
    "batches of a product": lambda g, x, w: g.slice(product(g, x, w), axis=0, start=3),
    "a turned operand": of_scores,
    "elements and indices": masked,
    "a part of a part": lambda g, x, w: g.slice(
        g.slice(g.exp(x), axis=2, start=2, stop=7), axis=2, start=1, stop=3
    ),
    "beside a part along another axis": lambda g, x, w: g.slice(
        g.slice(g.exp(x), axis=2, start=2, stop=7), axis=1, start=1, stop=3
    ),
    "of a product of a part": lambda g, x, w: g.slice(
        product(g, g.slice(g.exp(x), axis=1, start=2), w), axis=2, start=6
    ),
    "beside a part that stays whole": lambda g, x, w: g.slice(
        g.rms_norm(x, g.slice(g.exp(g.input("r", (12,), "f32")), axis=0, start=4)), axis=1, stop=2
    ),
    "rows that are reduced": lambda g, x, w: g.slice(g.reduce_sum(x, axis=1), axis=1, start=2),
    "rows that are reduced and stay": lambda g, x, w: g.slice(
        g.reduce_max(x, axis=1, keepdims=True), axis=2, start=2
    ),
    "normed rows": lambda g, x, w: g.slice(g.rms_norm(x, g.input("r", (8,), "f32")), axis=1, stop=2),
    "a softmax along another axis": lambda g, x, w: g.slice(g.softmax(x, axis=1), axis=2, stop=2),
    "turned": lambda g, x, w: g.slice(g.transpose(g.exp(x), perm=(1, 2, 0)), axis=1, start=3),
    "a dimension of several": lambda g, x, w: g.slice(
        g.reshape(product(g, x, w), shape=(4, 6, 3, 4)), axis=2, start=1, stop=2
    ),
    "every second": lambda g, x, w: g.slice(g.exp(x), axis=2, start=1, step=2),
    "every third of every second": lambda g, x, w: g.slice(
        g.slice(product(g, x, w), axis=2, step=2), axis=2, start=1, stop=5, step=3
    ),
    "each second index": lambda g, x, w: g.slice(
        g.mul(x, g.iota(shape=(6, 8), axis=1)), axis=2, start=1, step=2
    ),
    "every second place of several dimensions": lambda g, x, w: g.slice(
        g.reshape(g.exp(x), shape=(2, 12, 8)), axis=2, step=2
    ),
    "the last running sum": lambda g, x, w: g.slice(g.exp(g.cumsum(x, axis=1)), axis=1, start=5),
    "one share of a softmax": lambda g, x, w: g.slice(g.softmax(x), axis=2, start=3, stop=4),
    "normed elements": lambda g, x, w: g.slice(g.rms_norm(x, g.input("r", (8,), "f32")), axis=2, stop=2),
    "both halves of normed elements": halves,
    "normed elements beside whole rows": beside_whole_rows,
    "one normed element": lambda g, x, w: g.slice(
        g.rms_norm(x, g.input("r", (8,), "f32")), axis=2, start=2, stop=3
    ),
    "of one of joined tensors": lambda g, x, w: g.slice(
        g.concat(g.exp(x), x * 2.0, axis=2), axis=2, start=9, stop=12
    ),
    "of joined tensors along another axis": lambda g, x, w: g.slice(
        g.concat(g.exp(x), x * 2.0, axis=2), axis=1, start=3
    ),
    "dimensions seen as one": lambda g, x, w: g.slice(
        g.reshape(g.exp(x), shape=(24, 8)), axis=0, start=6, stop=18
    ),
}


def graph_for(of: Of) -> Graph:
    return graph_of(sliced(of))


@pytest.mark.parametrize("form", [*MOVED])
def test_a_slice_of_inputs_means_the_same(form: str) -> None:
    graph = graph_for(MOVED[form])
    moved = with_sliced_inputs(graph)
    assert moved is not graph
    assert all(input_path(moved, node.name) for node in moved.nodes if node.op == "slice")
    assert with_sliced_inputs(moved) is moved
    inputs = random_inputs(graph, 0)
    for name, wanted in evaluate(graph, inputs).items():
        read = {one.name: inputs[one.name] for one in moved.inputs}
        np.testing.assert_allclose(evaluate(moved, read)[name], wanted, rtol=1e-6, atol=1e-6)


def test_experts_weights_are_sliced() -> None:
    graph = graph_for(of_experts)
    moved = with_sliced_inputs(graph)
    (found,) = (node for node in moved.nodes if node.op == "grouped_matmul")
    assert found.type.shape == (24, 4)


def test_what_two_parts_share_is_computed_once() -> None:
    def twice(g: GraphBuilder, x: Symbol, w: Symbol) -> Symbol:
        h = product(g, x, w)
        return g.mul(g.relu(g.slice(h, axis=2, stop=6)), g.slice(h, axis=2, stop=6))

    assert sum(node.op == "matmul" for node in with_sliced_inputs(graph_for(twice)).nodes) == 1


def test_a_part_that_is_an_output_is_computed_once() -> None:
    g = GraphBuilder("both")
    h = g.matmul(g.input("x", (24, 8), "bf16"), g.input("w", (8, 12), "bf16"))
    first = g.slice(h, axis=1, stop=4, name="first")
    g.output(first, g.add(g.relu(first), g.slice(h, axis=1, stop=4), name="y"))
    graph = g.build()
    moved = with_sliced_inputs(graph)
    (product,) = (node for node in moved.nodes if node.op == "matmul")
    assert product.name == "first"
    inputs = random_inputs(graph, 0)
    for name, wanted in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(evaluate(moved, inputs)[name], wanted)


def test_an_output_that_is_a_whole_joined_input_is_a_view_of_it() -> None:
    g = GraphBuilder("joined")
    joined = g.concat(g.input("x", (3, 8), "f32"), g.input("row", (1, 8), "f32"), axis=0)
    row = g.slice(joined, axis=0, start=3, name="found")
    g.output(g.neg(joined, name="y"), row, g.exp(row, name="z"))
    graph = g.build()
    moved = with_sliced_inputs(graph)
    assert not any(node.op == "slice" for node in moved.nodes)
    inputs = random_inputs(graph, 0)
    for name, wanted in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(evaluate(moved, inputs)[name], wanted)


STAY: dict[str, Of] = {
    "of an input": lambda g, x, w: g.slice(g.transpose(x, perm=(1, 0, 2)), axis=0, stop=2),
    "along running sums": lambda g, x, w: g.slice(g.cumsum(x, axis=2), axis=2, stop=2),
    "one of whole numbers": lambda g, x, w: g.slice(
        g.cast(g.cumsum(g.cast(x > 0.0, "i32"), axis=2), "f32"), axis=2, start=7
    ),
    "of steps that end behind the axis": lambda g, x, w: g.slice(g.exp(x), axis=1, step=4),
    "across dimensions": lambda g, x, w: g.slice(g.reshape(g.exp(x), shape=(24, 8)), axis=0, start=5),
    "of joined tensors": lambda g, x, w: g.slice(g.concat(g.exp(x), x, axis=2), axis=2, start=4, stop=12),
}


@pytest.mark.parametrize("form", [*STAY])
def test_what_cannot_be_computed_by_itself_stays(form: str) -> None:
    graph = graph_for(STAY[form])
    assert with_sliced_inputs(graph) is graph


def test_differences_to_the_last_running_sum_are_one_kernel() -> None:
    g = GraphBuilder("decay")
    sums = g.cumsum(g.input("x", (64, 32, 64), "f32"), axis=2)
    last = g.slice(sums, axis=2, start=63)
    g.output(g.exp(last - sums), g.exp(last))
    assert not find_region(g.build()).contractions


def test_a_norm_of_whose_rows_parts_are_read_is_written_out_once() -> None:
    moved = with_sliced_inputs(graph_for(beside_whole_rows))
    assert [node.op for node in moved.nodes].count("rsqrt") == 1
    assert not any(node.op == "rms_norm" for node in moved.nodes)


def test_an_operand_within_a_dimension_that_nothing_lies_next_to_is_refused() -> None:
    g = GraphBuilder("apart")
    x = g.input("x", (64, 64), "bf16")
    w = g.input("w", (2, 2, 64, 64), "bf16", strides=(3 * 8192, 4096, 64, 1))
    one = g.slice(g.slice(w, axis=0, start=1, stop=2), axis=1, start=1, stop=2)
    g.output(g.cast(g.matmul(x, g.reshape(one, shape=(64, 64)), transpose_b=True), "bf16", name="y"))
    with pytest.raises(LoweringError) as raised:
        find_region(g.build())
    assert "of tensor w one element of dimension 0 is read" in str(raised.value)
    assert "make the slice an input, and hand over a dense copy of it" in str(raised.value)
