"""Blocks with equal shares of all K-blocks: parts of tiles that are cut wherever a share ends."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
import test_emit_combined as combined
import test_emit_lengths as lengths
from emit_builds import Body, Case, case, graph_of, kernels_of
from emit_checks import check_calls_every_function, check_products, check_products_elsewhere

from wsopt.emit.integers import PYTHON
from wsopt.emit.recipe_of import launch_recipe
from wsopt.emit.source import emit
from wsopt.emit.stamps import Trace
from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.interpret import execute
from wsopt.lowering.structures import structures
from wsopt.machine import load_machine
from wsopt.program.types import Structure
from wsopt.targets import HOPPER, TARGETS, LoopKind

SEEDS = 2
BLOCKS = (1, 2, 3, 7, 31)


def shared(columns: int = 64, depth: int = 64, consumers: int = 1, subtiles: int = 1) -> Structure:
    return replace(combined.split(1, columns, depth, consumers, subtiles), shares=True)


def decoded(g: GraphBuilder, batches: int = 5, heads: int = 2, keys: int = 392) -> Symbol:
    """A few queries of each of two groups on as many keys of each batch element as `n` says."""
    q, n = g.input("q", (batches, heads, 4, 64), "bf16"), g.input("n", (batches,), "i32")
    k, v = (g.input(name, (batches, heads, keys, 64), "bf16") for name in "kv")
    s = g.mul(g.matmul(q, k, transpose_b=True), 0.125)
    seen = g.iota(shape=(1, keys), axis=1) < g.reshape(n, shape=(batches, 1, 1, 1))
    weights = g.cast(g.softmax(g.where(seen, s, -math.inf)), dtype="bf16")
    return g.cast(g.matmul(weights, v), dtype="bf16", name="o")


CASES: dict[str, tuple[Body, Structure]] = {
    **{
        name: (body, replace(s, splits=1, shares=True))
        for name, (body, s) in combined.CASES.items()
        if name != "more parts than K-blocks"
    },
    "groups": (decoded, shared()),
    **{f"by {form}": (functools.partial(lengths.attention, form=form), shared()) for form in lengths.FORMS},
    "by length, two consumers": (
        functools.partial(lengths.attention, form="length and chunk"),
        shared(consumers=2),
    ),
}
emitted = kernels_of(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes_with_any_number_of_blocks(name: str) -> None:
    made = emitted(name)
    for blocks in BLOCKS:
        assert replace(case(made.graph), processors=blocks).fault(made.source, SEEDS) is None, blocks
    check_calls_every_function(made)


LENGTHS = (
    (0, 0, 0, 0, 0),
    (392, 0, 64, 0, 1),
    (2**31 - 1, -5, 130, -(2**31), 400),
    (0, 0, 0, 0, 392),
    (128, 128, 128, 128, 128),
    (63, 64, 65, 391, 393),
)


@functools.cache
def with_lengths(own: tuple[int, ...], blocks: int) -> Case:
    graph = emitted("groups").graph
    return case(graph, inputs=random_inputs(graph, 0) | {"n": np.array(own, np.int32)}, processors=blocks)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 10, 11, 30])
@pytest.mark.parametrize("own", LENGTHS, ids=str)
def test_every_length_gives_the_reference(own: tuple[int, ...], blocks: int) -> None:
    """Tiles of no K-blocks, of one, and of all of them, under shares of no K-block up to all."""
    assert with_lengths(own, blocks).fault(emitted("groups").source, 1) is None


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_tiles_are_counted_some_at_a_time(at_once: int) -> None:
    """With ten tiles; a kernel counts 128 at a time or more."""
    source, right = emitted("groups").source, "COUNTED_TILES = gl.constexpr(128)"
    assert right in source
    counting = source.replace(right, f"COUNTED_TILES = gl.constexpr({at_once})")
    for own in LENGTHS:
        for blocks in (1, 3, 7):
            assert with_lengths(own, blocks).fault(counting, 1) is None


@pytest.mark.slow
def test_results_have_the_same_bits_whoever_comes_last() -> None:
    given, source = with_lengths(LENGTHS[-1], 7).inputs, emitted("groups").source
    runs = (execute(source, given, seed=seed, processors=7) for seed in range(6))
    assert len({run.outputs["o"].tobytes() for run in runs}) == 1


@pytest.mark.compiler
@pytest.mark.parametrize(
    "name", ["groups", "causal", "two consumers", "by length and chunk", "values of rows"]
)
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    check_products(emitted(name))


def test_compiles_with_another_triton(other_triton: str) -> None:
    names = ["groups", "two consumers"]
    check_products_elsewhere(other_triton, [emitted(name) for name in names])


# --- the launch -------------------------------------------------------------------------------------------


def test_a_launch_has_no_more_blocks_than_k_blocks() -> None:
    recipe = launch_recipe(emitted("groups").verified)
    names = dict(recipe.names)
    assert PYTHON(names["blocks"]) == "min(processors, tiles * triton.cdiv(stream_extent, 64))"
    places, counters = (PYTHON(one.elements) for one in recipe.workspaces)
    assert (places, counters) == ("(tiles + blocks) * 4224", "tiles")
    most = [PYTHON(one.left) for one in recipe.checks if one.right == 2**31 - 1]
    assert most == ["(tiles + blocks) * 4224", "blocks * (tiles * triton.cdiv(stream_extent, 64))"]


def test_a_traced_kernel_has_whole_tiles() -> None:
    with pytest.raises(LoweringError, match="trace a build made with `--under shares=no`"):
        emit(emitted("groups").verified, Trace())


# --- what is in the space ---------------------------------------------------------------------------------


def shares_of(body: Body, *, deterministic: bool = False) -> set[bool]:
    graph = replace(graph_of(body), deterministic=deterministic)
    return {s.shares for s in structures(find_region(graph), load_machine("h200"))}


def test_a_target_says_which_loops_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shares_of(combined.long) == {False, True}
    alone = replace(HOPPER, shared=frozenset({LoopKind.PRODUCTS}))
    monkeypatch.setitem(TARGETS, HOPPER.architecture, alone)
    assert shares_of(combined.long) == {False}


def test_long_loops_of_few_tiles_may_be_shared() -> None:
    def long(g: GraphBuilder, batches: int = 16) -> Symbol:
        return decoded(g, batches, heads=8, keys=8192)

    assert shares_of(long) == {False, True}
    assert shares_of(functools.partial(long, batches=2 * 66)) == {False}  # eight waves
    assert shares_of(decoded) == {False}  # seven K-blocks


def test_a_deterministic_graph_has_none() -> None:
    """Where a tile's sums are cut depends on how many tiles there are, and on the lengths of others."""
    assert shares_of(combined.long) == {False, True}
    assert shares_of(combined.long, deterministic=True) == {False}


def test_parts_that_cannot_be_combined_are_not_shared() -> None:
    def with_residual(g: GraphBuilder) -> Symbol:
        r = g.input("r", (1, 2, 4, 64), "bf16")
        return g.cast(combined.attention(g, keys=8192, queries=4) + r, dtype="bf16", name="y")

    assert shares_of(with_residual) == {False}
