"""Loops that compute values: the bound of consumers alone, consumers in turn, and steps of II lose nothing.

Every II in turn, with consumers in any order and at any distance, says what is to be found.
"""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import replace

import pytest
from fewer_structures import search_only
from ortools.sat.python import cp_model
from solve_examples import MARGIN, attention, region, structure

from wsopt.checker import faults, verify
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.conditions import Conditions
from wsopt.program.ids import OpId
from wsopt.program.program import OpKind, TileOp, TileProgram
from wsopt.program.types import Structure
from wsopt.schedule import budget, memory
from wsopt.solve import alone, model
from wsopt.solve.alone import Least, consumers_alone, consumers_interval, least_interval, one_consumer
from wsopt.solve.bound import ii_bounds, ii_lower_bound, infeasible, lower_bound_us
from wsopt.solve.optimum import Outcome, Solved, solve
from wsopt.solve.search import Search
from wsopt.solve.variables import Model

DRAWN = 48
SHARP = 100.0
"""A knee with which units and threads do not add up: what is left to tell apart is the consumers' own."""


def in_k_blocks(consumers: int, depth: int = 64, subtiles: int = 1) -> Structure:
    plain = structure(64, 64, depth, consumers)
    return replace(plain, persistent=False, group=1, subtiles=subtiles)


def drawn_op(op: TileOp, rng: random.Random) -> TileOp:
    """The operation with other costs, such that all of it stays possible: units are held no longer than it runs."""
    busy = rng.randint(8, 150)
    if op.kind is OpKind.TMA_LOAD:
        return replace(op, issue=rng.randint(1, 30), busy=busy // 2, latency=busy + rng.randint(0, 200))
    if op.kind is OpKind.MMA:
        return replace(op, issue=rng.randint(4, busy), busy=busy, latency=busy + rng.randint(0, 90))
    if op.kind is OpKind.RELEASE:
        return replace(op, issue=rng.randint(1, 20), latency=rng.randint(0, 40))
    pipes = tuple((unit, rng.randint(1, busy)) for unit, _ in op.pipes)
    return replace(op, issue=busy, latency=busy, pipes=pipes)


def drawn(seed: int, h200: Machine) -> tuple[TileProgram, Machine]:
    """A loop of small costs, drawn; for some, registers and rings that hold it back."""
    rng = random.Random(seed)
    consumers = rng.choice((1, 2, 2, 2, 2, 3))
    program = lower(attention(), in_k_blocks(consumers), h200)
    costs: dict[OpId, TileOp] = {}
    for op in program.ops:  # consumers run one program
        costs.setdefault(replace(op.id, instance=None), drawn_op(op, rng))
    cost = {op.id: costs[replace(op.id, instance=None)] for op in program.ops}
    ops = tuple(
        replace(op, issue=c.issue, busy=c.busy, latency=c.latency, pipes=c.pipes)
        for op, c in ((op, cost[op.id]) for op in program.ops)
    )
    room = budget.consumer_registers(program.structure, h200) - MARGIN - program.accumulator_registers
    wide = rng.choice((room, room // 2, room // 3))
    live = tuple(
        replace(tile, registers=rng.randint(wide // 2, wide))
        for tile in program.live[: len(program.live) // consumers]
    )
    live = tuple(
        replace(tile, registers=live[i % len(live)].registers) for i, tile in enumerate(program.live)
    )
    program = replace(program, ops=ops, live=live)
    slots = rng.choice((1, 2, 3, 6))
    least = budget.least_buffers(program)
    room = memory.shared_memory(program, slots, least)
    return program, replace(h200, shared_memory_per_block_bytes=room, consumer_knee=SHARP)


@functools.cache
def bounded(seed: int, h200: Machine) -> tuple[TileProgram, Machine, int, Solved]:
    """What is drawn, the consumers' bound of its II, and its optimum; the one loader is given."""
    program, machine = drawn(seed, h200)
    program = replace(program, conditions=Conditions(loaders=1))
    return program, machine, consumers_interval(program, machine, MARGIN), solve(program, machine, MARGIN)


def any_order(m: Model) -> None:
    """Consumers may come in any order, at any distance."""


def least_of_all(program: TileProgram, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """The least II by asking for every one, consumers in any order and at any distance; None if none."""
    low, most = ii_bounds(program, machine)
    for ii in range(low, most + 1, 16):
        with monkeypatch.context() as patch:
            patch.setattr(model, "consumers_in_turn", any_order)
            m = model.build(program, machine, MARGIN, (ii, ii))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        status = solver.solve(m.cp)
        assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        if status == cp_model.OPTIMAL:
            return ii
    return None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DRAWN))
def test_no_bound_exceeds_the_optimum_and_the_optimum_is_found(
    seed: int, h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, machine, bound, found = bounded(seed, h200)
    wanted = least_of_all(program, machine, monkeypatch)
    low, most = ii_bounds(program, machine)
    if wanted is None:
        assert found.outcome is Outcome.INFEASIBLE
        return
    assert bound <= wanted
    assert found.outcome is Outcome.OPTIMAL
    assert found.schedule is not None
    assert found.schedule.ii == wanted
    verify(found.schedule, program, machine, MARGIN)
    us = found.schedule.prediction.microseconds
    assert lower_bound_us(program, machine, bound) <= us + 1e-9
    assert low <= wanted <= most


@pytest.mark.slow
def test_what_is_drawn_has_all_that_there_is_to_tell_apart(h200: Machine) -> None:
    """Among the programs drawn the bound says more than units do, and less than is needed, each for many."""
    above, reached, missed = 0, 0, 0
    for seed in range(DRAWN):
        program, machine, bound, found = bounded(seed, h200)
        units, schedule = ii_lower_bound(program, machine), found.schedule
        above += bound > units
        reached += schedule is not None and bound > units and schedule.ii == bound
        missed += schedule is None or schedule.ii > max(bound, units)
    assert above >= 10
    assert reached >= 5
    assert missed >= 5


def test_consumers_alone_are_the_same_for_structures_that_differ_after_the_loop(h200: Machine) -> None:
    one, two = (lower(attention(), in_k_blocks(2, subtiles=subtiles), h200) for subtiles in (1, 2))
    assert one != two
    assert consumers_alone(one) == consumers_alone(two)
    other = lower(attention(), in_k_blocks(2, depth=128), h200)
    assert consumers_alone(one) != consumers_alone(other)


def test_consumers_alone_are_all_but_the_copies(h200: Machine) -> None:
    program = lower(attention(), in_k_blocks(2), h200)
    alone_ops = {op.id for op in consumers_alone(program).ops}
    rest = {op.kind for op in program.ops if op.id not in alone_ops}
    assert rest == {OpKind.TMA_LOAD}
    assert consumers_alone(program).rings == ()
    assert {op.consumer for op in one_consumer(consumers_alone(program)).ops} == {0}


def test_plain_products_have_no_such_bound(h200: Machine) -> None:
    program = lower(region(2048, 2048, 512), structure(64, 128, 64, 2), h200)
    assert consumers_interval(program, h200, MARGIN) == 0


def test_a_bound_that_is_not_decided_is_what_is_proved(
    h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, machine = next(
        (p, m)
        for p, m in (drawn(seed, h200) for seed in itertools.count())
        if consumers_interval(p, m, MARGIN) > ii_lower_bound(consumers_alone(p), m)
    )
    alone._least.cache_clear()
    monkeypatch.setattr(alone, "_LIMIT", 0.0)
    assert consumers_interval(program, machine, MARGIN) == ii_lower_bound(consumers_alone(program), machine)
    alone._least.cache_clear()


@pytest.mark.parametrize("seed", range(12))
def test_a_schedule_stands_at_a_larger_interval_where_it_is_said_to(seed: int, h200: Machine) -> None:
    rng = random.Random(seed)
    f8 = rng.random() < 0.3
    shape = region(2048, 2048, 512, "f8e4m3" if f8 else "bf16", residual=not f8 and rng.random() < 0.4)
    program = lower(shape, structure(64, rng.choice((64, 128)), 64, rng.choice((1, 2, 3))), h200)
    if seed % 3 == 0:
        program, h200 = next(
            (p, m)
            for p, m in (drawn(s, h200) for s in itertools.count(seed * 7))
            if p.structure.consumers == 1
        )
    assert model.stretches(program)
    schedule = solve(program, h200, MARGIN).schedule
    assert schedule is not None
    for more in (1, 7, schedule.ii):
        longer = replace(schedule, ii=schedule.ii + more)
        wrong = faults(longer, program, h200, MARGIN)
        assert [fault for fault in wrong if not fault.startswith("predicted")] == []


def test_consumers_that_run_one_program_are_not_said_to_stretch(h200: Machine) -> None:
    assert not model.stretches(lower(attention(), in_k_blocks(2), h200))
    assert model.stretches(lower(attention(), in_k_blocks(1), h200))


@pytest.mark.parametrize("steady", [True, False])
def test_the_least_interval_is_found_with_few_questions(steady: bool) -> None:
    for seed in range(2000):
        rng = random.Random(seed)
        unit, low = rng.choice((1, 3, 16)), rng.randint(1, 50)
        most = low + unit * rng.randint(0, 120)
        first = low + unit * rng.randint(0, 123)
        later = {ii: steady or rng.random() < 0.5 for ii in range(first + unit, most + 1, unit)}
        asked: list[int] = []

        def probe(
            ii: int, asked: list[int] = asked, first: int = first, later: dict[int, bool] = later
        ) -> bool:
            asked.append(ii)
            return ii == first or later.get(ii, False)

        found = least_interval(probe, low, most, unit, steady=steady)
        assert found == Least(min(first, most + unit), first <= most)
        assert len(set(asked)) == len(asked)
        assert all(low <= ii <= most and (ii - low) % unit == 0 for ii in asked)
        assert not steady or len(asked) <= 15


def test_an_interval_that_is_not_decided_ends_the_search() -> None:
    assert least_interval(lambda ii: None, 5, 50, 1, steady=True) == Least(5, False)
    assert least_interval(lambda ii: False if ii < 8 else None, 5, 50, 1, steady=False) == Least(8, False)
    # A longer one was found already, but the least is not known.
    answers = {5: False, 7: True}
    assert least_interval(answers.get, 5, 50, 1, steady=True) == Least(6, False)


@pytest.mark.solver
def test_the_search_drops_by_the_consumers_bound_what_units_let_pass(
    h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    h200 = replace(h200, consumer_knee=SHARP)
    shape = attention(128)
    some = [
        replace(in_k_blocks(1, depth, subtiles), rows=rows, columns=128)
        for rows, depth, subtiles in ((64, 64, 1), (64, 128, 1), (128, 64, 1), (128, 64, 2))
    ]
    programs = [lower(shape, s, h200) for s in some]
    fits = [p for p in programs if not infeasible(p, h200, MARGIN)]
    search_only(monkeypatch, (p.structure for p in fits))
    best, certificate = Search(shape, h200, MARGIN).run()
    times = {}
    for program in fits:
        schedule = solve(program, h200, MARGIN).schedule
        assert schedule is not None
        times[program.structure] = schedule.prediction.microseconds
    us = best.schedule.prediction.microseconds
    assert us == min(times.values())
    assert certificate.status == "optimal"
    assert certificate.considered == certificate.pruned + certificate.solved
    better = [p for p in fits if lower_bound_us(p, h200) < us]
    assert certificate.solved < len(better)
    for runner in certificate.runners_up:
        assert us <= runner.microseconds <= times[runner.structure] + 1e-9
