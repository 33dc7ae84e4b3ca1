"""Epilogue inputs that come as soon as a tile's loop begins: there is no loop of passes before the first of them."""

from __future__ import annotations

import pytest
from emit_builds import build, graph_of, structure

from wsopt.codegen import compile_kernel
from wsopt.codegen.oracle import verdict
from wsopt.emit.plan_of import plan_of
from wsopt.emit.source import expectation
from wsopt.graph.builder import GraphBuilder, Symbol


def residual(g: GraphBuilder) -> Symbol:
    """Sums of f32, which are staged apart from the buffers of a bf16 input."""
    x, w = g.input("x", (256, 2048), "bf16"), g.input("w", (256, 2048), "bf16", constant=True)
    product = g.cast(g.matmul(x, w, transpose_b=True), "bf16")
    return g.add(product, g.input("r", (256, 256), "bf16"), name="y")


@pytest.mark.compiler
@pytest.mark.parametrize("subtiles", [2, 4])
def test_the_compiler_makes_what_is_expected(subtiles: int) -> None:
    kernel = build(graph_of(residual), structure(128, 64, 2, subtiles=subtiles))
    refill = plan_of(kernel.verified).refill
    assert refill.first == 0 < refill.apart
    assert verdict(compile_kernel(kernel.source), expectation(kernel.verified)) == ()
