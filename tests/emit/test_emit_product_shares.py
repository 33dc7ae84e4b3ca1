"""Products whose blocks share the tiles behind all whole waves: parts of tiles, and K-blocks that are left over."""

from __future__ import annotations

import functools
from dataclasses import replace

import emit_builds as builds
import pytest
from emit_builds import Body, Case, Emitted, build, case, graph_of, structure
from emit_checks import check_products, check_products_elsewhere
from emit_mutants import survives, survivors
from test_emit_combined_mutants import kind

from wsopt.emit.integers import PYTHON
from wsopt.emit.recipe_of import launch_recipe
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.interpret import Mutant, mutants
from wsopt.lowering.structures import structures
from wsopt.machine import load_machine
from wsopt.program.types import Sharing, Structure

SEEDS = 2
BLOCKS = (1, 2, 4, 5, 7, 40)
"""Of six tiles of 128 x 128: whole ones alone, with two left of four and one of five, and none whole."""


def plain(g: GraphBuilder, rows: int = 200, columns: int = 304, deep: int = 1000) -> Symbol:
    """y = x w'."""
    x, w = g.input("x", (rows, deep), "bf16"), g.input("w", (columns, deep), "bf16", constant=True)
    return g.cast(g.matmul(x, w, transpose_b=True, name="p"), dtype="bf16", name="y")


def residual(g: GraphBuilder) -> tuple[Symbol, ...]:
    """h = x w' + b and y = r + h."""
    x, w = g.input("x", (200, 1000), "bf16"), g.input("w", (304, 1000), "bf16", constant=True)
    b, r = g.input("b", (304,), "bf16", constant=True), g.input("r", (200, 304), "bf16")
    biased = g.add(g.matmul(x, w, transpose_b=True, name="p"), b, name="biased")
    return g.cast(biased, dtype="bf16", name="h"), g.cast(g.add(r, biased), dtype="bf16", name="y")


def scaled(g: GraphBuilder) -> Symbol:
    """f8 operands with f32 sums, scaled by row and by column: two K-blocks a pass, nine in all."""
    x, w = g.input("x", (200, 1152), "f8e4m3"), g.input("w", (304, 1152), "f8e4m3", constant=True)
    rows, columns = g.input("sx", (200, 1), "f32"), g.input("sw", (304,), "f32")
    product = g.matmul(x, w, transpose_b=True, accumulate="f32", name="p")
    return g.cast(product * rows * columns, dtype="bf16", name="y")


CASES: dict[str, tuple[Body, Structure]] = {
    "plain": (plain, structure(columns=128, consumers=2, subtiles=2)),
    "residual": (residual, structure(columns=128, consumers=2, subtiles=2)),
    "one consumer of 8 warps": (plain, structure(columns=128, rows=128, warps=8, subtiles=2)),
    "two K-blocks a pass": (scaled, structure(depth=128, copies=2)),
    "operands swapped": (plain, structure(swap=True)),
    "two products": (builds.gated, structure(consumers=2)),
    "batches": (builds.batched, structure(columns=128, consumers=2)),
}


@functools.cache
def emitted(name: str) -> Emitted:
    body, s = CASES[name]
    return build(graph_of(body), replace(s, shares=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes_with_any_number_of_blocks(name: str) -> None:
    made = emitted(name)
    whole = case(made.graph)
    for place, blocks in enumerate(BLOCKS):
        assert replace(whole, processors=blocks).fault(made.source, 2 if place else SEEDS) is None, blocks


@pytest.mark.slow
def test_passes_that_a_loop_takes_at_least_are_a_piece() -> None:
    """Fifteen and a half K-blocks in pieces of three: the last piece of a tile has what is left over."""
    made = emitted("plain")
    right = "SHARED_K_BLOCKS = gl.constexpr(1)"
    assert right in made.source
    source = made.source.replace(right, "SHARED_K_BLOCKS = gl.constexpr(3)")
    for blocks in BLOCKS[:-1]:
        assert replace(case(made.graph), processors=blocks).fault(source, SEEDS) is None, blocks


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["plain", "residual", "two K-blocks a pass"])
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    check_products(emitted(name))


def test_compiles_with_another_triton(other_triton: str) -> None:
    names = ["residual", "two products"]
    check_products_elsewhere(other_triton, [emitted(name) for name in names])


def test_a_launch_has_places_for_two_parts_a_block() -> None:
    recipe = launch_recipe(emitted("two K-blocks a pass").verified)
    assert PYTHON(dict(recipe.names)["blocks"]) == "min(processors, tiles * (k_iterations // 2))"
    places, counters = (PYTHON(one.elements) for one in recipe.workspaces)
    assert (places, counters) == ("2 * blocks * 4096", "blocks")


# --- what is in the space ---------------------------------------------------------------------------------


def shares_of(rows: int, columns: int, deep: int, *, deterministic: bool = False) -> set[Sharing]:
    """How consumers of tiles of 128 x 256 share them where there are equal shares."""
    graph = replace(graph_of(lambda g: plain(g, rows, columns, deep)), deterministic=deterministic)
    found = structures(find_region(graph), load_machine("h200"))
    return {s.sharing for s in found if s.shares and (s.tile_rows, s.columns) == (128, 256)}


def test_a_last_wave_that_is_nearly_empty_is_shared_by_cooperative_consumers() -> None:
    cooperative = {Sharing.COOPERATIVE}
    assert shares_of(128 * 70, 512, 4096) == cooperative  # 140 tiles
    assert shares_of(128 * 70, 512, 4096, deterministic=True) == set()
    assert shares_of(128 * 66, 512, 4096) == set()  # one wave
    assert shares_of(128 * 130, 512, 4096) == set()  # the last one is nearly full
    assert shares_of(128 * 70, 512, 480) == set()  # short loops
    assert shares_of(128 * 70, 512 * 8, 4096) == set()  # of nine waves one is no tenth


# --- mistakes ---------------------------------------------------------------------------------------------

KINDS = {
    "share", "lost-rest", "found", "part-count", "other-end", "next-range", "last-arrival", "arrival", "reset",
    "drop-thread_barrier", "late-barrier", "plain-counter", "relaxed-atomic", "acquire-atomic", "release-atomic",
}  # fmt: skip


@functools.cache
def subject() -> tuple[Emitted, list[Case]]:
    """A kernel with so few slots that copies which nobody waits for are seen."""
    made = build(graph_of(plain), replace(CASES["plain"][1], shares=True), kib=100)
    assert made.depth <= 3
    return made, [replace(case(made.graph), processors=blocks) for blocks in (4, 5, 7, 40)]


def key(source: str, mutant: Mutant) -> tuple[str, str]:
    return mutant.kind, mutant.description


# With a round more all tiles are whole, and those behind the last one lie beside all tensors.
EQUIVALENT = {("found+1", "+1 at shared of parts_of"): 1, ("found+1", "+1 at rounds of share_of"): 1}
"""All shared tiles' parts and counters are one place further, and there is room for one more."""


@pytest.mark.slow
def test_every_mistake_of_shares_is_found() -> None:
    made, cases = subject()
    assert survives(cases, made.source, 3)
    found = survivors(cases, made.source, key, EQUIVALENT, lambda mutant: kind(mutant) in KINDS)
    assert found == EQUIVALENT


def test_every_kind_is_made() -> None:
    assert {kind(mutant) for mutant in mutants(subject()[0].source)} >= KINDS
