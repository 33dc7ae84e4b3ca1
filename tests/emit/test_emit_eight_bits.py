"""Kernels that store numbers of eight bits: rounded to nearest even, held to the type, zero for not-a-numbers."""

from __future__ import annotations

import numpy as np
import pytest
from emit_builds import build, case, graph_of, structure

from wsopt.codegen import compile_kernel
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.ops import OPS
from wsopt.graph.types import DType
from wsopt.interpret import execute

ROWS = structure(columns=512, depth=1, consumers=2, rows=2)


def rounded(g: GraphBuilder) -> Symbol:
    return g.cast(g.input("x", (9, 512), "f32"), "i8", name="y")


def normed(g: GraphBuilder) -> tuple[Symbol, ...]:
    """A norm's rows to i8, in groups of rows that it reduces whole, with their scales."""
    x, weight = g.input("x", (9, 384), "bf16"), g.input("w", (384,), "bf16", constant=True)
    y = g.rms_norm(x, weight)
    return g.quantize(y, "i8", 128, name="q"), g.quantize_scale(y, "i8", 128, name="s")


def product(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (70, 64), "bf16"), g.input("w", (64, 64), "bf16", constant=True)
    return g.cast(g.mul(g.matmul(x, w, transpose_b=True), 30.0), "i8", name="y")


def test_every_number_is_rounded_as_the_format_says() -> None:
    x = np.linspace(-140, 140, 9 * 512, dtype=np.float32).reshape(9, 512)
    ties, ends = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5], [126.5, 127.5, -127.5, -128.5, 1e30, -1e30]
    x[0, :16] = [*ties, *ends, np.inf, -np.inf, np.nan, -0.0]
    expected = OPS["cast"].evaluate((x,), {"dtype": DType.I8})
    assert expected[0, :4].tolist() == [0, 2, 2, 0]
    found = execute(build(graph_of(rounded), ROWS).source, {"x": x}, seed=0, processors=2).outputs["y"]
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("body", "cut"), [(normed, ROWS), (product, structure(columns=64))], ids=["groups", "product"]
)
def test_computes(body: object, cut: object) -> None:
    graph = graph_of(body)
    made = build(graph, cut)
    assert case(graph).fault(made.source, 1) is None
    cut_off = made.source.replace("(held + 12582912.0).to(gl.int32, bitcast=True)", "held.to(gl.int32)")
    assert cut_off != made.source
    if body is product:  # where a scale is off by a rounding, ties of a quotient may go either way
        assert case(graph).fault(cut_off, 1) is not None


@pytest.mark.compiler
def test_compiles() -> None:
    assert compile_kernel(build(graph_of(normed), ROWS).source).stack_bytes == 0
