"""Loops that compute values: overlapped and plain schedules are executed and compiled."""

from __future__ import annotations

import functools
import math

import ml_dtypes
import numpy as np
import pytest
from emit_builds import Emitted, build, case, graph_of, lets_the_next_kernel_in_last, small_case

from wsopt.codegen import compile_kernel
from wsopt.emit.source import expected_instructions
from wsopt.errors import CheckError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.interpret.host import HostTensor
from wsopt.interpret.machine import Machine
from wsopt.interpret.modules import load
from wsopt.lowering.reduced import reaching, reduced
from wsopt.program.ranges import k_iteration_counts, longest_last
from wsopt.program.tile_order import numbered, rasterization_order, tiles_together
from wsopt.program.types import Sharing, Structure
from wsopt.schedule.types import PartitionRole
from wsopt.simulation import simulate
from wsopt.tensors.views import Role

MASKS = ("full", "causal", "window", "limit")


def structure(
    columns: int, depth: int = 64, consumers: int = 2, subtiles: int = 1, *, persistent: bool = False
) -> Structure:
    return Structure(64, columns, depth, consumers, 4, Sharing.COOPERATIVE, persistent, False, subtiles, 1)


def attention(
    g: GraphBuilder, mask: str = "full", keys: int = 328, queries: int = 200, wide: int = 64
) -> Symbol:
    """o = softmax(q k' / 8) v, two heads."""
    q = g.input("q", (1, 2, queries, 64), "bf16")
    k, v = g.input("k", (1, 2, keys, 64), "bf16"), g.input("v", (1, 2, keys, wide), "bf16")
    s = g.mul(g.matmul(q, k, transpose_b=True), 0.125)
    i, j = g.iota(shape=(queries, keys), axis=0), g.iota(shape=(queries, keys), axis=1)
    if mask == "causal":
        s = g.where(g.less_equal(j, g.add(i, keys - queries)), s, -math.inf)
    if mask == "window":
        near = g.logical_and(g.less_equal(j, g.add(i, 40)), g.greater(j, g.sub(i, 90)))
        s = g.where(near, s, -math.inf)
    if mask == "limit":
        s = g.where(g.less(j, 150), s, -math.inf)
    p = g.cast(g.softmax(s, axis=-1), dtype="bf16")
    return g.cast(g.matmul(p, v), dtype="bf16", name="o")


@functools.cache
def emitted(
    mask: str, depth: int, consumers: int, subtiles: int = 1, wide: int = 64, *, persistent: bool = False
) -> Emitted:
    graph = graph_of(lambda g: attention(g, mask, wide=wide))
    return build(graph, structure(wide, depth, consumers, subtiles, persistent=persistent))


@pytest.mark.slow
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("depth", "consumers"), [(64, 2), (128, 1)])
@pytest.mark.parametrize("persistent", [False, True])
def test_computes(mask: str, depth: int, consumers: int, persistent: bool) -> None:
    made = emitted(mask, depth, consumers, persistent=persistent)
    assert case(made.graph).fault(made.source, 5) is None
    assert small_case(made).fault(made.source, 5) is None


@pytest.mark.parametrize("persistent", [False, True])
def test_computes_where_nothing_bounds_the_k_blocks(persistent: bool) -> None:
    """relu(q k') v: every K-block counts for every row, and a K-block beyond the keys adds nothing."""

    def weighted(g: GraphBuilder) -> Symbol:
        q = g.input("q", (1, 2, 200, 64), "bf16")
        k, v = (g.input(name, (1, 2, 328, 64), "bf16") for name in "kv")
        weights = g.cast(g.relu(g.matmul(q, k, transpose_b=True)), dtype="bf16")
        return g.cast(g.matmul(weights, v), dtype="bf16", name="o")

    made = build(graph_of(weighted), structure(64, persistent=persistent))
    assert not made.verified.program.region.bounds
    assert case(made.graph).fault(made.source, 5) is None
    assert small_case(made).fault(made.source, 5) is None


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["causal", "window"])
def test_consumers_beyond_the_last_row_hand_k_blocks_on(mask: str) -> None:
    """Of the last tile's three consumers one has rows, and of those of the first tiles some need fewer K-blocks."""
    graph = graph_of(lambda g: attention(g, mask, keys=328, queries=200))
    for persistent in (False, True):
        made = build(graph, structure(64, consumers=3, persistent=persistent))
        assert "range(end, tile_end)" in made.source
        assert ("range(tile_begin, begin)" in made.source) == (mask == "window")
        assert case(graph).fault(made.source, 5) is None


def tiles_of(source: str, rows: int, keys: int, heads: int, blocks: int) -> list[list[int]]:
    """The tiles of each block, as the launcher deals them out on a device of so many processors."""
    shapes = {"q": rows, "k": keys, "v": keys}
    arrays = {name: np.zeros((1, heads, extent, 64), ml_dtypes.bfloat16) for name, extent in shapes.items()}
    bind = load(source, Machine(0, blocks, "dealt.py"))["bind"]
    _, arguments, _ = bind({name: HostTensor(array, name) for name, array in arrays.items()})
    order = arguments[-1].numpy().tolist()
    return [order[order[block] : order[block + 1]] for block in range(blocks)]


def test_every_tile_is_dealt_out_once_and_evenly() -> None:
    source = emitted("causal", 64, 2, persistent=True).source
    rows, keys, heads, blocks = 1280, 1408, 6, 7
    dealt = tiles_of(source, rows, keys, heads, blocks)
    assert sorted(tile for own in dealt for tile in own) == list(range(heads * 10))
    k_blocks = [min((rows - 128 * (tile % 10)) + 128, keys) // 64 for tile in range(heads * 10)]
    loads = [sum(k_blocks[tile] + 1 for tile in own) for own in dealt]
    # By the heads' order alone the longest of the last head would come when others have ended.
    assert max(loads) - min(loads) <= min(k_blocks) + 1 < max(k_blocks) / 4
    assert dealt[0][0] == 0
    assert k_blocks[0] == max(k_blocks)


@pytest.mark.parametrize("mask", ["full", "causal", "window"])
def test_tiles_are_taken_as_the_model_has_it(mask: str) -> None:
    found = emitted(mask, 64, 2, persistent=True)
    region, s = found.verified.program.region, found.verified.program.structure
    counts, heads = list(k_iteration_counts(found.verified.program.bounds, s)), 9
    tiles = heads * len(counts)
    (taken,) = tiles_of(found.source, region.extent(Role.ROW), region.extent(Role.STREAM), heads, blocks=1)
    from_last = "row_tiles - 1 - row_tile" in found.source
    assert from_last == longest_last(counts)
    lengths = numbered(counts, from_last)
    together = tiles_together(lengths, tiles, 1)
    assert taken == rasterization_order(lengths, tiles, together)
    assert taken[: tiles - together] == list(range(tiles - together))
    last = [lengths[tile % len(lengths)] for tile in taken[tiles - together :]]
    assert last == sorted(last, reverse=True)


def test_the_next_kernel_is_let_in_with_the_last_copy() -> None:
    assert all(lets_the_next_kernel_in_last(emitted(mask, 64, 2).source) for mask in ("full", "causal"))


def test_other_lengths_run_too() -> None:
    made = emitted("causal", 64, 2)
    for keys, queries in ((328, 200), (168, 40)):
        graph = graph_of(lambda g, n=keys, m=queries: attention(g, "causal", n, m))
        assert case(graph).fault(made.source, 2) is None


def test_columns_in_subtiles_and_a_wider_value() -> None:
    made = emitted("full", 64, 2, subtiles=2, wide=128)
    assert case(made.graph).fault(made.source, 3) is None


@pytest.mark.compiler
@pytest.mark.parametrize(("mask", "consumers"), [("full", 1), ("causal", 2)])
def test_machine_code_is_what_was_asked_for(mask: str, consumers: int) -> None:
    made = emitted(mask, 64, consumers)
    found = compile_kernel(made.source)
    assert found.tensor_instructions == expected_instructions(made.verified)
    assert (found.stack_bytes, found.spill_loads, found.warnings) == (0, 0, ())


def test_the_solver_overlaps_iterations() -> None:
    made = emitted("full", 64, 2)
    placed = made.verified.schedule.of(f"{PartitionRole.CONSUMER}0")
    assert max(p.stage for p in placed) == 1
    assert "warpgroup_mma_wait(1" in made.source  # the next K-block's product is under way at a wait


def far_window(g: GraphBuilder) -> Symbol:
    """A window of 700 keys, which no few tiles reach."""
    q, k, v = (g.input(name, (1, 2, 1200, 64), "bf16") for name in "qkv")
    i, j = (g.iota(shape=(1200, 1200), axis=axis) for axis in (0, 1))
    near = g.logical_and(g.less_equal(j, i), g.greater(j, g.sub(i, 700)))
    s = g.where(near, g.mul(g.matmul(q, k, transpose_b=True), 0.125), -math.inf)
    return g.cast(g.matmul(g.cast(g.softmax(s, axis=-1), dtype="bf16"), v), dtype="bf16", name="o")


@pytest.mark.slow
def test_the_simulation_goes_as_far_as_a_mask_reaches() -> None:
    made = build(graph_of(far_window), structure(64))
    assert "- 700" in made.source
    assert simulate(made.graph, made.verified, made.source, 2).max_relative_error < 1e-2
    wider = made.source.replace("- 700", "- 690")
    few = reduced(made.graph, made.verified.program.structure, 3)
    assert case(few).fault(wider, 2) is None  # where the window is not reached, its width does not matter
    with pytest.raises(CheckError, match=r"output o on the CPU, seed 0: .*row \[.* is off by .*element \["):
        simulate(made.graph, made.verified, wider, 2)


def test_few_tiles_do_where_no_mask_reaches_further() -> None:
    made = emitted("full", 64, 2)
    assert reaching(made.graph, made.verified.program.structure, 3) is None
