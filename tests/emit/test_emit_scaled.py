"""Products of rows that are scaled by their own reductions: executed, compiled, and mistakes in them found."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from emit_builds import SEEDS, Body, Emitted, build, case, graph_of, small_case, structure
from emit_checks import check_machine_code
from emit_mutants import survives
from row_graphs import normed_product

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.interpret import mutants
from wsopt.program.types import Sharing, Structure


def factor(g: GraphBuilder, x: Symbol) -> Symbol:
    """1 / sqrt(mean(x^2) + 1e-6) for each row."""
    return g.rsqrt(g.reduce_mean(x * x, axis=-1, keepdims=True, name="power") + 1e-6)


def gated(g: GraphBuilder) -> Symbol:
    """y = silu(h a' + b) * (h c') with h = rms_norm(x): two products and a bias share the row's factor."""
    x = g.input("x", (200, 264), "f16")
    a, c = (g.input(name, (136, 264), "f16", constant=True) for name in "ac")
    b = g.input("b", (136,), "f16", constant=True)
    h = g.cast(x * factor(g, x), dtype="f16")
    gate, up = g.matmul(h, a, transpose_b=True, name="gate"), g.matmul(h, c, transpose_b=True, name="up")
    return g.cast(g.silu(gate + b) * up, dtype="f16", name="y")


def divided(g: GraphBuilder) -> Symbol:
    """Rows divided by their sums of magnitudes, in a batch, the weights as they lie in a transposed tensor."""
    x, w = g.input("x", (2, 72, 192), "bf16"), g.input("w", (2, 192, 136), "bf16")
    share = g.div(x, g.reduce_sum(g.abs(x), axis=2, keepdims=True, name="total"))
    return g.cast(g.matmul(g.cast(share, dtype="bf16"), w, name="p"), dtype="bf16", name="y")


@functools.cache
def emitted(body: Body, s: Structure, kib: int = 227) -> Emitted:
    return build(graph_of(body), s, kib)


CUTS: tuple[tuple[Body, Structure], ...] = (
    (normed_product, structure(consumers=2)),
    (normed_product, structure(columns=128, depth=32, consumers=2, ping_pong=True, subtiles=2)),
    (normed_product, structure(rows=128, persistent=False)),
    (gated, structure(depth=128)),
    (gated, structure(consumers=2, tail=16)),
    (divided, structure(consumers=2)),
)


@pytest.mark.slow
@pytest.mark.parametrize(("body", "s"), CUTS)
def test_computes(body: Body, s: Structure) -> None:
    made = emitted(body, s)
    assert case(made.graph).fault(made.source, SEEDS) is None


@pytest.mark.compiler
@pytest.mark.parametrize(("body", "s"), CUTS[::2])
def test_machine_code_is_what_was_asked_for(body: Body, s: Structure) -> None:
    made = emitted(body, s)
    check_machine_code(made)


def test_more_rows_and_longer_ones_run_too() -> None:
    """What a mean is divided by is the extent at run time."""
    made = emitted(normed_product, structure(consumers=2))
    assert " = stream_extent\n" in made.source
    assert case(graph_of(lambda g: normed_product(g, rows=330, inner=392))).fault(made.source, 2) is None


def test_a_norm_of_scores_counts_the_keys_at_run_time() -> None:
    """In a chain of products the factor waits for the end of the loop, too."""

    def body(g: GraphBuilder, keys: int = 136) -> Symbol:
        q, k = g.input("q", (1, 72, 64), "bf16"), g.input("k", (1, keys, 64), "bf16")
        v, weight = g.input("v", (1, keys, 64), "bf16"), g.input("weight", (1,), "f32")
        n = g.cast(g.rms_norm(g.matmul(q, k, transpose_b=True), weight), dtype="bf16")
        return g.cast(g.matmul(n, v), dtype="bf16", name="o")

    made = build(graph_of(body), Structure(64, 64, 64, 1, 4, Sharing.COOPERATIVE, False, False, 1, 1))
    assert case(made.graph).fault(made.source, 5) is None
    assert case(graph_of(lambda g: body(g, 328))).fault(made.source, 2) is None


def test_reductions_begin_anew_with_every_tile() -> None:
    """Without their start each tile would add to the one before it."""
    made = emitted(normed_product, structure(consumers=2))
    cleared = next(line for line in made.source.splitlines() if "power_0_ = gl.full" in line)
    once = made.source.replace(cleared, "").replace("    visit = 0\n", f"    visit = 0\n{cleared[4:]}\n")
    assert small_case(made).check(once, 0) is not None


TWICE = "a wait that has passed passes again"
MIRROR = "the two consumers' own buffers, or their numbers, are interchangeable"
EQUIVALENT = {"double-wait": (2, TWICE), "swap-argument": (2, MIRROR)}


@pytest.mark.slow
def test_every_mutant_is_found() -> None:
    made = emitted(normed_product, structure(consumers=2), 90)
    assert made.depth <= 3
    cases = [case(made.graph), case(graph_of(lambda g: normed_product(g, rows=330)))]
    assert survives(cases, made.source, SEEDS)
    alive = Counter(
        mutant.name.partition("@")[0]
        for mutant in mutants(made.source)
        if survives(cases, mutant.source, SEEDS)
    )
    assert alive == {what: count for what, (count, _) in EQUIVALENT.items()}
