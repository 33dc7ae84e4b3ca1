"""Kernels whose second pass over rows ends with parts that stayed in registers, and mistakes in them are found."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter

import pytest
import row_graphs
from emit_builds import MARGIN, SEEDS, Body, Emitted, build, case, check_shows, graph_of, h200
from emit_checks import check_machine_code
from emit_mutants import survives
from tile_graphs import region_of

from wsopt.checker import faults
from wsopt.interpret import mutants
from wsopt.lowering.structures import structures
from wsopt.perf.price import lower
from wsopt.program.types import Sharing, Structure


def structure(retained: int, kept: int, consumers: int = 1, *, by_threads: bool = False) -> Structure:
    return Structure(
        1, 4096, 1, consumers, 4, Sharing.COOPERATIVE, True, False, 1, 1,
        retained=retained, in_registers=kept, stored_by_threads=by_threads,
    )  # fmt: skip


@functools.cache
def emitted(body: Body, kib: int, s: Structure) -> Emitted:
    return build(graph_of(body), s, kib)


CUTS: dict[str, tuple[Body, int, Structure]] = {
    "all of a row": (row_graphs.long_softmax, 75, structure(6, 3)),
    "some are copied again": (row_graphs.long_softmax, 60, structure(3, 2)),
    "one of each": (row_graphs.long_softmax, 49, structure(1, 1)),
    "two tensors, two consumers": (row_graphs.long_norm, 227, structure(4, 2, 2)),
    "stored by threads": (row_graphs.long_softmax, 60, structure(5, 4, by_threads=True)),
    "two tensors, stored by threads": (row_graphs.long_norm, 227, structure(4, 1, 2, by_threads=True)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CUTS)
def test_computes(name: str) -> None:
    made = emitted(*CUTS[name])
    assert case(made.graph).fault(made.source, SEEDS) is None


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["all of a row", "stored by threads"])
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    check_machine_code(emitted(*CUTS[name]))


def test_what_stays_is_copied_once() -> None:
    every, some = (emitted(*CUTS[name]).source for name in ("all of a row", "some are copied again"))
    assert every.count("for part in range(ROW_PARTS):") == 1, "the loading warp's"
    assert every.count("for part in range(IN_REGISTERS, ROW_PARTS):") == 2
    assert "for number in range(2 * ROW_PARTS - RETAINED - IN_REGISTERS):" in some
    assert "for number in range(ROW_PARTS - IN_REGISTERS):" in some
    assert every.count("for part in gl.static_range(IN_REGISTERS):") == 2


def test_it_takes_registers_and_no_second_copy() -> None:
    region = region_of(lambda g: row_graphs.long_softmax(g, 128256))
    none, some = (lower(region, structure(8, kept), h200()) for kept in (0, 3))
    # A thread of 128 has 32 of a part's 4,096 elements of 16 bits.
    assert some.accumulator_registers - none.accumulator_registers == 3 * 16
    again = [one.dram_bytes - region.compulsory_bytes for one in (none, some)]
    assert again[1] == pytest.approx(again[0] * 21 / 24, abs=1)


def test_structures_keep_what_is_left_of_a_row_or_what_a_thread_can_hold() -> None:
    region = region_of(row_graphs.long_softmax)
    kept = {
        (s.columns, s.retained, s.in_registers)
        for s in structures(region, h200())
        if s.tile_rows == 1 and s.consumer_warps == 4 and not s.stored_by_threads
    }
    assert {(4096, 8, 0), (4096, 8, 1)} <= kept
    assert (4096, 0, 1) not in kept
    assert (4096, 9, 0) in kept, "all are in the ring"
    wide = structures(region_of(lambda g: row_graphs.long_softmax(g, 128256)), h200())
    held = {s.in_registers for s in wide if s.columns == 4096 and s.rows == 1 and s.consumer_warps == 4}
    assert max(held) == 96 // 16


def test_the_checker_wants_them_beside_a_ring_and_in_the_row() -> None:
    made = emitted(*CUTS["some are copied again"])
    for s, told in (
        (structure(0, 2), "2 parts of rows stay in registers, 0 in ring; rows have 9"),
        (structure(3, 7), "7 parts of rows stay in registers, 3 in ring; rows have 9"),
    ):
        program = dataclasses.replace(made.verified.program, structure=s)
        schedule = dataclasses.replace(made.verified.schedule, structure=s)
        assert told in faults(schedule, program, h200(), MARGIN)


FAULTS = {
    "for part in range(IN_REGISTERS, ROW_PARTS):": "for part in range(IN_REGISTERS + 1, ROW_PARTS):",
    "x_value = widen_bf16(x_value_kept[part])": "x_value = widen_bf16(x_value_kept[0])",
    "for number in range(ROW_PARTS - IN_REGISTERS):": "for number in range(ROW_PARTS - IN_REGISTERS - 1):",
    "range(2 * ROW_PARTS - RETAINED - IN_REGISTERS)": "range(2 * ROW_PARTS - RETAINED)",
}


@pytest.mark.parametrize("good", FAULTS)
def test_faults_are_found(good: str) -> None:
    check_shows(emitted(*CUTS["some are copied again"]), good, FAULTS[good], 1)


EQUIVALENT = {"double-wait": 4}
"""A wait that has passed passes again."""


@pytest.mark.slow
def test_every_mutant_is_found() -> None:
    made = emitted(*CUTS["some are copied again"])
    cases = [case(made.graph)]
    assert survives(cases, made.source, SEEDS)
    alive = Counter(one.kind for one in mutants(made.source) if survives(cases, one.source, 3))
    assert alive == EQUIVALENT
