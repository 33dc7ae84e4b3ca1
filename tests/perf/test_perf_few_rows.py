"""Few long rows: each is one block's, which goes through its parts one after the other."""

from __future__ import annotations

import pytest
from tile_graphs import region_of

from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.perf.row_timing import in_rounds
from wsopt.program.program import TileProgram
from wsopt.solve.bound import lower_bound_us

PARTS, PASSES = 32, 2


def softmax(rows: int, machine: Machine) -> TileProgram:
    """A softmax of rows of 32 parts of 4096 columns, eight blocks an SM."""
    region = region_of(
        lambda g: g.cast(g.softmax(g.input("x", (rows, PARTS * 4096), "bf16")), dtype="bf16", name="y")
    )
    found = (
        s for s in structures(region, machine) if (s.occupancy, s.columns, s.consumer_warps) == (8, 4096, 4)
    )
    return lower(region, next(found), machine)


def test_a_row_takes_its_parts_one_after_the_other(h200: Machine) -> None:
    all_blocks = 8 * h200.sm_count
    few, whole, more, twice = (
        in_rounds(softmax(n, h200), h200) for n in (1, all_blocks, all_blocks + 1, 2 * all_blocks)
    )
    assert few.base > PARTS * PASSES * h200.latency.tma_load_l2
    assert few.slope == whole.slope == 0.0
    assert few.base < whole.base  # as many blocks of an SM compute one after the other
    assert more.base == few.base
    assert twice.base == whole.base


def test_all_rounds_but_the_last_take_their_share_of_the_interval(h200: Machine) -> None:
    all_blocks = 8 * h200.sm_count
    for rows in (all_blocks + 1, 2 * all_blocks):
        program = softmax(rows, h200)
        share = program.tiles / h200.sm_count
        assert in_rounds(program, h200).slope == pytest.approx(share * all_blocks / rows)


def test_a_round_of_few_blocks_costs_more_than_its_share(h200: Machine) -> None:
    """One row more than all blocks have takes the time of all of its parts, one fewer hardly less."""
    all_blocks = 8 * h200.sm_count
    fewer, as_many, more = (lower_bound_us(softmax(all_blocks + n, h200), h200) for n in (-1, 0, 1))
    assert fewer == pytest.approx(as_many, rel=0.01)
    assert more > 1.1 * as_many


def test_few_rows_are_bound_by_that(h200: Machine) -> None:
    one, eight = (lower_bound_us(softmax(n, h200), h200) for n in (1, 8))
    cycles = in_rounds(softmax(1, h200), h200).base
    assert one >= h200.seconds(cycles) * 1e6
    assert eight == pytest.approx(one, rel=0.05)


def test_with_many_rows_the_bytes_count(h200: Machine) -> None:
    program = softmax(16384, h200)
    assert h200.seconds(in_rounds(program, h200).base) * 1e6 < 0.2 * lower_bound_us(program, h200)
