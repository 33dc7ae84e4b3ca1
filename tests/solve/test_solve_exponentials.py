"""The solver chooses how much of exp2 takes the polynomial, by costs alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from solve_examples import MARGIN, attention

from wsopt.lowering.exponentials import exp2_eighths
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.machine.frozen import FrozenMap
from wsopt.program.program import OpKind, TileProgram, Unit
from wsopt.solve.search import Ranked, Search
from wsopt.targets import HOPPER, TARGETS

REGION = attention()


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hopper with shares up to a half."""
    monkeypatch.setitem(TARGETS, "sm_90", replace(HOPPER, exp2_eighths=(0, 1, 2, 3, 4)))


def with_rates(machine: Machine, **rates: float) -> Machine:
    """A card on which an SM does so many instructions of a kind a cycle."""
    given = {name: FrozenMap({**getattr(machine, name), **rates}) for name in ("scalar", "scalar_alone")}
    return replace(machine, **given)


def searched(machine: Machine) -> Ranked:
    return Search(REGION, machine, MARGIN).run()


def pipe(program: TileProgram, unit: Unit) -> int:
    """Cycles an iteration in which arithmetic holds a unit."""
    work = (op for op in program.loop if op.kind is OpKind.ELEMENTWISE)
    return sum(cycles for op in work for held, cycles in op.held if held == unit)


@pytest.mark.solver
@pytest.mark.usefixtures("offered")
def test_a_slow_pipe_gives_exponentials_away(h200: Machine) -> None:
    slow = with_rates(h200, exp2=4.0)
    best, _ = searched(slow)
    share = best.schedule.structure.exp2_eighths
    assert share > 1
    assert best.schedule.structure.describe().endswith(f"{share}/8 of exp2 by a polynomial")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TARGETS, "sm_90", HOPPER)
        without, _ = searched(slow)
    assert without.schedule.structure.exp2_eighths == 0
    assert best.schedule.prediction.microseconds < 0.9 * without.schedule.prediction.microseconds
    moved = {unit: pipe(best.program, unit) for unit in (Unit.MUFU, Unit.FMA)}
    per_element = (
        best.schedule.structure.rows * best.schedule.structure.depth * best.schedule.structure.consumers
    )
    assert moved[Unit.MUFU] == pytest.approx(per_element * (1 - share / 8) / 4, abs=8)
    assert moved[Unit.FMA] > per_element * share / 8 * 9 / h200.scalar["fma"]


@pytest.mark.solver
@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize(
    ("rates", "considered"),
    [({"exp2": 64.0}, False), ({"exp2": 8.0, "fma": 8.0}, True)],
    ids=["fast", "no slower"],
)
def test_a_pipe_that_is_not_in_the_way_keeps_them(
    rates: dict[str, float], considered: bool, h200: Machine
) -> None:
    """Shares are not in the space where another unit is busier, and lose where the FMA pipe is no better."""
    machine = with_rates(h200, **rates)
    best, _ = searched(machine)
    assert best.schedule.structure.exp2_eighths == 0
    assert any(one.exp2_eighths for one in structures(REGION, machine)) is considered


@pytest.mark.usefixtures("offered")
def test_shares_are_those_that_may_pay(h200: Machine) -> None:
    """Each only where the pipe is the busiest unit without it, products of wide heads for one."""
    assert exp2_eighths(REGION, 64, with_rates(h200, exp2=4.0)) == (0, 1, 2, 3, 4)
    assert exp2_eighths(REGION, 64, h200) == (0, 1)
    assert exp2_eighths(attention(128), 128, h200) == (0,)
    assert exp2_eighths(REGION, 64, with_rates(h200, exp2=64.0)) == (0,)


def test_hopper_offers_no_shares_by_default(h200: Machine) -> None:
    assert TARGETS["sm_90"].exp2_eighths == (0,)
    assert exp2_eighths(REGION, 64, with_rates(h200, exp2=1.0)) == (0,)
