"""Consumers in ping-pong: a turn is handed over only once no phase of a barrier can be taken for the one before."""

from __future__ import annotations

import pytest
from emit_builds import build, graph_of, structure

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.simulation import simulate

SEEDS = 12


def product(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (512, 520), "bf16"), g.input("w", (768, 520), "bf16", constant=True)
    return g.cast(g.matmul(x, w, transpose_b=True), dtype="bf16", name="y")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("depth", "consumers", "kib"), [(128, 3, 227), (128, 2, 100), (64, 3, 80), (64, 2, 50)]
)
def test_a_short_last_k_block_under_way(depth: int, consumers: int, kib: int) -> None:
    """A consumer's last K-block may still be copied when the next one comes round the ring to the same slot."""
    graph = graph_of(product)
    kernel = build(graph, structure(64, depth, consumers, ping_pong=True, tail=16), kib)
    assert simulate(graph, kernel.verified, kernel.source, SEEDS).seeds == SEEDS
