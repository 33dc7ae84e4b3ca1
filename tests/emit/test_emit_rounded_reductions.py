"""Values that are rounded and then reduced: in rows, beside a product, after it, and in a loop. Sums are in f32."""

from __future__ import annotations

import re

import pytest
from emit_builds import Body, build, graph_of, structure

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Sharing, Structure
from wsopt.simulation import simulate


def rows(g: GraphBuilder) -> Symbol:
    """Rows whose mean is of elements that were rounded."""
    h = g.cast(g.maximum(g.input("x", (72, 512), "bf16"), g.input("b", (512,), "f32")), dtype="bf16")
    return g.cast(g.sub(h, g.reduce_mean(h, axis=-1, keepdims=True)), dtype="f32", name="y")


def scores(g: GraphBuilder) -> tuple[Symbol, Symbol]:
    """A product's operands, in bf16."""
    return g.input("x", (136, 192), "bf16"), g.input("w", (128, 192), "bf16")


def product(g: GraphBuilder) -> Symbol:
    """A product's rows, rounded before their softmax."""
    h = g.cast(g.matmul(*scores(g), transpose_b=True) * 0.07, dtype="bf16")
    total = g.reduce_sum(g.cast(g.exp(h), dtype="bf16"), axis=-1, keepdims=True)
    return g.cast(g.div(h, total), dtype="f32", name="y")


def beside(g: GraphBuilder) -> Symbol:
    """Rows of an operand whose squares are rounded before they are summed."""
    x, w = scores(g)
    power = g.reduce_mean(g.cast(x * x, dtype="bf16"), axis=-1, keepdims=True)
    h = g.cast(x * g.rsqrt(power + 1e-6), dtype="bf16")
    return g.cast(g.matmul(h, w, transpose_b=True), dtype="f32", name="y")


def loop(g: GraphBuilder) -> Symbol:
    """Attention whose weights are rounded before their sum is taken."""
    q, k, v = (g.input(name, (136, 64), "f16") for name in "qkv")
    s = g.matmul(q, k, transpose_b=True) * 0.125
    e = g.cast(g.exp(s - g.reduce_max(s, axis=-1, keepdims=True)), dtype="f16")
    o = g.matmul(e, v) / g.reduce_sum(e, axis=-1, keepdims=True)
    return g.cast(o, dtype="f32", name="y")


STREAMED = Structure(2, 512, 1, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1)
CUTS = {
    "rows": (rows, STREAMED),
    "product": (product, structure(128)),
    "beside": (beside, structure(64)),
    "loop": (loop, structure(64, 64)),
}


@pytest.mark.parametrize("name", CUTS)
def test_rounded_values_are_summed_in_f32(name: str) -> None:
    body: Body
    body, cut = CUTS[name]
    graph = graph_of(body)
    made = build(graph, cut)
    assert re.search(r"sums?\(\w+\.to\(gl\.float32\)", made.source)
    assert simulate(graph, made.verified, made.source, 2).seeds == 2
