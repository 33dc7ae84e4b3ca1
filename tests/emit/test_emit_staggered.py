"""Kernels of which every other block begins later, and what the checker and the simulation say of them."""

from __future__ import annotations

import dataclasses
import functools
import re

import pytest
import row_graphs
from emit_builds import MARGIN, SEEDS, Emitted, build, case, graph_of, h200
from emit_checks import check_machine_code
from tile_graphs import region_of

from wsopt.checker import faults
from wsopt.lowering.structures import structures
from wsopt.program.changed import changed
from wsopt.program.types import Sharing, Structure

TOGETHER = Structure(
    1, 4096, 1, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1,
    retained=5, in_registers=4, stored_by_threads=True,
)  # fmt: skip
STAGGERED = changed(TOGETHER, staggered=True)


@functools.cache
def emitted(s: Structure) -> Emitted:
    return build(graph_of(row_graphs.long_softmax), s, 60)


def test_computes_and_every_line_is_run() -> None:
    made = emitted(STAGGERED)
    assert case(made.graph).fault(made.source, SEEDS) is None


def test_every_other_block_lets_a_quarter_of_its_rows_time_pass() -> None:
    made = emitted(STAGGERED)
    (late,) = re.findall(r"LATER_NS = gl\.constexpr\((\d+)\)", made.source)
    parts = 2 * made.verified.program.grid.column_tiles
    row = h200().seconds(parts * made.verified.schedule.ii)
    assert int(late) == pytest.approx(0.25 * row * 1e9, abs=1)
    assert "if gl.program_id(0) % 2 == 1:" in made.source


def test_blocks_that_begin_together_have_no_timer() -> None:
    source = emitted(TOGETHER).source
    assert "globaltimer" not in source
    assert "LATER_NS" not in source
    assert "globaltimer" in emitted(STAGGERED).source


@pytest.mark.compiler
def test_machine_code_is_what_was_asked_for() -> None:
    check_machine_code(emitted(STAGGERED))


def test_structures_that_keep_parts_are_there_both_ways() -> None:
    found = {*structures(region_of(row_graphs.long_softmax), h200())}
    kept = {s for s in found if s.retained}
    staggered = {s for s in found if s.staggered}
    assert staggered
    assert staggered < kept
    assert {changed(s, staggered=False) for s in staggered} == kept - staggered


def test_the_checker_wants_parts_that_stay() -> None:
    made = emitted(TOGETHER)
    s = changed(TOGETHER, retained=0, in_registers=0, staggered=True)
    program = dataclasses.replace(made.verified.program, structure=s)
    schedule = dataclasses.replace(made.verified.schedule, structure=s)
    told = "blocks are staggered, and no part of a row stays in ring from one pass to the next"
    assert told in faults(schedule, program, h200(), MARGIN)
