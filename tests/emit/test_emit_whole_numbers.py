"""Outputs of i32: chosen labels, conditions and whole numbers of eight bits, stored as tiles."""

from __future__ import annotations

import pytest
from emit_builds import Body, build, graph_of, structure

from wsopt.codegen import compile_kernel
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Structure
from wsopt.simulation import simulate

ROWS = structure(256, 1, rows=4)
PRODUCT = structure(64)


def labels(g: GraphBuilder) -> Symbol:
    """Labels, with another one where they are not to count."""
    x = g.input("x", (37, 512), "i32")
    return g.where(g.equal(x, 0), -100, g.add(g.mul(x, 3), 1), name="y")


def held(g: GraphBuilder) -> Symbol:
    """1 where a number is positive."""
    return g.cast(g.greater(g.input("x", (37, 512), "bf16"), 0.0), "i32", name="y")


def eight_bits(g: GraphBuilder) -> Symbol:
    """Whole numbers of eight bits, and numbers rounded to eight bits."""
    x, z = g.input("x", (37, 512), "i8"), g.input("z", (37, 512), "bf16")
    return g.add(g.cast(x, "i32"), g.cast(g.cast(g.mul(z, 50.0), "i8"), "i32"), name="y")


def behind_a_product(g: GraphBuilder) -> Symbol:
    """1 where a product is positive."""
    x, w = g.input("x", (136, 128), "bf16"), g.input("w", (128, 128), "bf16")
    return g.cast(g.greater(g.matmul(x, w, transpose_b=True), 0.0), "i32", name="y")


CASES = {
    "labels": (labels, ROWS),
    "held": (held, ROWS),
    "eight bits": (eight_bits, ROWS),
    "product": (behind_a_product, PRODUCT),
}


@pytest.mark.parametrize("name", CASES)
def test_whole_numbers_are_stored(name: str) -> None:
    body, cut = CASES[name]
    graph = graph_of(body)
    made = build(graph, cut)
    assert "dtype=torch.int32" in made.source
    assert simulate(graph, made.verified, made.source, 2).max_relative_error == 0


@pytest.mark.compiler
@pytest.mark.parametrize(("body", "cut"), [CASES["eight bits"], CASES["product"]])
def test_it_compiles(body: Body, cut: Structure) -> None:
    made = build(graph_of(body), cut)
    assert compile_kernel(made.source).spill_loads == 0
