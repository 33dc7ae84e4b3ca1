"""Whole tiles that the epilogue of a loop over K-blocks reads: residuals and gates, in one subtile and in several."""

from __future__ import annotations

import functools

import attention_graphs as a
import pytest
from attention_graphs import Sizes
from emit_builds import SEEDS, Emitted, build, case, graph_of, small_case

from wsopt.codegen import compile_kernel
from wsopt.emit.source import expected_instructions
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.interpret import mutants
from wsopt.program.types import Sharing, Structure

SIZES = Sizes(batch=2, heads=2, queries=136, keys=136, inner=32, column=64)


def residual(g: GraphBuilder) -> Symbol:
    """o = r + attention."""
    p = a.parts(g, SIZES)
    o = g.matmul(g.cast(g.softmax(a.causal(p, a.scores(p))), dtype="bf16"), p.v)
    r = g.input("rest", (SIZES.batch, SIZES.heads, SIZES.queries, SIZES.column), "bf16")
    return g.cast(r + o, dtype="bf16", name="o")


def gated(g: GraphBuilder) -> tuple[Symbol, ...]:
    """o = attention * sigmoid(a gate of all heads alike) + an f32 tile by head, and the sums of the rows."""
    p = a.parts(g, SIZES)
    x = a.scores(p)
    o = g.matmul(g.cast(g.softmax(x), dtype="bf16"), p.v)
    gate = g.sigmoid(g.input("gate", (SIZES.queries, SIZES.column), "bf16"))
    more = g.input("more", (SIZES.heads, SIZES.queries, SIZES.column), "f32")
    total = g.reduce_max(x, axis=-1, name="m")
    return g.cast(o * gate + more, dtype="bf16", name="o"), total


@functools.cache
def emitted(name: str, subtiles: int) -> Emitted:
    graph = graph_of({"residual": residual, "gated": gated}[name])
    return build(graph, Structure(64, 64, 64, 2, 4, Sharing.COOPERATIVE, False, False, subtiles, 1), 96)


@pytest.mark.slow
@pytest.mark.parametrize("subtiles", [1, 2])
@pytest.mark.parametrize("name", ["residual", "gated"])
def test_computes(name: str, subtiles: int) -> None:
    made = emitted(name, subtiles)
    assert case(made.graph).fault(made.source, SEEDS) is None
    assert small_case(made).fault(made.source, 2) is None


@pytest.mark.compiler
def test_machine_code_is_what_was_asked_for() -> None:
    made = emitted("gated", 2)
    found = compile_kernel(made.source)
    assert found.tensor_instructions == expected_instructions(made.verified)
    assert (found.stack_bytes, found.spill_loads, found.warnings) == (0, 0, ())


@pytest.mark.slow
def test_mutants_of_the_copies_are_found() -> None:
    made = emitted("residual", 1)
    one, lines = case(made.graph), made.source.split("\n")
    kinds = ("drop-wait", "drop-expect", "drop-load", "drop-gdc_wait", "flip-phase", "count", "bytes")
    own = [
        m
        for m in mutants(made.source)
        if ("rest_" in lines[m.line - 1] or "gdc" in m.name) and m.name.startswith(kinds)
    ]
    assert len(own) >= 5
    assert [m.name for m in own if one.fault(m.source, 6) is None] == []
