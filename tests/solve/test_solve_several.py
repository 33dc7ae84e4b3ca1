"""The k best schedules: in order, different, none missed, each with its bound, and the first as with k = 1."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product

import pytest
from fewer_structures import search_only
from ortools.sat.python import cp_model
from solve_examples import MARGIN, Times, gated, hand_made, region, structure

from wsopt.checker import verify
from wsopt.frontend.types import Region
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.program import TileProgram
from wsopt.program.types import Structure
from wsopt.schedule.types import Schedule
from wsopt.solve import orders, search
from wsopt.solve.bound import infeasible
from wsopt.solve.model import build
from wsopt.solve.optimum import Outcome, Solved, solve
from wsopt.solve.search import Search

REGIONS = {
    "plain": region(2048, 2048, 512),
    "gated": gated(1024, 2048, 256),
    "residual": region(1024, 1024, 128, residual=True),
}
SMALL = Times(load=(4, 6, 20), mma=(5, 16, 24), release=(2, 0, 3))


def order(schedule: Schedule) -> tuple[tuple[str, str, int], ...]:
    """Each partition's operations in the order in which its thread meets them, with their stages."""
    return tuple((p.partition, p.op, p.stage) for one in schedule.partitions for p in schedule.of(one.name))


def every_order(program: TileProgram, machine: Machine) -> Iterator[Schedule]:
    """The best schedule, then the best of another order than all before it, to the end."""
    found: list[Schedule] = []
    while (schedule := solve(program, machine, MARGIN, *found).schedule) is not None:
        yield schedule
        found.append(schedule)


def count_orders(program: TileProgram, machine: Machine) -> int:
    """How many orders have a schedule: asked for each distance, in whole II, of every two operations."""
    threads = [[op.id for op in program.loop if op.consumer == c] for c in (None, 0)]
    pairs = [pair for names in threads for pair in combinations(names, 2)]
    count = 0
    for distances in product(range(-3, 12), repeat=len(pairs)):
        m = build(program, machine, MARGIN)
        for (a, b), d in zip(pairs, distances, strict=True):
            m.cp.add(m.start[b] - m.start[a] >= d * m.ii)
            m.cp.add(m.start[b] - m.start[a] < (d + 1) * m.ii)
        count += cp_model.CpSolver().solve(m.cp) == cp_model.OPTIMAL
    return count


@pytest.mark.slow
def test_every_order_is_found_once(h200: Machine) -> None:
    program = hand_made(SMALL, h200)
    found = list(every_order(program, h200))
    assert len({order(schedule) for schedule in found}) == len(found) > 2
    assert len(found) == count_orders(program, h200)
    times = [schedule.prediction.microseconds for schedule in found]
    assert times == sorted(times)
    for schedule in found:
        verify(schedule, program, h200, MARGIN)


def test_a_schedule_moved_without_passing_is_no_other_one(h200: Machine) -> None:
    program = hand_made(SMALL, h200)
    first, second, *_ = every_order(program, h200)
    for fixed, outcome in ((first, cp_model.INFEASIBLE), (second, cp_model.OPTIMAL)):
        m = build(program, h200, MARGIN)
        orders.ask_for_another(m, first)
        m.cp.add(m.ii == fixed.ii + 1)
        for placed in fixed.placed:
            one = program.named(placed.op).id
            m.cp.add(m.stage[one] == placed.stage)
            m.cp.add(m.cycle[one] == placed.cycle)
        assert cp_model.CpSolver().solve(m.cp) == outcome


@functools.cache
def fitting(of: Region, machine: Machine) -> tuple[Structure, ...]:
    """Structures whose models are solved in a blink, and that no budget rules out."""
    every = structures(of, machine)
    small = [s for s in every if s.copies == 1 and s.depth <= 64 and s.tile_rows <= 192 and s.columns <= 128]
    return tuple(s for s in small if not infeasible(lower(of, s, machine), machine, MARGIN))


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch, h200: Machine, request: pytest.FixtureRequest) -> Region:
    """A region of which the search sees a few structures."""
    found: Region = REGIONS[request.param]
    chosen = tuple(random.Random(3).sample(fitting(found, h200), 9))
    search_only(monkeypatch, chosen)
    return found


@pytest.mark.solver
@pytest.mark.parametrize(
    ("narrow", "orders"), [("plain", 2), ("residual", 1), ("gated", 1)], indirect=["narrow"]
)
def test_none_is_missed(narrow: Region, orders: int, h200: Machine) -> None:
    ranked = Search(narrow, h200, MARGIN, keep=6, orders=orders).run_all()
    everything = []
    for one in search.structures(narrow, h200):
        found: list[Schedule] = []
        for _ in range(orders):
            schedule = solve(lower(narrow, one, h200), h200, MARGIN, *found).schedule
            if schedule is not None:
                found.append(schedule)
        everything += [schedule.prediction.microseconds for schedule in found]
    times = [verified.schedule.prediction.microseconds for verified, _ in ranked]
    assert times == sorted(everything)[:6]
    assert [c.rank for _, c in ranked] == [1, 2, 3, 4, 5, 6]
    assert [c.rank_bound_us for _, c in ranked] == times
    assert {c.bound_us for _, c in ranked} == {times[0]}
    assert [c.gap for _, c in ranked] == [pytest.approx((t - times[0]) / t) for t in times]
    assert len({(v.schedule.structure, order(v.schedule)) for v, _ in ranked}) == 6


@pytest.mark.solver
@pytest.mark.parametrize("narrow", ["plain", "residual"], indirect=True)
def test_the_first_is_the_same_however_many_are_kept(narrow: Region, h200: Machine) -> None:
    best, alone = Search(narrow, h200, MARGIN).run()
    solutions: search.Solutions = {}
    for _ in range(2):  # the second time from what the first has solved
        ranked = Search(narrow, h200, MARGIN, keep=5, orders=2, solutions=solutions).run_all()
        assert ranked[0][0].schedule == best.schedule
        assert (ranked[0][1].bound_us, ranked[0][1].status) == (alone.bound_us, "optimal")
        for _, certificate in ranked:
            counts = sum(count for _, count in certificate.infeasible)
            assert certificate.considered == certificate.pruned + counts + certificate.solved


@pytest.mark.solver
@pytest.mark.parametrize("narrow", ["plain"], indirect=True)
def test_a_structure_left_open_lowers_the_bounds_of_later_ranks(
    narrow: Region, h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked = Search(narrow, h200, MARGIN, keep=4).run_all()
    stopped = ranked[1][0].schedule.structure

    def stopping(program: TileProgram, machine: Machine, margin: int, *found: Schedule) -> Solved:
        solved = solve(program, machine, margin, *found)
        if program.structure != stopped:
            return solved
        return replace(solved, outcome=Outcome.UNKNOWN, schedule=None)

    monkeypatch.setattr(search, "solve", stopping)
    again = Search(narrow, h200, MARGIN, keep=4).run_all()
    for verified, certificate in again:
        assert certificate.unfinished == 1
        assert certificate.rank_bound_us <= min(
            verified.schedule.prediction.microseconds, ranked[1][0].schedule.prediction.microseconds
        )


@pytest.mark.solver
def test_fewer_than_asked_for(h200: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    search_only(monkeypatch, [structure(64, 64, 64, 1)])
    ranked = Search(REGIONS["plain"], h200, MARGIN, keep=9).run_all()
    assert len(ranked) == 1
    assert ranked[0][1].rank_bound_us < math.inf
