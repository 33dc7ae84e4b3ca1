"""Results of one value a row, stored beside a loop's tile: at other extents, in subtiles, and with faults in them."""

from __future__ import annotations

import functools
import math

import attention_graphs as a
import pytest
from attention_graphs import Sizes
from emit_builds import SEEDS, Emitted, build, case, graph_of, small_case

from wsopt.codegen import compile_kernel
from wsopt.emit.source import expected_instructions
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.interpret import mutants
from wsopt.program.types import Sharing, Structure

SIZES = Sizes(batch=1, heads=2, queries=200, keys=328, inner=64, column=64)


def structure(columns: int = 64, depth: int = 64, consumers: int = 2, subtiles: int = 1) -> Structure:
    return Structure(64, columns, depth, consumers, 4, Sharing.COOPERATIVE, False, False, subtiles, 1)


@functools.cache
def emitted(mask: str, depth: int, consumers: int, subtiles: int = 1) -> Emitted:
    score = a.causal if mask == "causal" else lambda _, x: x
    return build(a.with_lse(score, SIZES), structure(64, depth, consumers, subtiles), 64)


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize(("depth", "consumers", "subtiles"), [(64, 2, 1), (128, 1, 2)])
def test_computes(mask: str, depth: int, consumers: int, subtiles: int) -> None:
    made = emitted(mask, depth, consumers, subtiles)
    assert case(made.graph).fault(made.source, SEEDS) is None
    assert small_case(made).fault(made.source, 5) is None


def test_other_lengths_run_too() -> None:
    made = emitted("full", 64, 2)
    other = a.with_lse(lambda _, x: x, Sizes(1, 3, 72, 200, 64, 64))
    assert case(other).fault(made.source, 2) is None


def test_a_batch_that_was_one_may_be_more() -> None:
    made = emitted("full", 64, 2)
    other = a.with_lse(lambda _, x: x, Sizes(2, 3, 72, 200, 64, 64))
    assert case(other).fault(made.source, 2) is None


def statistics(g: GraphBuilder) -> tuple[Symbol, ...]:
    """A softmax's maximum, as a column and rounded, and the inverse of its sum, transposed."""
    q, k, v = (g.input(name, (2, 3, 136, 32), "bf16") for name in "qkv")
    x = g.mul(g.matmul(q, k, transpose_b=True), 0.25)
    largest = g.reduce_max(x, axis=-1, keepdims=True)
    total = g.reduce_sum(g.exp(g.sub(x, largest)), axis=-1)
    o = g.cast(g.matmul(g.cast(g.softmax(x), dtype="bf16"), v), dtype="bf16", name="o")
    inverse = g.transpose(g.reciprocal(total), perm=(1, 2, 0), name="inverse")
    return g.cast(largest, dtype="bf16", name="m"), o, inverse


def test_rows_of_any_type_and_place() -> None:
    made = build(graph_of(statistics), structure(32), 40)
    assert case(made.graph).fault(made.source, 5) is None
    assert "m_group_stride" not in made.source or "m_batch_stride" in made.source


@pytest.mark.compiler
def test_machine_code_is_what_was_asked_for() -> None:
    made = emitted("causal", 64, 2)
    found = compile_kernel(made.source)
    assert found.tensor_instructions == expected_instructions(made.verified)
    assert (found.stack_bytes, found.spill_loads, found.warnings) == (0, 0, ())


FAULTS = {
    "mask=rows < row_extent)": "mask=rows < row_extent - 1)",
    "lse_ptr + batch": "lse_ptr + 0",
    "if subtile == 0:": "if subtile >= 0:",
}


@pytest.mark.parametrize("good", FAULTS)
def test_faults_are_found(good: str) -> None:
    made = emitted("full", 128, 1, 2)
    assert made.source.count(good) == 1
    assert case(made.graph).fault(made.source.replace(good, FAULTS[good]), 1) is not None


def test_a_store_that_is_missing_is_found() -> None:
    made = emitted("full", 64, 2)
    (mutant,) = (m for m in mutants(made.source) if m.name.startswith("drop-row-store"))
    assert case(made.graph).fault(mutant.source, 1) is not None


def test_row_results_are_in_no_tile_cost() -> None:
    plain = build(a.attention(lambda _, x: x, SIZES), structure(), 64).verified.program
    beside = emitted("full", 64, 2).verified.program
    assert beside.epilogue.stores == plain.epilogue.stores
    assert beside.epilogue.staged_bytes == plain.epilogue.staged_bytes
    assert math.isclose(beside.dram_bytes - plain.dram_bytes, 2 * 200 * 4)
