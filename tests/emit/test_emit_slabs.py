"""Loops that compute values: overlapped and plain schedules are executed, compiled, and mutants of them found."""

from __future__ import annotations

import functools
import heapq
import math
from types import SimpleNamespace
from typing import Any

import pytest
from emit_builds import Case, Emitted, build, case, graph_of, lets_the_next_kernel_in_last, small_case

from wsopt.emit.source import expected_wgmma
from wsopt.gpu import compile_kernel
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.interpret import mutants
from wsopt.schedule.types import PartitionRole
from wsopt.tile.types import Sharing, Structure

SEEDS = 20
MASKS = ("full", "causal", "window", "limit")


def structure(
    columns: int, depth: int = 64, consumers: int = 2, pieces: int = 1, *, persistent: bool = False
) -> Structure:
    return Structure(64, columns, depth, consumers, 4, Sharing.ROWS, persistent, False, pieces, 1)


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
    mask: str, depth: int, consumers: int, pieces: int = 1, wide: int = 64, *, persistent: bool = False
) -> Emitted:
    graph = graph_of(lambda g: attention(g, mask, wide=wide))
    return build(graph, structure(wide, depth, consumers, pieces, persistent=persistent))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("depth", "consumers"), [(64, 2), (128, 1)])
@pytest.mark.parametrize("persistent", [False, True])
def test_computes(mask: str, depth: int, consumers: int, persistent: bool) -> None:
    made = emitted(mask, depth, consumers, persistent=persistent)
    assert case(made.graph).fault(made.source, 5) is None
    assert small_case(made).fault(made.source, 5) is None


@pytest.mark.parametrize("persistent", [False, True])
def test_computes_where_nothing_bounds_the_slabs(persistent: bool) -> None:
    """relu(q k') v: every slab counts for every row, and a slab beyond the keys adds nothing."""

    def weighted(g: GraphBuilder) -> Symbol:
        q = g.input("q", (1, 2, 200, 64), "bf16")
        k, v = (g.input(name, (1, 2, 328, 64), "bf16") for name in "kv")
        weights = g.cast(g.relu(g.matmul(q, k, transpose_b=True)), dtype="bf16")
        return g.cast(g.matmul(weights, v), dtype="bf16", name="o")

    made = build(graph_of(weighted), structure(64, persistent=persistent))
    assert not made.verified.program.region.bounds
    assert case(made.graph).fault(made.source, 5) is None
    assert small_case(made).fault(made.source, 5) is None


@pytest.mark.parametrize("mask", ["causal", "window"])
def test_consumers_beyond_the_last_row_hand_slabs_on(mask: str) -> None:
    """Of the last tile's three consumers one has rows, and of those of the first tiles some need fewer slabs."""
    graph = graph_of(lambda g: attention(g, mask, keys=328, queries=200))
    for persistent in (False, True):
        made = build(graph, structure(64, consumers=3, persistent=persistent))
        assert "range(end, tile_end)" in made.source
        assert ("range(tile_begin, begin)" in made.source) == (mask == "window")
        assert case(graph).fault(made.source, 5) is None


def tiles_of(source: str, rows: int, keys: int, heads: int, blocks: int) -> list[list[int]]:
    """The tiles of each block, as the launcher deals them out."""
    launcher = source[source.index("def _slab_counts") : source.index("def prepare")]
    names: dict[str, Any] = {"heapq": heapq, "triton": SimpleNamespace(cdiv=lambda a, b: -(-a // b))}
    exec(launcher, names)
    counts = names["_slab_counts"](rows, keys)
    order = names["_order"](counts, heads * len(counts), blocks)
    return [order[order[block] : order[block + 1]] for block in range(blocks)]


def test_every_tile_is_dealt_out_once_and_evenly() -> None:
    source = emitted("causal", 64, 2, persistent=True).source
    rows, keys, heads, blocks = 1280, 1408, 6, 7
    dealt = tiles_of(source, rows, keys, heads, blocks)
    assert sorted(tile for own in dealt for tile in own) == list(range(heads * 10))
    assert all(own == sorted(own) for own in dealt)
    slabs = [min((rows - 128 * (tile % 10)) + 128, keys) // 64 for tile in range(heads * 10)]
    loads = [sum(slabs[tile] + 1 for tile in own) for own in dealt]
    assert max(loads) - min(loads) <= max(slabs) + 1
    assert dealt[0][0] == 0
    assert slabs[0] == max(slabs)


def test_the_next_kernel_is_let_in_with_the_last_copy() -> None:
    assert all(lets_the_next_kernel_in_last(emitted(mask, 64, 2).source) for mask in ("full", "causal"))


def test_other_lengths_run_too() -> None:
    made = emitted("causal", 64, 2)
    for keys, queries in ((328, 200), (168, 40)):
        graph = graph_of(lambda g, n=keys, m=queries: attention(g, "causal", n, m))
        assert case(graph).fault(made.source, 2) is None


def test_columns_in_pieces_and_a_wider_value() -> None:
    made = emitted("full", 64, 2, pieces=2, wide=128)
    assert case(made.graph).fault(made.source, 3) is None


@pytest.mark.parametrize(("mask", "consumers"), [("full", 1), ("causal", 2)])
def test_machine_code_is_what_was_asked_for(mask: str, consumers: int) -> None:
    made = emitted(mask, 64, consumers)
    found = compile_kernel(made.source)
    assert found.wgmma == expected_wgmma(made.verified)
    assert (found.stack_bytes, found.spill_loads, found.warnings) == (0, 0, ())


def test_the_solver_overlaps_iterations() -> None:
    made = emitted("full", 64, 2)
    placed = made.verified.schedule.of(f"{PartitionRole.CONSUMER}0")
    assert max(p.stage for p in placed) == 1
    assert "warpgroup_mma_wait(1" in made.source or "_old" in made.source or "step - 1" in made.source


def survives(cases: list[Case], source: str, seeds: int) -> bool:
    return all(one.check(source, seed) is None for seed in range(seeds) for one in cases)


SYNCHRONIZATION = (
    "drop-wait",
    "drop-arrive",
    "drop-expect",
    "drop-gdc_wait",
    "drop-load",
    "flip-phase",
    "count",
)


def handed_on(source: str) -> tuple[int, int]:
    """The first and the last line of the loop over slabs that count for other consumers alone."""
    lines = source.split("\n")
    first = next(n for n, line in enumerate(lines, 1) if "range(end, tile_end)" in line)
    return first, next(n for n in range(first, len(lines)) if "step += 1" in lines[n - 1])


@pytest.mark.parametrize("persistent", [False, True])
def test_mutants_of_synchronization_are_found(persistent: bool) -> None:
    """All have to die but two kinds: where a block has one tile nobody waits for the slots of its last slabs; and
    of the waits for a slab that is handed on, the one for the last copy says that the others' slots were free.
    """
    graph = graph_of(lambda g: attention(g, "causal"))
    made = build(graph, structure(64, persistent=persistent), 96 if persistent else 64)
    assert max(slots for _, slots in made.verified.schedule.rings) <= 3
    sizes = [(728, 600), (688, 560)]  # the last tile's second consumer has few rows, and none
    cases = [case(graph_of(lambda g, n=n, m=m: attention(g, "causal", n, m))) for n, m in sizes]
    assert survives(cases, made.source, 3)
    main_loop = made.source.index("for _ in range(begin")
    after = made.source.count("\n", 0, made.source.index("step += 1\n", main_loop)) + 1
    first, last = handed_on(made.source)
    alive = [
        mutant
        for mutant in mutants(made.source)
        if mutant.name.startswith(SYNCHRONIZATION) and survives(cases, mutant.source, 6)
    ]
    redundant = [m for m in alive if m.name.startswith("drop-wait") and first < m.line < last - 2]
    unwaited = [m for m in alive if m.name.startswith("drop-arrive") and m.line > after and not persistent]
    assert [m.name for m in alive if m not in redundant + unwaited] == []
    assert len(alive) <= 6
