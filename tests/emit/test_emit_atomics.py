"""Split sums that L2 adds up by atomics: a tile has one place, which the last block leaves as zeros."""

from __future__ import annotations

from dataclasses import replace

import pytest
from emit_builds import graph_of, small_case
from other_compiler import compiled_by
from test_emit_splits import ADDED, CASES, compiled, emitted

from wsopt.emit.recipe import Workspace
from wsopt.emit.recipe_of import launch_recipe
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.program.types import Structure

SEEDS = 2


def test_all_parts_of_a_tile_have_one_place_that_is_zeros() -> None:
    """As many places as tiles, and not as parts; nothing has to clear them before a launch."""

    def places(name: str) -> tuple[Workspace, ...]:
        return launch_recipe(emitted(name).verified).workspaces

    (added, counters), (stored, _) = places("plain, added"), places("plain")
    assert (added.zeroed, counters.zeroed, stored.zeroed) == (True, True, False)
    assert "parts" not in str(added.elements)
    assert "parts" in str(stored.elements)


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["plain", "gated", "192 columns", "swapped"])
def test_atomics_add_two_neighbours_at_a_time(name: str) -> None:
    """None of them returns anything; each consumer has one atomic that does, its arrival."""
    made, found = emitted(f"{name}, added"), dict(compiled(f"{name}, added").sass)
    s, products = made.verified.program.structure, 2 if name == "gated" else 1
    own = s.consumers * products * s.rows * s.columns // (s.consumer_warps * 32) // 2
    assert (found["REDG"], found["LDG"], found["ATOMG"]) == (own, own, s.consumers)
    assert found["STG"] == own + s.consumers  # places and counters, cleared


def test_compiles_with_another_triton(other_triton: str) -> None:
    names = list(ADDED)[::6]
    for name, other in zip(names, compiled_by(other_triton, [emitted(n).source for n in names]), strict=True):
        assert other["tensor_instructions"] == compiled(name).tensor_instructions
        assert (other["spill_loads"], other["spill_stores"]) == (0, 0)


def test_only_graphs_that_need_not_be_deterministic_have_them(h200: Machine) -> None:
    def with_atomics(deterministic: bool) -> list[Structure]:
        graph = replace(graph_of(CASES["plain"][0]), deterministic=deterministic)
        return [s for s in structures(find_region(graph), h200) if s.atomics]

    found = with_atomics(False)
    assert found
    assert all(s.splits >= 3 for s in found)
    assert with_atomics(True) == []


def test_results_of_few_bits_have_none(h200: Machine) -> None:
    """The order of a sum would move some of them by a whole step."""

    def quantized(g: GraphBuilder) -> Symbol:
        return g.cast(g.cast(CASES["plain"][0](g), dtype="f32"), dtype="f8e4m3", name="small")

    assert not any(s.atomics for s in structures(find_region(graph_of(quantized)), h200))


MISTAKES = {
    "no atomic": ("gl.atomic_add(places_of(", "gl.store(places_of("),
    "an atomic within the block": (', sem="relaxed", scope="gpu")', ', sem="relaxed", scope="cta")'),
    "an atomic that is to order others": ('sem="relaxed"', 'sem="acq_rel"'),
    "a place left as it is": ("    gl.store(places, gl.zeros_like(sums))\n", ""),
    "a place that is cleared while it is read": (
        "    thread_barrier()\n    gl.store(places",
        "    gl.store(places",
    ),
    "one place for both consumers": (
        "workspace_ptr + (part // SPLITS * CONSUMERS + index)",
        "workspace_ptr + (part // SPLITS * CONSUMERS)",
    ),
    "a place of each part": (
        "workspace_ptr + (part // SPLITS * CONSUMERS + index)",
        "workspace_ptr + (part % (parts // SPLITS) * CONSUMERS + index)",
    ),
    "one too early": ("== SPLITS - 1", "== SPLITS - 2"),
    "no barrier before the arrival": ("    thread_barrier()\n    last", "    last"),
    "an arrival that acquires nothing": ('sem="acq_rel"', 'sem="release"'),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name: str) -> None:
    right, wrong = MISTAKES[name]
    made = emitted("residual, added")
    assert right in made.source
    source = made.source.replace(right, wrong)
    if name == "no atomic":
        source = source.replace(', sem="relaxed", scope="gpu")', ")")
    assert small_case(made).fault(source, SEEDS) is not None
