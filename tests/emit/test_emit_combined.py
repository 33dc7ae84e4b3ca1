"""Loops that compute values, their K-blocks split over several blocks: the last to arrive has all parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from emit_builds import Body, case, graph_of, kernels_of
from emit_checks import check_calls_every_function, check_products, check_products_elsewhere
from test_emit_k_blocks import attention, structure

from wsopt.emit.integers import PYTHON
from wsopt.emit.recipe_of import launch_recipe
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.machine import load_machine
from wsopt.perf.splits import parts_at_once, rows_at_once
from wsopt.program.types import Structure

SEEDS = 2


def of_queries(mask: str, queries: int, wide: int = 64) -> Body:
    return lambda g: attention(g, mask, keys=456, queries=queries, wide=wide)


def weighted(g: GraphBuilder) -> Symbol:
    """relu(q k') v: sums that nothing rescales, and no maxima."""
    q = g.input("q", (1, 2, 72, 64), "bf16")
    k, v = (g.input(name, (1, 2, 456, 64), "bf16") for name in "kv")
    weights = g.cast(g.relu(g.matmul(q, k, transpose_b=True)), dtype="bf16")
    return g.cast(g.matmul(weights, v), dtype="bf16", name="o")


def with_sums(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Attention and the logarithm of each row's sum."""
    q = g.input("q", (1, 2, 72, 64), "bf16")
    k, v = (g.input(name, (1, 2, 456, 64), "bf16") for name in "kv")
    s = g.matmul(q, k, transpose_b=True) * 0.125
    peak = g.reduce_max(s, axis=-1, keepdims=True)
    weights = g.exp(s - peak)
    total = g.reduce_sum(weights, axis=-1, keepdims=True)
    lse = g.cast(peak + g.log(total), dtype="f32", name="lse")
    return lse, g.cast(g.matmul(g.cast(weights / total, dtype="bf16"), v), dtype="f32", name="y")


def split(
    splits: int, columns: int = 64, depth: int = 64, consumers: int = 1, subtiles: int = 1
) -> Structure:
    return replace(structure(columns, depth, consumers, subtiles, persistent=True), splits=splits)


CASES: dict[str, tuple[Body, Structure]] = {
    "few rows": (of_queries("full", 4), split(4)),
    "two consumers": (of_queries("full", 72), split(3, consumers=2)),
    "causal": (of_queries("causal", 72), split(3, consumers=2)),
    "window": (of_queries("window", 200), split(3)),
    "limit": (of_queries("limit", 72), split(2, depth=128)),
    "more parts than K-blocks": (of_queries("limit", 4), split(12, depth=128)),
    "subtiles": (of_queries("full", 12, wide=128), split(2, columns=128, subtiles=2)),
    "96 columns": (of_queries("full", 12, wide=96), split(2, columns=96, subtiles=3)),
    "parts after parts": (of_queries("full", 4, wide=256), split(7, columns=256)),
    "nothing bounds them": (weighted, split(4)),
    "values of rows": (with_sums, split(4, consumers=2)),
}
emitted = kernels_of(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    made = emitted(name)
    assert case(made.graph).fault(made.source, SEEDS) is None
    check_calls_every_function(made)


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["few rows", "causal", "96 columns", "parts after parts"])
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    check_products(emitted(name))


def test_compiles_with_another_triton(other_triton: str) -> None:
    names = ["few rows", "causal"]
    check_products_elsewhere(other_triton, [emitted(name) for name in names])


# --- how many at a time -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rows", "parts"),
    [("few rows", 8, 4), ("two consumers", 64, 3), ("parts after parts", 8, 4), ("limit", 64, 2)],
)
def test_rows_and_parts_that_registers_hold(name: str, rows: int, parts: int) -> None:
    verified = emitted(name).verified
    given = verified.program, verified.machine
    assert (rows_at_once(*given), parts_at_once(*given)) == (rows, parts)
    assert f"COMBINED_ROWS = gl.constexpr({rows})" in emitted(name).source


def test_parts_that_are_no_multiple_are_left_out_behind_the_last() -> None:
    body = emitted("parts after parts").source.split("def combine(")[1].split("@gluon.jit")[0]
    assert body.count("mask=inside & (part < SPLITS)") == 3
    assert "part < SPLITS" not in emitted("few rows").source


def test_a_block_has_a_bit_for_each_of_its_parts() -> None:
    """With more parts than bits for all SMs there are more blocks, which take their turns."""
    names = dict(launch_recipe(emitted("few rows").verified).names)
    told = "max(min(processors, parts), triton.cdiv(parts, 31))"
    assert PYTHON(names["blocks"]) == told


# --- what is in the space ---------------------------------------------------------------------------------


def splits_of(body: Body) -> set[int]:
    return {s.splits for s in structures(find_region(graph_of(body)), load_machine("h200"))}


def long(g: GraphBuilder) -> Symbol:
    return attention(g, keys=8192, queries=4)


def test_long_loops_of_few_tiles_are_split() -> None:
    assert splits_of(long) >= {1, 2, 4, 16, 64}
    assert splits_of(lambda g: attention(g, keys=456, queries=4)) == {1}
    assert splits_of(lambda g: attention(g, keys=8192, queries=65536)) == {1}


def test_a_factor_that_needs_more_than_maxima_is_not_split() -> None:
    def scaled(g: GraphBuilder) -> Symbol:
        q, r = g.input("q", (1, 2, 4, 64), "bf16"), g.input("r", (1, 2, 4, 1), "f32")
        k, v = (g.input(name, (1, 2, 8192, 64), "bf16") for name in "kv")
        p = g.softmax(g.matmul(q, k, transpose_b=True) * r, axis=-1)
        return g.cast(g.matmul(g.cast(p, dtype="bf16"), v), dtype="bf16", name="o")

    assert max(splits_of(scaled)) > 1  # the scale is in the scores, not in the factor

    def with_residual(g: GraphBuilder) -> Symbol:
        r = g.input("r", (1, 2, 4, 64), "bf16")
        return g.cast(attention(g, keys=8192, queries=4) + r, dtype="bf16", name="y")

    assert splits_of(with_residual) == {1}


# --- mistakes ---------------------------------------------------------------------------------------------

MISTAKES = {
    "a factor the wrong way": ("_7__part - softmax_0_3__part", "_3__part - softmax_0_7__part"),
    "an overlapped loop beyond the part": (
        "gl.maximum(gl.minimum(whole_end, last), whole_begin)",
        "whole_end",
    ),
    "rows of the next part": (
        "own_part = workspace_ptr + part *",
        "own_part = workspace_ptr + (part + 1) % parts *",
    ),
    "one bit for all parts": ("        taken += 1\n        visit += 1\n", "        visit += 1\n"),
    "the bit of a part of the next tile": ("(owed >> taken) & 1", "(owed >> (taken + 2)) & 1"),
    "a visit for tiles alone": ("        taken += 1\n        visit += 1\n", "        taken += 1\n"),
}
"""What no rule of `interpret/mutate.py` makes; `test_emit_combined_mutants.py` has the rest."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name: str) -> None:
    right, wrong = MISTAKES[name]
    made = emitted("few rows")
    assert right in made.source
    # Two blocks would have all parts of a tile each, and nothing to tell apart.
    assert case(made.graph, 5).fault(made.source.replace(right, wrong), SEEDS) is not None
