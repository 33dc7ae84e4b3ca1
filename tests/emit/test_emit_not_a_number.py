"""Maxima of rows with a not-a-number: kernels give what the graph means, whatever dropped it on the way."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import over_rows_graphs
import pytest
from emit_builds import Body, graph_of, kernels_of
from emit_builds import structure as of_products
from emit_checks import check_machine_code
from row_builds import structure as of_rows
from test_emit_combined import split
from test_emit_k_blocks import structure as of_values

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.interpret import execute
from wsopt.program.types import Structure
from wsopt.tensors.statements import Reduction


def extremes(g: GraphBuilder, columns: int = 512) -> tuple[Symbol, ...]:
    x = g.input("x", (12, columns), "f32")
    return g.reduce_max(x * 2.0, axis=-1, name="most"), g.reduce_min(x, axis=-1, name="least")


def centred(g: GraphBuilder) -> Symbol:
    """Its own elements less the largest: none of them is a number."""
    x = g.input("x", (12, 512), "f32")
    return g.sub(x, g.reduce_max(x, axis=-1, keepdims=True), name="y")


def of_product(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (96, 128), "bf16"), g.input("w", (64, 128), "bf16", constant=True)
    return g.reduce_max(g.matmul(x, w, transpose_b=True), axis=-1, name="most")


def scores(g: GraphBuilder, queries: int = 12) -> Symbol:
    x, k = g.input("x", (queries, 64), "bf16"), g.input("k", (456, 64), "bf16")
    return g.matmul(x, k, transpose_b=True) * 0.125


def of_scores(g: GraphBuilder) -> tuple[Symbol, ...]:
    """The largest score of each row, beside the softmax that is made of all."""
    s, v = scores(g), g.input("v", (456, 64), "bf16")
    made = g.matmul(g.cast(g.softmax(s), dtype="bf16"), v)
    return g.cast(made, dtype="bf16", name="y"), g.reduce_max(s, axis=-1, name="most")


CASES: dict[str, tuple[Body, Structure]] = {
    "rows": (extremes, of_rows(2, 512)),
    "long rows": (functools.partial(extremes, columns=70000), of_rows(2, 2048, 2)),
    "less the largest": (centred, of_rows(2, 512)),
    "over rows": (over_rows_graphs.extremes, of_rows(2, 512)),
    "a product's rows": (of_product, of_products(64, 64)),
    "scores": (of_scores, of_values(64, 64)),
    "scores in parts": (of_scores, split(4)),
}
emitted = kernels_of(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_not_a_number_is_the_largest_of_its_row(name: str) -> None:
    made = emitted(name)
    inputs = random_inputs(made.graph, 0)
    for row, place in ((1, 3), (5, 0), (11, 50)):
        inputs["x"][row, place] = np.nan
    wanted = evaluate(made.graph, inputs)
    for seed in range(2):
        found = execute(made.source, inputs, seed=seed, constants=made.graph.constants).outputs
        for output, values in wanted.items():
            missing = np.isnan(values.astype(np.float32))
            assert missing.any(), "the case shows nothing"
            np.testing.assert_array_equal(np.isnan(found[output].astype(np.float32)), missing, err_msg=output)


@pytest.mark.compiler
@pytest.mark.parametrize("name", CASES)
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    check_machine_code(emitted(name))


def maxima(body: Callable[[GraphBuilder], Symbol | tuple[Symbol, ...]]) -> list[bool]:
    """Whether each maximum of a region keeps what is not a number."""
    region = find_region(graph_of(body))
    items = (*region.statements, *region.body, *region.running, *region.beside)
    return [one.keeps_nan for one in items if isinstance(one, Reduction) and one.kind == "max"]


def written_out(g: GraphBuilder) -> Symbol:
    x = g.input("x", (12, 512), "f32")
    x = g.where(g.less(g.iota((12, 512), axis=1), 400), x, float("-inf"))
    e = g.exp(x - g.reduce_max(x, axis=-1, keepdims=True))
    return g.div(e, g.reduce_sum(e, axis=-1, keepdims=True), name="y")


def masked(g: GraphBuilder) -> Symbol:
    s, v = scores(g), g.input("v", (456, 64), "bf16")
    below = g.greater_equal(g.iota((12, 456), axis=0) + 400, g.iota((12, 456), axis=1))
    p = g.cast(g.softmax(g.where(below, s, float("-inf"))), dtype="bf16")
    return g.cast(g.matmul(p, v), dtype="bf16", name="y")


NOT_MISSED: dict[str, Body] = {
    "softmax": lambda g: g.softmax(g.input("x", (12, 512), "f32"), name="y"),
    "long softmax": lambda g: g.softmax(g.input("x", (12, 70000), "f32"), name="y"),
    "logsumexp": lambda g: g.logsumexp(g.input("x", (12, 512), "f32"), axis=-1, name="y"),
    "written out": written_out,
    "attention": masked,
    "places": lambda g: g.reduce_argmax(g.input("x", (12, 512), "f32"), axis=-1, name="y"),
}


@pytest.mark.parametrize("name", NOT_MISSED)
def test_a_maximum_whose_row_is_none_anyway_drops_it(name: str) -> None:
    """As long as a sum over the same row is not a number: the cheaper instructions do. Places are numbers."""
    keep = maxima(NOT_MISSED[name])
    assert keep
    assert keep.count(True) == (name == "places")  # the largest, of which places are sought


@pytest.mark.parametrize("name", ["rows", "less the largest", "scores"])
def test_a_maximum_that_is_seen_keeps_it(name: str) -> None:
    assert all(maxima(CASES[name][0]))


def test_a_maximum_beside_its_softmax_is_seen() -> None:
    def seen(g: GraphBuilder) -> tuple[Symbol, ...]:
        x = g.input("x", (12, 512), "f32")
        return g.softmax(x, name="y"), g.reduce_max(x, axis=-1, name="most")

    assert any(maxima(seen))
