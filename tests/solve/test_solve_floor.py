"""The least time that shared memory leaves; and that the tightest order is not looked for at any price."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from solve_examples import MARGIN, attention, structure

from wsopt.machine import Machine
from wsopt.perf import timing
from wsopt.perf.contention import contended_interval
from wsopt.perf.price import lower
from wsopt.program.program import TileProgram
from wsopt.solve import optimum
from wsopt.solve.objective import floor_of_time
from wsopt.solve.optimum import Outcome, solve


@pytest.fixture(scope="module")
def program(h200: Machine) -> TileProgram:
    s = replace(structure(64, 64, 64, 2), persistent=False, group=1)
    return lower(attention(), s, h200)


def test_a_floor_has_the_rings_that_wait_least(program: TileProgram, h200: Machine) -> None:
    assert program.work is not None
    floor = floor_of_time(program, h200)
    roomy = replace(h200, shared_memory_per_block_bytes=10 * h200.shared_memory_per_block_bytes)
    small = replace(h200, shared_memory_per_block_bytes=64 * 1024)
    assert floor_of_time(program, roomy).time <= floor.time <= floor_of_time(program, small).time
    # Rings only make an iteration longer, and no more than rings of one slot do.
    assert (
        contended_interval(program, h200) - 16 < floor.interval <= contended_interval(program, h200, (1, 1))
    )
    assert floor.time >= round(program.work.k_iterations - program.work.tiles) * floor.interval
    nothing = replace(h200, shared_memory_per_block_bytes=1024)
    assert floor_of_time(program, nothing).time == math.inf


def test_no_schedule_is_below_the_floor(program: TileProgram, h200: Machine) -> None:
    found = solve(program, h200, MARGIN)
    assert found.outcome is Outcome.OPTIMAL
    assert found.schedule is not None
    assert found.objective >= floor_of_time(program, h200).time


def test_without_patience_the_time_is_as_good_and_as_proved(
    program: TileProgram, h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tight = solve(program, h200, MARGIN)
    monkeypatch.setattr(optimum, "_TIGHT_LIMIT", -1.0)
    loose = solve(program, h200, MARGIN)
    assert tight.schedule is not None
    assert loose.schedule is not None
    assert loose.outcome is tight.outcome is Outcome.OPTIMAL
    assert loose.objective == tight.objective
    # The order that was not looked for is the only difference.
    assert tight.schedule.ii < loose.schedule.ii <= floor_of_time(program, h200).interval
    slots = [depth for _, depth in loose.schedule.rings]
    same = timing.predict(program, h200, tight.schedule.ii, loose.schedule.buffers, slots)
    # But that the interval of the contention counts in whole steps, where II is that.
    step = program.grain * round(program.work.k_iterations)
    assert 0 <= loose.schedule.prediction.main - same.main < step
