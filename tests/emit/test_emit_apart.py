"""Products under which an epilogue's inputs are copied one by one, with nothing before the first of these copies."""

from __future__ import annotations

import pytest
from emit_builds import SEEDS, Emitted, build, case, graph_of, structure

from wsopt.codegen import compile_kernel, verdict
from wsopt.emit.plan import plan_of
from wsopt.emit.source import expectation
from wsopt.graph.builder import GraphBuilder, Symbol

S = structure(columns=128, consumers=2, subtiles=4)


def residual(g: GraphBuilder) -> Symbol:
    """y = x w' + r, stored as f32 from staging of its own, so that no store reads what a copy of `r` writes."""
    x, w = g.input("x", (256, 2048), "bf16"), g.input("w", (256, 2048), "bf16", constant=True)
    return g.add(g.matmul(x, w, transpose_b=True), g.input("r", (256, 256), "bf16"), name="y")


@pytest.fixture(scope="module")
def made() -> Emitted:
    found = build(graph_of(residual), S)
    refill = plan_of(found.verified).refill
    assert (refill.first, refill.apart > 0) == (0, True), "its inputs are copied apart, the first at once"
    return found


@pytest.mark.compiler
def test_machine_code_has_the_products_of_loops_that_can_run(made: Emitted) -> None:
    """The passes before the first copy are none, and the compiler leaves that loop out."""
    assert verdict(compile_kernel(made.source), expectation(made.verified)) == ()


@pytest.mark.slow
def test_computes(made: Emitted) -> None:
    assert case(made.graph).fault(made.source, SEEDS) is None
