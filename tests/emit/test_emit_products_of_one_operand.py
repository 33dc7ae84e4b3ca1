"""Several products of one left operand that nothing combines: a loop reads it once, and each result is stored."""

from __future__ import annotations

import pytest
from emit_builds import Body, build, check_computes, graph_of, structure

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol

NAMES = ("q", "k", "v")


def of_one_tensor(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Queries, keys and values as slices of one product."""
    x, w = g.input("x", (200, 256), "bf16"), g.input("w", (256, 384), "bf16", constant=True)
    h = g.cast(g.matmul(x, w), "bf16")
    return tuple(
        g.slice(h, axis=1, start=128 * n, stop=128 * n + 128, name=name) for n, name in enumerate(NAMES)
    )


def of_own_weights(g: GraphBuilder) -> tuple[Symbol, ...]:
    """The same of weights of their own, in batches, one with a bias."""
    x, b = g.input("x", (3, 100, 256), "bf16"), g.input("b", (128,), "bf16", constant=True)
    q, k, v = (g.matmul(x, g.input(f"w{name}", (256, 128), "bf16", constant=True)) for name in NAMES)
    return tuple(g.cast(one, "bf16", name=name) for name, one in zip(NAMES, (q, k + b, v), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("body", [of_one_tensor, of_own_weights])
def test_it_computes_what_the_graph_means(body: Body) -> None:
    check_computes(build(graph_of(body), structure(consumers=2)))


@pytest.mark.parametrize("body", [of_one_tensor, of_own_weights])
def test_what_is_multiplied_streams_once(body: Body) -> None:
    region = find_region(graph_of(body))
    assert [view.tensor for view in region.operands].count("x") == 1
    assert len(region.contractions) == len(region.outputs) == len(NAMES)
