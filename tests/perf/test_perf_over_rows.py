"""The price of reductions over all rows: registers of what is carried, shared memory, and the end of a block."""

from __future__ import annotations

import over_rows_graphs as graphs
import pytest
import row_graphs
from emit_builds import h200
from tile_graphs import region_of

from wsopt.perf.over_rows import end_cycles, left_bytes, parts_of
from wsopt.perf.paths import waves_of
from wsopt.perf.price import lower
from wsopt.perf.timing import fixed_parts
from wsopt.program.over_rows import bundle_parts, parts_together
from wsopt.program.program import TileProgram
from wsopt.program.types import Sharing, Structure


def lowered(
    rows: int, columns: int, consumers: int = 1, warps: int = 4, body: object = graphs.norm_backward
) -> TileProgram:
    s = Structure(rows, columns, 1, consumers, warps, Sharing.COOPERATIVE, True, False, 1, 1)
    return lower(region_of(lambda g: body(g, 16384, 4096)), s, h200())  # type: ignore[operator]


def test_what_is_carried_is_in_registers_through_the_loop() -> None:
    one, two = lowered(1, 4096), lowered(2, 4096, warps=8, body=graphs.centred_backward)
    assert (
        one.accumulator_registers == 32 + 2
    )  # an element of the tile a thread, and two reductions of its row
    assert (
        two.accumulator_registers == 2 * 16 + 2 * 4
    )  # a thread has both rows of its columns, carried as one
    apart = lowered(8, 64, body=graphs.gated_bias)  # too few columns: rows lie in warps of their own
    assert apart.accumulator_registers == 8 * 64 // 128


def test_warps_that_hold_other_rows_exchange_theirs() -> None:
    assert lowered(1, 4096).over_rows_bytes == 0
    assert lowered(4, 4096, warps=8).over_rows_bytes == 0  # warps lie along the columns
    assert lowered(16, 64, warps=4, body=graphs.gated_bias).over_rows_bytes == 4 * 64 * 4


def test_a_block_ends_later_the_more_it_leaves() -> None:
    machine = h200()
    one, two = lowered(1, 4096, 1, 8), lowered(1, 4096, 2, 8)
    assert (parts_of(one, machine), parts_of(two, machine)) == (132, 264)
    assert (bundle_parts(one, machine), bundle_parts(two, machine)) == (12, 17)
    assert left_bytes(one, machine) == (132 + 11) * 4096 * 4
    assert 0 < end_cycles(one, machine) < end_cycles(two, machine)
    assert fixed_parts(one, machine).tail == machine.latency.tma_store + end_cycles(one, machine)


def test_nothing_is_left_where_nothing_is_carried() -> None:
    region = region_of(row_graphs.softmax)
    program = lower(region, Structure(2, 512, 1, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1), h200())
    assert (end_cycles(program, h200()), left_bytes(program, h200()), program.over_rows_bytes) == (0, 0, 0)


def test_blocks_have_tiles_of_the_same_columns() -> None:
    program = lowered(2, 512, body=graphs.gated_bias)
    assert program.grid.column_tiles == 8
    assert parts_of(program, h200()) == 132 // 8
    assert waves_of(program, h200()) == -(-8192 // (132 // 8))


@pytest.mark.parametrize(
    ("columns", "registers", "together"), [(32, 240, 4), (16, 240, 8), (16, 112, 2), (64, 112, 1)]
)
def test_as_many_loads_go_together_as_registers_hold(columns: int, registers: int, together: int) -> None:
    assert parts_together(columns, registers) == together
