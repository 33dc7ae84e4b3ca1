"""Products with two or three batch axes that lie apart: transposed views, strides, tensors that one of them lacks."""

from __future__ import annotations

import pytest
from emit_builds import Body, build, case, graph_of, small_case
from emit_checks import check_machine_code

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Sharing, Structure


def _seen(g: GraphBuilder, name: str, rows: int = 72, depth: int = 64, dtype: str = "bf16") -> Symbol:
    """[batch, rows, heads, depth] seen as [batch, heads, rows, depth]."""
    return g.transpose(g.input(name, (2, rows, 3, depth), dtype), perm=(0, 2, 1, 3))


def views(g: GraphBuilder) -> Symbol:
    return g.cast(g.matmul(_seen(g, "a"), _seen(g, "b", 136), transpose_b=True), "bf16", name="y")


def strided(g: GraphBuilder) -> Symbol:
    """Batches as the outer axis of one tensor and the inner one of the other, with a vector of each head."""
    a = g.input("a", (2, 3, 72, 64), "bf16", strides=(2 * 3 * 72 * 64, 64, 3 * 64, 1))
    b = g.input("b", (2, 3, 96, 64), "bf16", strides=(64, 2 * 96 * 64, 2 * 64, 1))
    biased = g.add(g.matmul(a, b, transpose_b=True), g.input("bias", (3, 1, 96), "bf16"))
    return g.cast(biased, "bf16", name="y")


def shared(g: GraphBuilder) -> Symbol:
    """Weights of each head that all batches share."""
    return g.cast(
        g.matmul(g.input("a", (2, 3, 72, 64), "bf16"), g.input("w", (3, 64, 96), "bf16")), "f16", name="y"
    )


def three(g: GraphBuilder) -> Symbol:
    """An operand that the middle axis of three shares, and a number that counts along another."""
    p = g.matmul(g.input("a", (2, 3, 4, 40, 64), "bf16"), g.input("b", (2, 1, 4, 64, 72), "bf16"))
    return g.cast(g.add(p, g.cast(g.iota(shape=(2, 1, 1, 1, 1), axis=0), "f32")), "bf16", name="y")


def deep(g: GraphBuilder) -> Symbol:
    a, b = (_seen(g, name, 64, 1024) for name in "ab")
    return g.cast(g.matmul(a, b, transpose_b=True), "bf16", name="y")


def structure(consumers: int = 2, sharing: Sharing = Sharing.COOPERATIVE, splits: int = 1) -> Structure:
    return Structure(64, 64, 64, consumers, 4, sharing, True, False, 1, 1, splits=splits)


CUTS: tuple[tuple[Body, Structure], ...] = (
    (views, structure()),
    (strided, structure(2, Sharing.PING_PONG)),
    (shared, structure(1)),
    (three, structure(1)),
    (deep, structure(1, splits=2)),
)


@pytest.mark.parametrize(("body", "s"), CUTS, ids=lambda x: x.__name__ if callable(x) else "")
def test_computes(body: Body, s: Structure) -> None:
    made = build(graph_of(body), s, 96)
    assert case(made.graph).fault(made.source, 1) is None
    assert small_case(made).fault(made.source, 1) is None


@pytest.mark.compiler
def test_machine_code_is_what_was_asked_for() -> None:
    made = build(graph_of(views), structure(), 96)
    check_machine_code(made)


def test_a_place_of_the_wrong_batch_is_found() -> None:
    made = build(graph_of(views), structure(), 96)
    assert "tma_load(a_desc, [batch, group, " in made.source
    wrong = made.source.replace("tma_load(a_desc, [batch, group, ", "tma_load(a_desc, [batch, 0, ")
    assert case(made.graph).fault(wrong, 1) is not None
