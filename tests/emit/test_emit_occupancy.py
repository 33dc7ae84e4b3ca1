"""Several blocks an SM: a launch has as many more, each with its share of shared memory and registers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from emit_builds import Body, build, check_computes, graph_of, small_case, structure

from wsopt.codegen import compile_kernel
from wsopt.codegen.oracle import verdict
from wsopt.emit.source import expectation
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Structure

TWO = replace(structure(), group=1, occupancy=2)
WORDS = replace(TWO, columns=16, depth=128)


def few_rows(g: GraphBuilder) -> Symbol:
    """Few rows by constant weights."""
    x, w = g.input("x", (40, 1536), "bf16"), g.input("w", (400, 1536), "bf16", constant=True)
    return g.cast(g.matmul(x, w, transpose_b=True), "bf16", name="y")


def few_rows_by_words(g: GraphBuilder) -> Symbol:
    """Few rows by weights of 8 bits, which the loop makes bf16: they are the tile's rows."""
    x, w = g.input("x", (16, 1536), "bf16"), g.input("w", (200, 1536), "i8", constant=True)
    return g.cast(g.matmul(x, g.cast(w, "bf16"), transpose_b=True), "bf16", name="y")


def packed(g: GraphBuilder) -> Symbol:
    """Few rows by weights of 4 bits, enough of them that a card has nothing but their arithmetic to wait for."""
    x, w = g.input("x", (16, 8192), "bf16"), g.input("w", (8192, 8192), "i4", constant=True)
    scales = g.input("s", (8192, 64), "bf16", constant=True)
    weights = g.cast(g.dequantize(w, scales, group=128), "bf16")
    return g.cast(g.matmul(x, weights, transpose_b=True), "bf16", name="y")


def one_token(g: GraphBuilder) -> Symbol:
    """The queries of eight heads over the keys and values that they share."""
    q = g.input("q", (2, 8, 64), "bf16")
    k, v = g.input("k", (2, 640, 64), "bf16"), g.input("v", (2, 640, 64), "bf16")
    p = g.softmax(g.matmul(q, k, transpose_b=True) * 0.125, axis=2)
    return g.cast(g.matmul(g.cast(p, "bf16"), v), "bf16", name="y")


def few_keys(g: GraphBuilder) -> Symbol:
    """The queries of many rows over keys that do not fill their last K-block."""
    q = g.input("q", (3, 200, 64), "bf16")
    k, v = g.input("k", (3, 77, 64), "bf16"), g.input("v", (3, 77, 64), "bf16")
    p = g.softmax(g.matmul(q, k, transpose_b=True) * 0.125, axis=2)
    return g.cast(g.matmul(g.cast(p, "bf16"), v), "bf16", name="y")


CASES: dict[str, tuple[Body, Structure]] = {
    "product": (few_rows, TWO),
    "split product": (few_rows, replace(TWO, splits=3)),
    "weights of 8 bits": (few_rows_by_words, WORDS),
    "split weights of 8 bits": (few_rows_by_words, replace(WORDS, splits=2)),
    "attention": (one_token, replace(TWO, splits=2)),
    "attention of many rows, three blocks": (few_keys, replace(TWO, occupancy=3)),
    "attention of many rows, four blocks": (few_keys, replace(TWO, occupancy=4, depth=32)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_the_graph_means(name: str) -> None:
    body, s = CASES[name]
    check_computes(build(graph_of(body), s))


@pytest.mark.compiler
def test_the_compiler_keeps_to_a_blocks_share_of_registers() -> None:
    made = build(graph_of(few_rows), TWO)
    assert made.verified.schedule.base_registers == 128
    assert not verdict(compile_kernel(made.source), expectation(made.verified))


@pytest.mark.compiler
@pytest.mark.parametrize(("blocks", "depth", "registers"), [(2, 64, 128), (3, 64, 80), (4, 32, 64)])
def test_so_does_it_with_more_blocks_that_compute_values(blocks: int, depth: int, registers: int) -> None:
    made = build(graph_of(few_keys), replace(TWO, occupancy=blocks, depth=depth))
    assert made.verified.schedule.base_registers == registers
    assert not verdict(compile_kernel(made.source), expectation(made.verified))


def test_a_launch_has_as_many_blocks_as_sms_have_room_for() -> None:
    alone, two = (build(graph_of(few_rows), s).source for s in (replace(TWO, occupancy=0), TWO))
    assert "blocks = min(processors, tiles)" in alone
    assert "blocks = min(processors * 2, tiles)" in two


def test_constants_of_some_slots_are_copied_before_the_kernel_before_has_ended() -> None:
    made = build(graph_of(packed), replace(WORDS, depth=256, scaled_sums=True, splits=2))
    depth = min(slots for _, slots in made.verified.schedule.rings)
    ahead = int(made.source.split("CONSTANTS_AHEAD = gl.constexpr(")[1].split(")")[0])
    assert 1 <= ahead < depth
    small, line = small_case(made), "ahead = gl.minimum(last - first, CONSTANTS_AHEAD)"
    assert small.fault(made.source, 2) is None
    assert small.fault(made.source.replace(line, f"ahead = {depth + 1}"), 1) is not None
