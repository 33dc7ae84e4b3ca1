"""Iterations outside the steady state of a loop, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from schedule_examples import region, structure

from wsopt.machine import Machine
from wsopt.perf import timing
from wsopt.perf.effective_ii import Line, Ramps, effective_ii, ramps
from wsopt.perf.epilogue import Epilogues
from wsopt.perf.price import lower
from wsopt.program.epilogue import EpilogueCost
from wsopt.program.program import TileProgram
from wsopt.program.types import Sharing

RAMPS = Ramps(slots=2, product=10, ahead=30, least=50, last_ahead=20, last=40)
COST = EpilogueCost(alone=700, together=700, staged_bytes=1024, input_bytes=0, registers=16, stores=1)


def test_lines_add_up() -> None:
    line = Line(2.0, 30.0).plus(Line(1.0, 5.0), 3)
    assert line == Line(5.0, 45.0)
    assert line.at(10) == 95


def test_a_full_ring_feeds_as_many_iterations_as_it_has_slots() -> None:
    # A product, an iteration that no slot holds up, and six that wait for slots.
    assert RAMPS.loop(8) == Line(6.0, 10 + 30)
    assert RAMPS.loop(8).at(50) == 340
    assert replace(RAMPS, slots=1).loop(8) == Line(7.0, 10)
    assert RAMPS.loop(2) == replace(RAMPS, slots=9).loop(2) == Line(0.0, 10 + 30)
    assert RAMPS.loop(1) == Line(0.0, 10)
    # A last K-block that ends early, and two K-blocks an iteration of which there is a slot for one.
    assert RAMPS.loop(1.5) == Line(0.0, 10 + 15)
    assert replace(RAMPS, slots=0.5).loop(8) == Line(7.5, 5)


def test_the_tail_wave_has_shorter_iterations() -> None:
    assert RAMPS.loop(8, last=True) == Line(6.0, 10 + 20 - 6 * 10)
    assert RAMPS.held_to(50) == RAMPS.held_to(60) == RAMPS
    # Not where the interval is below what the ring allows.
    assert RAMPS.held_to(49).loop(8, last=True) == Line(6.0, 10 + 20)


def toy(machine: Machine, sharing: Sharing = Sharing.COOPERATIVE, *, persistent: bool = True) -> TileProgram:
    cut = replace(structure(64, 128, 64, 2, sharing), persistent=persistent)
    return replace(lower(region(2048, 2048, 512), cut, machine), k_iterations=10, epilogue=COST)


def cycles(program: TileProgram, machine: Machine, ii: float, ramp: Ramps) -> float:
    fixed = replace(
        timing.fixed_parts(program, machine),
        waves=3,
        start=1000,
        fill=1000,
        tail=500,
        handover=100,
        contended=0,
    )
    return timing.time_of(program, fixed, machine, Epilogues(700, 700), ramp).at(ii)


@pytest.mark.parametrize(
    ("ii", "wanted"),
    [
        # Loops of 40 + 8 * 50, 500 and 400; two of three epilogues have 2 * (50 - 10) hidden.
        (50, 2000 + 440 + 500 + 400 + 700 + 2 * (700 - 80) + 500),
        # 2 * (500 - 10) hides all of an epilogue but the last.
        (500, 2000 + 4040 + 5000 + 4900 + 700 + 500),
    ],
)
def test_a_loader_gets_ahead_in_an_epilogue(h200: Machine, ii: int, wanted: int) -> None:
    assert cycles(toy(h200), h200, ii, RAMPS) == wanted


def test_every_block_of_one_tile_begins_with_an_empty_ring(h200: Machine) -> None:
    once = 1000 + 1000 + 700 + h200.block_turnover_cycles
    found = cycles(toy(h200, persistent=False), h200, 50, RAMPS)
    assert found == pytest.approx(3 * once + 2 * (40 + 8 * 50) + (30 + 8 * 40))


def test_consumers_in_ping_pong_have_one_loop_after_the_other(h200: Machine) -> None:
    program = toy(h200, Sharing.PING_PONG)
    loops = 40 + 8 * 500 + 10 * 500 + 10 * 490
    assert cycles(program, h200, 500, RAMPS) == 2000 + loops + 3 * 100 + 700 + 500
    # With 50 a loop is shorter than an epilogue: two consumers share 600 + 700, three times.
    loops = 40 + 8 * 50 + 10 * 50 + 10 * 40
    late = (600 + 700) / 2 - 600
    assert cycles(program, h200, 50, RAMPS) == 2000 + loops + 3 * (100 + late) + 700 + 500


def test_what_a_ring_and_its_paths_allow(h200: Machine) -> None:
    # 144 tiles are one wave of 132 and one of 12. They stand in one row, and a GPC's path is what holds copies up.
    program = lower(region(128, 144 * 128, 512), replace(structure(64, 128, 64, 2), group=1), h200)
    assert program.tiles == 144
    one, two, many = (ramps(program, h200, slots) for slots in (1, 2, 40))
    assert [ramp.least for ramp in (one, two, many)] == [
        effective_ii(program, h200, slots) for slots in (1, 2, 40)
    ]
    assert [ramp.slots for ramp in (one, two, many)] == [1, 2, 40]
    assert one.product == two.product == 512
    for ramp in (one, two, many):
        assert ramp.product <= ramp.last <= ramp.least
        assert ramp.product <= ramp.last_ahead <= ramp.ahead <= ramp.least
    assert one.last < one.least
    # What needs no slot back is as fast with any ring, but for the clock.
    assert one.ahead == pytest.approx(many.ahead, rel=0.05)
    assert ramps(program, h200, 0) == one
