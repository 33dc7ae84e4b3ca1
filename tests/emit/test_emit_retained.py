"""Kernels whose second pass over rows begins with parts that stayed in the ring, and mistakes in them are found."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter

import pytest
import row_graphs
from emit_builds import MARGIN, SEEDS, Body, Emitted, build, case, graph_of, h200
from emit_checks import check_machine_code
from emit_mutants import survives
from tile_graphs import region_of

from wsopt.checker import faults, verify
from wsopt.emit.source import emit
from wsopt.frontend.region import find_region
from wsopt.interpret import mutants
from wsopt.lowering.structures import structures
from wsopt.perf.effective_ii import bytes_on_the_way
from wsopt.perf.price import lower
from wsopt.program.conditions import Conditions
from wsopt.program.types import Sharing, Structure
from wsopt.solve.bound import infeasible
from wsopt.solve.optimum import solve


def structure(retained: int, columns: int = 4096, consumers: int = 1) -> Structure:
    return Structure(1, columns, 1, consumers, 4, Sharing.COOPERATIVE, True, False, 1, 1, retained=retained)


@functools.cache
def emitted(body: Body, retained: int, kib: int, columns: int = 4096, consumers: int = 1) -> Emitted:
    return build(graph_of(body), structure(retained, columns, consumers), kib)


CUTS: tuple[tuple[Body, int, int, int, int], ...] = (
    (row_graphs.long_softmax, 1, 49, 4096, 1),
    (row_graphs.long_softmax, 3, 60, 4096, 1),
    (row_graphs.long_softmax, 5, 60, 4096, 1),  # a slot more than stay
    (row_graphs.long_softmax, 9, 227, 4096, 1),  # all parts
    (row_graphs.long_norm, 6, 227, 4096, 2),
)


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: f"{cut[0].__name__}-{cut[1]}")
def test_computes(cut: tuple[Body, int, int, int, int]) -> None:
    made = emitted(*cut)
    assert made.depth >= cut[1]
    assert case(made.graph).fault(made.source, SEEDS) is None


@pytest.mark.compiler
def test_machine_code_is_what_was_asked_for() -> None:
    made = emitted(row_graphs.long_softmax, 3, 60)
    check_machine_code(made)


def test_only_what_did_not_stay_is_copied_again() -> None:
    some, every = emitted(row_graphs.long_softmax, 3, 60), emitted(row_graphs.long_softmax, 9, 227)
    assert "for number in range(2 * ROW_PARTS - RETAINED):" in some.source
    kept = "if part < ROW_PARTS - RETAINED:", "fence_async_shared()", "mbarrier.arrive(ring_empty"
    assert f"\n{16 * ' '}".join(kept) in some.source
    assert every.source.count("for part in range(ROW_PARTS):") == 3
    assert every.source.count("mbarrier.arrive(ring_empty") == 1


def test_what_stays_is_not_read_again() -> None:
    region = region_of(lambda g: row_graphs.long_softmax(g, 128256))
    none, some, most = (lower(region, structure(parts), h200()) for parts in (0, 8, 24))
    again = [one.dram_bytes - region.compulsory_bytes for one in (none, some, most)]
    assert again[1] == pytest.approx(again[0] * 24 / 32, abs=1)
    assert again[2] == pytest.approx(again[0] * 8 / 32, abs=1)
    # Each of 8 slots holds a part while 8 of 64 are treated.
    assert [bytes_on_the_way(one, 8) for one in (none, some)] == [8 * 8192, 7 * 8192]


def test_structures_retain_what_fits_where_there_are_two_passes() -> None:
    kept = {
        (s.columns, s.retained)
        for s in structures(region_of(row_graphs.long_softmax), h200())
        if s.tile_rows == 1
    }
    assert {(4096, 0), (4096, 8), (4096, 9), (2048, 18)} <= kept
    assert (4096, 10) not in kept
    once = structures(region_of(row_graphs.long_logsumexp), h200())
    assert {s.retained for s in once} == {0}


def test_the_checker_wants_a_slot_for_every_part() -> None:
    made = emitted(row_graphs.long_softmax, 3, 60)
    program = dataclasses.replace(made.verified.program, structure=structure(made.depth + 1))
    schedule = dataclasses.replace(made.verified.schedule, structure=program.structure)
    told = faults(schedule, program, h200(), MARGIN)
    assert f"ring has {made.depth} slots, {made.depth + 1} parts of rows stay in it" in told
    program = dataclasses.replace(program, structure=structure(10))
    told = faults(dataclasses.replace(schedule, structure=program.structure), program, h200(), MARGIN)
    assert "10 parts of rows stay in ring; rows have 9, and two passes keep some" in told


def test_more_than_shared_memory_holds_is_infeasible() -> None:
    small = dataclasses.replace(h200(), shared_memory_per_block_bytes=60 * 1024)
    program = lower(find_region(graph_of(row_graphs.long_softmax)), structure(7), small)
    assert infeasible(program, small, MARGIN).startswith("shared memory: ")
    asked = dataclasses.replace(program, conditions=Conditions(slots=(("ring", 3),)))
    assert (
        infeasible(asked, small, MARGIN) == "rings: 7 parts of rows are retained, so as many slots at least"
    )


def test_two_staging_buffers_in_turns() -> None:
    small = dataclasses.replace(h200(), shared_memory_per_block_bytes=60 * 1024)
    graph = graph_of(row_graphs.long_softmax)
    program = lower(find_region(graph), structure(3), small)
    program = dataclasses.replace(program, conditions=Conditions(buffers=(("staging", 2),)))
    solved = solve(program, small, MARGIN)
    assert solved.schedule is not None, solved.reason
    source = emit(verify(solved.schedule, program, small, MARGIN))
    assert case(graph).fault(source, SEEDS) is None


EQUIVALENT = {"double-wait": 3}
"""A wait that has passed passes again."""


@pytest.mark.slow
@pytest.mark.parametrize("retained", [2, 3])
def test_every_mutant_is_found(retained: int) -> None:
    made = emitted(row_graphs.long_softmax, retained, 49)
    cases = [case(made.graph)]
    assert survives(cases, made.source, SEEDS)
    alive = Counter(one.kind for one in mutants(made.source) if survives(cases, one.source, 3))
    assert alive == EQUIVALENT
