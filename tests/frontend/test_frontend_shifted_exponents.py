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


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_it_computes_what_the_graph_means(dtype: str) -> None:
    made = emitted(softmax(dtype), 1, 4096, 2)
    inputs = random_inputs(made.graph, 0)
    inputs["x"][1] = -np.inf
    inputs["x"][2, :-1] = -np.inf
    inputs["x"][3] *= 40
    assert case(made.graph, inputs=inputs).fault(made.source, SEEDS) is None
