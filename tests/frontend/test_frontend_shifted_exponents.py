"""Softmaxes of rows that no SM holds: what is stored is no product with the reciprocal of a sum."""

from __future__ import annotations

import numpy as np
import pytest
from emit_builds import SEEDS, case
from row_builds import emitted
from tile_graphs import Body, region_of

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.tensors.statements import Statement
from wsopt.tensors.views import FULL

ROWS, LENGTH = 5, 70000


def softmax(dtype: str, length: int = LENGTH) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (ROWS, length), "bf16")
        return g.cast(g.softmax(g.mul(x, 3.0), axis=1), dtype=dtype, name="y")

    return body


def stored(body: Body) -> list[str]:
    """The primitives of elements that follow the reductions of rows in parts."""
    region = region_of(body)
    parts = region.in_parts or region
    return [one.primitive for one in parts.statements if isinstance(one, Statement) and one.spans == FULL]


@pytest.mark.parametrize(("dtype", "factors"), [("bf16", 0), ("f16", 0), ("f32", 1)])
def test_the_sum_is_in_the_exponent_where_the_result_is_rounded(dtype: str, factors: int) -> None:
    """An exponent's error of 2^-18 is more than f32 has."""
    found = stored(softmax(dtype))
    assert found.count("exp2") == 1
    assert found.count("mul") == factors + 1  # of x and the logarithm of e


def test_what_is_divided_by_another_value_stays_a_product() -> None:
    """A norm that may be negative has no logarithm."""

    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (ROWS, LENGTH), "bf16")
        apart = g.sub(x, g.reduce_max(x, axis=1, keepdims=True))
        return g.cast(g.div(g.exp(apart), g.reduce_sum(x, axis=1, keepdims=True)), dtype="bf16", name="y")

    assert stored(body).count("mul") == 2


def of_a_rows_value(g: GraphBuilder) -> tuple[Symbol, ...]:
    """An exponential of one value a row, from which nothing is subtracted, divided by the sum of the row's."""
    x, v = g.input("x", (ROWS, LENGTH), "bf16"), g.input("v", (ROWS, 1), "f32")
    apart = g.sub(x, g.reduce_max(x, axis=1, keepdims=True))
    inverse = g.div(1.0, g.reduce_sum(g.exp(apart), axis=1, keepdims=True))
    return (
        g.cast(g.mul(g.exp(v), inverse), dtype="bf16", name="y"),
        g.cast(g.mul(x, inverse), dtype="bf16", name="z"),
    )


def test_an_exponential_of_no_difference_stays_a_product() -> None:
    region = region_of(of_a_rows_value)
    parts = region.in_parts or region
    assert "log2" not in {one.primitive for one in parts.statements if isinstance(one, Statement)}


@pytest.mark.slow
def test_an_exponential_of_a_rows_value_is_what_the_graph_means() -> None:
    made = emitted(of_a_rows_value, 1, 4096, 2)
    assert case(made.graph).fault(made.source, SEEDS) is None


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_it_computes_what_the_graph_means(dtype: str) -> None:
    made = emitted(softmax(dtype), 1, 4096, 2)
    inputs = random_inputs(made.graph, 0)
    inputs["x"][1] = -np.inf
    inputs["x"][2, :-1] = -np.inf
    inputs["x"][3] *= 40
    assert case(made.graph, inputs=inputs).fault(made.source, SEEDS) is None
