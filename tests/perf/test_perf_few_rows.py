"""Few long rows: each is one block's, which goes through its parts one after the other."""

from __future__ import annotations

import pytest
from tile_graphs import region_of

from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.perf.timing import row_cycles
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
    least = PARTS * PASSES * h200.latency.tma_load_l2
    few, all_blocks, more = (
        row_cycles(softmax(n, h200), h200) for n in (1, 8 * h200.sm_count, 8 * h200.sm_count + 1)
    )
    assert few > least
    assert few == all_blocks
    assert more == 2 * few


def test_few_rows_are_bound_by_that(h200: Machine) -> None:
    one, eight = (lower_bound_us(softmax(n, h200), h200) for n in (1, 8))
    cycles = row_cycles(softmax(1, h200), h200)
    assert one >= h200.seconds(cycles) * 1e6
    assert eight == pytest.approx(one, rel=0.05)


def test_with_many_rows_the_bytes_count(h200: Machine) -> None:
    program = softmax(8192, h200)
    assert h200.seconds(row_cycles(program, h200)) * 1e6 < 0.5 * lower_bound_us(program, h200)
