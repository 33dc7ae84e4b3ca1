"""Kernels of which two blocks work on a tile together: which structures there are, text, machine code, interleavings,
mutants.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import targets_kernels as kernels
from emit_builds import SEEDS, graph_of, small_case
from emit_builds import plain as body
from emit_mutants import SEEDS_UNCOUNTED, survivors
from targets_kernels import BESIDES, CARD, hold_to_golden
from test_targets_product import EQUIVALENT, kind
from tile_graphs import plain as product

from wsopt.codegen import compile_kernel, verdict
from wsopt.emit.recipe_of import launch_recipe
from wsopt.emit.source import emit, expectation
from wsopt.emit.stamps import Trace
from wsopt.errors import LoweringError
from wsopt.export.write import make_export
from wsopt.frontend.region import find_region
from wsopt.lowering import product_structures as subject
from wsopt.lowering.structures import structures
from wsopt.machine import load_machine
from wsopt.perf.price import lower
from wsopt.program.types import Structure
from wsopt.solve.search import Search


@functools.cache
def paired(card: str, release: tuple[int, int] | None, rows: int = 4096) -> tuple[Structure, ...]:
    """The structures of pairs of a product for a card, with a release of Triton."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject, "triton_release", lambda: release)
        found = structures(product(rows, 4096, 4096), load_machine(card))
        return tuple(s for s in found if s.paired)


def test_they_are_in_the_space_where_the_target_and_its_compiler_have_them() -> None:
    assert not paired(CARD, (3, 7))
    assert not paired("h200", (3, 9))
    assert paired(CARD, (3, 8)) == paired(CARD, (4, 0)) == paired(CARD, None) != ()
    assert {s.tile_rows for s in paired(CARD, (3, 8))} == {256, 512}
    assert not paired(CARD, (3, 8), rows=128), "the second block would have no rows"
    assert {s.tile_rows for s in paired(CARD, (3, 8), rows=256)} == {256}


@pytest.mark.solver
def test_each_release_gets_what_is_best_with_it() -> None:
    region = find_region(kernels.graph("router"))
    with pytest.MonkeyPatch.context() as patch:
        found = {}
        for release in ((3, 6), (3, 8)):
            patch.setattr(subject, "triton_release", lambda release=release: release)
            found[release] = Search(region, load_machine(CARD)).run()
    assert [one.program.structure.paired for one, _ in found.values()] == [False, True]
    assert all(certificate.gap == 0 for _, certificate in found.values())
    old, new = (one.schedule.prediction.microseconds for one, _ in found.values())
    assert new < old


def test_a_block_has_half_of_the_columns_operand_and_all_else_as_alone() -> None:
    machine, region = load_machine(CARD), find_region(graph_of(body))
    both = BESIDES["paired"].structure
    pair, alone = (lower(region, s, machine) for s in (both, replace(both, paired=False)))
    (ring,), (whole,) = pair.rings, alone.rings
    assert (ring.slot_bytes, whole.slot_bytes) == (16384 + 8192, 16384 + 16384)
    assert (pair.tiles, pair.grid.tiles) == (alone.tiles, alone.grid.tiles // 2)
    assert pair.tensor_columns == alone.tensor_columns == 128
    assert pair.demand is not None
    assert alone.demand is not None
    assert pair.demand.lines / alone.demand.lines == 0.75
    assert pair.demand.late == 2 * machine.latency.other_block


def test_golden() -> None:
    hold_to_golden("paired", kernels.small("paired").source)


def test_a_launch_has_as_many_programs_as_pairs_fit_the_card() -> None:
    recipe = launch_recipe(kernels.small("paired").verified)
    assert "blocks = min(max(processors // 2, 1), tiles)" in kernels.small("paired").source
    assert [(one.block, one.box) for one in recipe.maps] == [
        ((256, 64), (128, 64)), ((128, 64), (64, 64)), ((256, 64), (128, 64)),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["paired", "paired_two"])
def test_they_are_right_under_every_interleaving(name: str) -> None:
    made = kernels.small(name)
    for k_iterations in BESIDES[name].k_iterations:
        assert small_case(made, k_iterations).fault(made.source, SEEDS) is None


@pytest.mark.compiler
def test_the_compiler_issues_products_of_two_blocks() -> None:
    made = kernels.small("paired")
    compiled = compile_kernel(made.source, architecture="sm_100")
    assert verdict(compiled, expectation(made.verified)) == ()
    assert compiled.tensor_columns == 256


@pytest.mark.slow
def test_every_mutant_is_found() -> None:
    made = kernels.small("paired")
    case = small_case(made, 5)
    assert set(survivors([case], made.source, kind, EQUIVALENT, seeds=SEEDS_UNCOUNTED)) <= EQUIVALENT


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        ("MBarrierLayout([[0]])", "MBarrierLayout([[2]])", "2 parts behind"),
        ("[RING_DEPTH, 2], mbarrier", "[RING_DEPTH, 1], mbarrier", "is not one mbarrier"),
        ("two_ctas=True", "two_ctas=False", "rows of two blocks is needed"),
        ("[0, 1], cga_layout=[[1, 0]]", "[0, 1], cga_layout=[[0, 1]]", "has rows in two blocks"),
        ('"num_ctas": 2', '"num_ctas": 4', "clusters of 4 blocks"),
    ],
)
def test_what_no_pair_can_do_is_told(good: str, bad: str, told: str) -> None:
    made = kernels.small("paired")
    assert good in made.source
    fault = small_case(made, 2).fault(made.source.replace(good, bad), 1)
    assert fault is not None
    assert told in fault


def test_their_stamps_are_refused() -> None:
    with pytest.raises(LoweringError, match="trace a build made with `--under paired=no`"):
        emit(kernels.small("paired").verified, Trace(run=True))


def test_their_export_is_refused() -> None:
    with pytest.raises(LoweringError, match="compile it with `--under paired=no`"):
        make_export(kernels.small("paired").verified)
