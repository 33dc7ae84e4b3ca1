"""Parts of loops that compute other values than one softmax, and rows that have no number: against the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from emit_builds import Body, build, case, graph_of
from test_emit_combined import attention, split
from test_emit_combined_mutants import large_keys

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import Array, random_inputs
from wsopt.graph.types import Graph
from wsopt.program.combination import combination_of

QUERIES, KEYS = 8, 456


def scores(g: GraphBuilder, factor: float = 0.125) -> Symbol:
    q = g.input("q", (2, QUERIES, 64), "bf16")
    return g.matmul(q, g.input("k", (2, KEYS, 64), "bf16"), transpose_b=True) * factor


def mixed(g: GraphBuilder, weights: Symbol, name: str, values: str = "v") -> Symbol:
    v = g.input(values, (2, KEYS, 64), "bf16")
    return g.cast(g.matmul(g.cast(weights, dtype="bf16"), v), dtype="bf16", name=name)


def two_factors(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Two softmaxes whose maxima are not alike, each with a product of its own."""
    s = scores(g)
    return mixed(g, g.softmax(s), "o"), mixed(g, g.softmax(g.abs(s) * 2.0), "y", "u")


def one_without(g: GraphBuilder) -> tuple[Symbol, ...]:
    """A product with a factor beside one without."""
    s = scores(g)
    return mixed(g, g.softmax(s), "o"), mixed(g, g.relu(s), "y", "u")


def factors_of_two(g: GraphBuilder) -> Symbol:
    """A product of two softmaxes: the factor of one product is that of both."""
    s = scores(g)
    return mixed(g, g.softmax(s) * g.softmax(g.abs(s)), "o")


def kinds_of_rows(g: GraphBuilder) -> tuple[Symbol, ...]:
    """A maximum, a minimum, a sum with a factor and one without; all but the third are results."""
    s = scores(g)
    rows = (g.reduce_max(s, axis=-1, keepdims=True), g.reduce_min(s, axis=-1, keepdims=True))
    total = g.reduce_sum(g.abs(s), axis=-1, keepdims=True)
    stored = (g.cast(x, dtype="f32", name=f"row_{number}") for number, x in enumerate((*rows, total)))
    return *stored, mixed(g, g.softmax(s), "o")


def negative(g: GraphBuilder) -> Symbol:
    """A negative factor of the scores, whose maxima are of other keys."""
    return mixed(g, g.softmax(scores(g, -0.125)), "o")


def safe(g: GraphBuilder) -> Symbol:
    """A softmax in single steps that is zero where a row sees nothing, as its first rows do."""
    i, j = g.iota(shape=(QUERIES, KEYS), axis=0), g.iota(shape=(QUERIES, KEYS), axis=1)
    s = g.where(j < i * 64 - 60, scores(g), -math.inf)
    peak = g.reduce_max(s, axis=-1, keepdims=True)
    weights = g.exp(s - g.where(g.equal(peak, -math.inf), 0.0, peak))
    total = g.reduce_sum(weights, axis=-1, keepdims=True)
    return mixed(g, weights / g.where(g.equal(total, 0.0), 1.0, total), "o")


def later(g: GraphBuilder) -> Symbol:
    """A causal mask over tiles, of which the first sees fewer K-blocks than there are parts."""
    return attention(g, "causal", keys=200, queries=136)


CASES: dict[str, tuple[Body, int]] = {
    "two factors": (two_factors, 3),
    "one without a factor": (one_without, 3),
    "a factor of two": (factors_of_two, 13),
    "kinds of rows": (kinds_of_rows, 13),
    "a negative factor": (negative, 4),
    "safe maxima": (safe, 4),
    "empty parts of some tiles": (later, 3),
}


def inputs_of(graph: Graph) -> list[dict[str, Array]]:
    """Inputs whose maxima are alike in all parts, largest in the first, and largest in the last."""
    keys = next(item.type.shape for item in graph.inputs if item.name == "k")[-2]
    return [large_keys(graph, where) for where in (slice(0), slice(keys // 4), slice(keys * 3 // 4, keys))]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    body, splits = CASES[name]
    made = build(graph_of(body), split(splits))
    for inputs in inputs_of(made.graph):
        assert case(made.graph, inputs=inputs).fault(made.source, 2) is None


def test_each_sum_has_its_own_factor() -> None:
    def factors(body: Body) -> list[str | None]:
        found = combination_of(build(graph_of(body), split(4)).verified.program)
        assert found is not None
        return [factor for _, factor in (*found.products, *found.sums)]

    assert len(set(factors(factors_of_two))) == 3
    assert factors(kinds_of_rows).count(None) == 1


def test_rows_without_numbers() -> None:
    """A row that sees nothing in some parts, or in all; and scores that are no number, or infinite, in one part."""

    def biased(g: GraphBuilder) -> Symbol:
        return mixed(g, g.softmax(scores(g) + g.input("b", (QUERIES, KEYS), "f32")), "o")

    made = build(graph_of(biased), split(4))
    inputs = random_inputs(made.graph, 0)
    bias = inputs["b"]
    bias[0], bias[1, :200], bias[2, 3] = -math.inf, -math.inf, math.inf
    bias[3, 300], bias[4], bias[5] = math.nan, math.inf, math.nan
    bias[6, 130:], bias[7, :450] = -math.inf, -1e30
    found = case(made.graph, inputs=inputs)
    numbers = ~np.isnan(found.referee.expected["o"].value.astype(np.float32)).any(axis=-1)
    assert numbers.tolist() == [[True, True, False, False, False, False, True, True]] * 2
    assert found.fault(made.source, 2) is None
