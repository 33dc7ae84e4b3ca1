"""Constants that are copied before the kernel before has ended, and loops of several blocks of an SM."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tile_graphs import plain, region_of

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.machine import Machine
from wsopt.perf.ahead import slots_ahead
from wsopt.perf.contention import contended_interval, held_cycles, issue_cycles
from wsopt.perf.effective_ii import path_cycles, ramps
from wsopt.perf.price import lower
from wsopt.perf.timing import fixed_parts, predict
from wsopt.program.program import TileProgram, Unit
from wsopt.program.types import Sharing, Structure
from wsopt.schedule.budget import least_buffers
from wsopt.schedule.types import Prediction

ONE = Structure(64, 64, 64, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1)
TWO = replace(ONE, occupancy=2)


def streamed(machine: Machine, rows: int, columns: int, *, constant: bool = True) -> TileProgram:
    """A product of rows by weights that are constant, on a machine."""

    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (rows, 4096), "bf16"), g.input("w", (columns, 4096), "bf16", constant=constant)
        return g.cast(g.matmul(x, w, transpose_b=True), "bf16", name="y")

    return lower(region_of(body), ONE, machine)


def predicted(program: TileProgram, machine: Machine, sm_us: float, dram_us: float) -> Prediction:
    found = predict(program, machine, 1000, least_buffers(program), (8,))
    return replace(found, sm_us=sm_us, dram_us=dram_us)


def test_where_device_memory_binds_a_whole_ring_is_filled(h200: Machine) -> None:
    program = streamed(h200, 64, 8192)
    assert slots_ahead(program, h200, predicted(program, h200, 10.0, 12.0), 11) == 11


def test_where_it_hardly_binds_as_much_is_filled_as_consumers_have_time_for(h200: Machine) -> None:
    program = streamed(h200, 64, 8192)
    found = [slots_ahead(program, h200, predicted(program, h200, 10.0, us), 32) for us in (10.0, 10.5, 11.0)]
    each = 0.5e-6 * h200.dram_read_bandwidth / 2**20  # of slots of 1 MiB
    assert found == [round((4 + more) * each) for more in (0, 1, 2)]
    assert found[0] < found[1] < found[2] < 32


def test_where_consumers_bind_no_more_than_comes_until_they_may_begin(h200: Machine) -> None:
    program = streamed(h200, 64, 8192)
    # 128 tiles, each with 64 x 64 weights of 2 bytes in a slot, are 1 MiB.
    until = 2e-6 * h200.dram_read_bandwidth / 2**20
    found = slots_ahead(program, h200, predicted(program, h200, 12.0, 10.0), 11)
    assert found == round(until) < 11
    assert slots_ahead(program, h200, predicted(program, h200, 12.0, 10.0), 3) == 3


def test_what_many_tiles_read_comes_once(h200: Machine) -> None:
    program = streamed(h200, 4096, 64)  # 64 tiles, all of which have the same weights: 8 KiB a slot
    assert slots_ahead(program, h200, predicted(program, h200, 12.0, 10.0), 32) == 32


@pytest.mark.parametrize("constant", [True, False])
def test_no_constants_no_limit(h200: Machine, constant: bool) -> None:
    program = streamed(h200, 64, 8192, constant=constant)
    found = slots_ahead(program, h200, predicted(program, h200, 12.0, 10.0), 11)
    assert (found < 11) is constant


def promoted(s: Structure, machine: Machine) -> TileProgram:
    return lower(plain(64, 8192, 4096, "f8e4m3"), s, machine)


def test_blocks_of_an_sm_share_its_units_and_no_thread(h200: Machine) -> None:
    one, two = promoted(ONE, h200), promoted(TWO, h200)
    assert held_cycles(one)[Unit.TENSOR] == held_cycles(two)[Unit.TENSOR]
    least = max(2 * max(held_cycles(two).values()), *issue_cycles(two).values())
    assert least <= contended_interval(two, h200) < 2 * contended_interval(one, h200)


def test_blocks_of_an_sm_share_its_way_from_l2(h200: Machine) -> None:
    one, two = promoted(ONE, h200), promoted(TWO, h200)
    assert one.demand is not None
    assert two.demand is not None
    clock = h200.sustained_clock_mhz
    assert path_cycles(two.demand, h200, clock) > 1.5 * path_cycles(one.demand, h200, clock)


def test_the_next_kernel_begins_in_the_room_that_a_block_leaves(h200: Machine) -> None:
    one, two = promoted(ONE, h200), promoted(TWO, h200)
    assert fixed_parts(one, h200).start == h200.block_start_cycles
    assert fixed_parts(two, h200).start == 0


def test_free_slots_make_no_iteration_shorter_than_its_roles_take(h200: Machine) -> None:
    program = promoted(TWO, h200)
    found = ramps(program, h200, 8)
    assert found is not None
    contended = contended_interval(program, h200)
    assert contended > 0
    assert min(found.ahead, found.last_ahead) >= contended
    assert found.last >= min(found.least, contended)
