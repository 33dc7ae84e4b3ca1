"""Kernels that carry reductions over rows from tile to tile, and mistakes in them are found."""

from __future__ import annotations

import functools

import numpy as np
import over_rows_graphs as graphs
import pytest
from emit_builds import SEEDS, Body, Emitted, build, case, graph_of
from emit_checks import check_machine_code
from emit_mutants import Place, survivors
from row_builds import structure

from wsopt.emit.integers import PYTHON
from wsopt.emit.recipe_of import launch_recipe
from wsopt.emit.source import emit
from wsopt.emit.stamps import Trace
from wsopt.errors import LoweringError
from wsopt.graph.reference import random_inputs
from wsopt.interpret import Mutant, execute
from wsopt.program.types import Structure

MANY = 13
"""Blocks of one consumer whose parts are more than a bundle of an H200's."""


CUTS: dict[str, tuple[Body, Structure]] = {
    "norm": (graphs.norm_backward, structure(2, 512)),
    "two consumers": (graphs.norm_backward, structure(1, 512, 2)),
    "eight warps": (graphs.norm_backward, structure(4, 512, 1, 8)),
    "centred": (graphs.centred_backward, structure(2, 1024)),
    "columns": (graphs.gated_bias, structure(4, 512)),
    "saved": (graphs.saved_backward, structure(4, 512, 1, 8)),
    "few columns": (functools.partial(graphs.gated_bias, columns=64), structure(32, 64)),
    "columns of two": (graphs.gated_bias, structure(2, 256, 2)),
    "extremes": (graphs.extremes, structure(2, 512)),
}


@functools.cache
def emitted(name: str, kib: int = 227) -> Emitted:
    body, s = CUTS[name]
    return build(graph_of(body), s, kib)


def made_columns(name: str) -> int:
    """Tiles of columns of a kernel."""
    return emitted(name).verified.program.grid.column_tiles


@pytest.mark.slow
@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("processors", [2, 3 * MANY])
def test_computes(name: str, processors: int) -> None:
    made = emitted(name)
    assert case(made.graph, processors).fault(made.source, SEEDS) is None


@pytest.mark.compiler
@pytest.mark.parametrize("name", CUTS)
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    made = emitted(name)
    check_machine_code(made)


def test_the_bits_depend_on_no_order() -> None:
    made = emitted("two consumers")
    inputs = random_inputs(made.graph, 0)
    runs = (
        execute(made.source, inputs, seed=seed, processors=9, constants=made.graph.constants)
        for seed in range(4)
    )
    first, *others = (run.outputs["dweight"].tobytes() for run in runs)
    assert all(other == first for other in others)


def test_parts_come_in_bundles_of_about_as_many() -> None:
    one, two = emitted("norm"), emitted("two consumers")
    assert "BUNDLE_PARTS = gl.constexpr(12)" in one.source
    assert "BUNDLE_PARTS = gl.constexpr(17)" in two.source


def consumer_text(name: str) -> str:
    """The consumer's function of a kernel."""
    return emitted(name).source.split("def consumer")[1].split("def kernel")[0]


def test_what_is_zero_beyond_the_end_needs_no_choice_and_others_do() -> None:
    assert "gl.where" not in consumer_text("norm")
    assert consumer_text("extremes").count("gl.where(gl.expand_dims(") == 3
    assert "= rows < row_extent" in consumer_text("extremes")


def test_workspaces_are_for_every_part_and_bundle_of_all_columns() -> None:
    places, counters = launch_recipe(emitted("columns").verified).workspaces
    assert (places.zeroed, counters.zeroed) == (False, True)
    parts = PYTHON(places.elements)
    assert parts == "(column_blocks + triton.cdiv(column_blocks, 7)) * 512 * column_tiles"
    assert PYTHON(counters.elements) == "(triton.cdiv(column_blocks, 7) + 1) * column_tiles"


def test_blocks_take_tiles_of_the_same_columns() -> None:
    names = dict(launch_recipe(emitted("columns").verified).names)
    assert PYTHON(names["column_blocks"]) == "max(min(processors // column_tiles, row_tiles), 1)"
    assert PYTHON(names["blocks"]) == "column_blocks * column_tiles"


def test_rows_that_hold_infinities_do_not_touch_other_columns() -> None:
    made = emitted("norm")
    inputs = random_inputs(made.graph, 0)
    inputs["dy"][3, 7] = np.inf
    found = execute(made.source, inputs, seed=1, processors=3, constants=made.graph.constants).outputs
    wrong = ~np.isfinite(found["dweight"].astype(np.float32))
    assert wrong[7]
    assert wrong.sum() == 1


def test_a_trace_is_refused_with_the_remedy() -> None:
    verified = emitted("norm").verified
    assert "stamp" not in emit(verified)
    with pytest.raises(LoweringError, match="trace a build of the graph without those outputs"):
        emit(verified, Trace())


# --- mistakes -------------------------------------------------------------------------------------------

KINDS = {
    "tile-alone", "lost-tile", "start", "count", "other-place", "shared-place", "drop-thread_barrier", "late-barrier",
    "relaxed-atomic", "release-atomic", "acquire-atomic", "cta-atomic", "plain-counter", "arrival", "last-arrival",
    "reset", "drop-row-store", "rows",
}  # fmt: skip
"""Kinds of mutants, less the sign of a shift."""
SMALL = 64
"""KiB of shared memory with which rings are short enough for a few tiles to go round."""
MUTATED = ("norm", "columns of two", "extremes")


def place_of(source: str, mutant: Mutant) -> Place:
    return mutant.kind, source.splitlines()[mutant.line - 1].strip()


EACH = "for first in range(1, count, PARTS_TOGETHER):"
TOGETHER = "for one in gl.static_range(PARTS_TOGETHER):"
ONE_MORE = {("count+1", EACH): 1}
"""A load beyond the count is masked."""
EQUIVALENT: dict[str, dict[Place, int]] = {
    "norm": ONE_MORE,
    # a bundle's parts are loaded together, however many
    "columns of two": {
        ("count+1", EACH): 2,
        ("count-1", EACH): 1,
        ("count+1", TOGETHER): 1,
        ("count-1", TOGETHER): 1,
    },
    # of maxima one may count twice
    "extremes": {("count+1", EACH): 2, ("count-1", EACH): 1, ("count+1", TOGETHER): 1},
}


def is_own(mutant: Mutant) -> bool:
    """Whether a mistake is one of what is carried, of parts, of arrivals, or of rows beyond the end."""
    return mutant.kind.removesuffix("1").rstrip("+-") in KINDS


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATED)
def test_mistakes_are_found(name: str) -> None:
    made = emitted(name, SMALL)
    blocks = (MANY * made_columns(name), 40, 1)
    cases = [case(made.graph, processors) for processors in blocks]
    found = survivors(cases, made.source, place_of, EQUIVALENT[name], is_own)
    assert found == EQUIVALENT[name]
