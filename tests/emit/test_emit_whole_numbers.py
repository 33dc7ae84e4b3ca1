"""Outputs of i32: chosen labels, conditions and whole numbers of eight bits, stored as tiles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from emit_builds import Body, build, graph_of, structure

from wsopt.codegen import compile_kernel
from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Structure
from wsopt.simulation import simulate

Numbers = Callable[[GraphBuilder], Symbol]

ROWS = structure(256, 1, rows=4)
ROWS_HELD = structure(512, 1, rows=4)
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


def positions(g: GraphBuilder) -> Symbol:
    """The place of each token among those that count."""
    held = g.cast(g.input("held", (37, 512), "bool"), "i32")
    return g.sub(g.cumsum(held, axis=1), 1, name="y")


def lengths(g: GraphBuilder) -> tuple[Symbol, Symbol]:
    """How many tokens of a sequence are no padding, and the sum of numbers of eight bits."""
    x, z = g.input("x", (37, 512), "i32"), g.input("z", (37, 512), "i8")
    count = g.reduce_sum(g.cast(g.not_equal(x, 0), "i32"), axis=1)
    return count, g.reduce_sum(g.mul(g.cast(z, "i32"), 3), axis=1)


def largest(g: GraphBuilder) -> Symbol:
    """The largest of numbers of eight bits, less one."""
    return g.sub(g.reduce_max(g.cast(g.input("x", (37, 512), "i8"), "i32"), axis=1), 1, name="y")


CASES = {
    "positions": (positions, ROWS_HELD),
    "lengths": (lengths, ROWS_HELD),
    "largest": (largest, ROWS_HELD),
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


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        (lambda g: g.input("x", (64, 512), "i32"), "512 whole numbers whose size is not known"),
        (
            lambda g: g.mul(g.cast(g.input("x", (64, 512), "i8"), "i32"), 300),
            "whole numbers that may be 38400 large",
        ),
    ],
)
def test_sums_that_f32_may_not_have_are_refused(numbers: Numbers, told: str) -> None:
    graph = graph_of(lambda g: g.reduce_sum(numbers(g), axis=1, name="y"))
    with pytest.raises(
        LoweringError, match=f"node y: reduce_sum of .*{told} is not lowered: a kernel adds them up in f32"
    ):
        find_region(graph)


def test_what_is_told_of_sums_of_whole_numbers_works() -> None:
    """A condition is summed up, and so is what is cast to f32."""
    for numbers in (
        lambda g: g.cast(g.greater(g.input("x", (64, 512), "i32"), 0), "i32"),
        lambda g: g.cast(g.input("x", (64, 512), "i32"), "f32"),
    ):
        assert find_region(graph_of(lambda g, numbers=numbers: g.reduce_sum(numbers(g), axis=1, name="y")))


@pytest.mark.compiler
@pytest.mark.parametrize(("body", "cut"), [CASES["eight bits"], CASES["product"]])
def test_it_compiles(body: Body, cut: Structure) -> None:
    made = build(graph_of(body), cut)
    assert compile_kernel(made.source).spill_loads == 0
