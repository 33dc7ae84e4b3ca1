"""Solves of real structures, and the search over them: sound, deterministic, honest about what it left out."""

from __future__ import annotations

import functools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from fewer_structures import one_of, search_only
from solve_examples import MARGIN, gated, region, structure

from wsopt.checker import verify
from wsopt.errors import InfeasibleError, UndecidedError
from wsopt.frontend.types import Region
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.program import TileProgram
from wsopt.program.types import Sharing, Structure
from wsopt.schedule.searched import Ending, read_search, search_text
from wsopt.solve import bound, optimum, search
from wsopt.solve.bound import ii_lower_bound, infeasible, lower_bound_us
from wsopt.solve.optimum import Outcome, Solved, solve
from wsopt.solve.search import Search

Narrow = Callable[[Iterable[Structure]], None]

REGIONS = {
    "plain": region(2048, 2048, 512),
    "ragged": region(1000, 1032, 264),
    "few rows": region(40, 4096, 1024),
    "f8": region(1024, 1024, 512, "f8e4m3"),
    "gated": gated(1024, 2048, 256),
    "residual": region(1024, 1024, 128, residual=True),
}


def quick(s: Structure) -> bool:
    """Structures whose models are solved in a blink."""
    return s.copies == 1 and s.depth <= 64 and s.tile_rows <= 192 and s.columns <= 128


@functools.cache
def fitting(of: Region, machine: Machine) -> tuple[TileProgram, ...]:
    """The tile programs of one order of tiles that no budget rules out."""
    cut = (lower(of, s, machine) for s in structures(of, machine) if s.group == 4 and quick(s))
    return tuple(program for program in cut if not infeasible(program, machine, MARGIN))


def sample(of: Region, machine: Machine, count: int, seed: int) -> list[TileProgram]:
    """Some of them."""
    return random.Random(seed).sample(fitting(of, machine), count)


@pytest.mark.parametrize("name", REGIONS)
def test_every_solved_schedule_passes_the_checker(name: str, h200: Machine) -> None:
    for program in sample(REGIONS[name], h200, 5, seed=5):
        found = solve(program, h200, MARGIN)
        assert found.schedule is not None, program.structure
        verify(found.schedule, program, h200, MARGIN)
        assert found.schedule.ii >= ii_lower_bound(program, h200)
        assert lower_bound_us(program, h200) <= found.schedule.prediction.microseconds + 1e-9


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Narrow:
    """Lets the search see these structures alone."""

    def narrowed(some: Iterable[Structure]) -> None:
        chosen = tuple(some)
        search_only(monkeypatch, chosen)

    return narrowed


@pytest.mark.solver
@pytest.mark.parametrize(("name", "kib"), [("plain", 227), ("residual", 227), ("plain", 80), ("gated", 100)])
def test_pruning_drops_no_better_structure(name: str, kib: int, h200: Machine, narrow: Narrow) -> None:
    # With less shared memory rings are shallow, and bounds are further from what is reached.
    card = replace(h200, shared_memory_per_block_bytes=kib * 1024)
    programs = sample(REGIONS[name], card, 10, seed=11)
    narrow(p.structure for p in programs)
    best, certificate = Search(REGIONS[name], card, MARGIN).run()
    times = {}
    for program in programs:
        schedule = solve(program, card, MARGIN).schedule
        assert schedule is not None
        times[program.structure] = schedule.prediction.microseconds
    assert best.schedule.prediction.microseconds == min(times.values()) == times[best.schedule.structure]
    assert certificate.considered == 10 == certificate.pruned + certificate.solved
    assert (certificate.status, certificate.gap, certificate.bound_us) == (
        "optimal",
        0.0,
        min(times.values()),
    )


@pytest.mark.solver
def test_runners_up_lost(h200: Machine, narrow: Narrow) -> None:
    programs = sample(REGIONS["plain"], h200, 16, seed=11)
    narrow(p.structure for p in programs)
    best, certificate = Search(REGIONS["plain"], h200, MARGIN).run()
    assert len(certificate.runners_up) >= 5
    for runner in certificate.runners_up:
        assert runner.structure != best.schedule.structure
        assert runner.microseconds >= best.schedule.prediction.microseconds
        program = lower(REGIONS["plain"], runner.structure, h200)
        if runner.ii is None:
            assert runner.microseconds == lower_bound_us(program, h200)
        else:
            assert runner.ii >= ii_lower_bound(program, h200)


@pytest.mark.solver
def test_the_same_search_finds_the_same_schedule(h200: Machine, narrow: Narrow) -> None:
    narrow(p.structure for p in sample(REGIONS["ragged"], h200, 12, seed=8))
    first, one = Search(REGIONS["ragged"], h200, MARGIN).run()
    second, two = Search(REGIONS["ragged"], h200, MARGIN).run()
    assert first.schedule == second.schedule
    assert one == two


def test_the_same_model_is_solved_the_same_way(h200: Machine) -> None:
    (program,) = sample(REGIONS["gated"], h200, 1, seed=3)
    assert solve(program, h200, MARGIN).schedule == solve(program, h200, MARGIN).schedule


@pytest.mark.solver
def test_rejected_structures_are_not_taken_again(h200: Machine, narrow: Narrow) -> None:
    programs = sample(REGIONS["plain"], h200, 8, seed=2)
    narrow(p.structure for p in programs)
    best, _ = Search(REGIONS["plain"], h200, MARGIN).run()
    dropped = frozenset({best.schedule.structure})
    second, certificate = Search(REGIONS["plain"], h200, MARGIN, rejected=dropped).run()
    assert second.schedule.structure not in dropped
    assert second.schedule.prediction.microseconds >= best.schedule.prediction.microseconds
    assert dict(certificate.infeasible) == {"ptxas": 1}


# --- what does not fit ----------------------------------------------------------------------------------


@pytest.mark.solver
def test_a_card_with_no_room_for_a_slot_is_named(h200: Machine) -> None:
    tiny = replace(h200, shared_memory_per_block_bytes=4096)
    with (
        one_of(16),
        pytest.raises(InfeasibleError, match=r"graph small: no structure fits; \d+ by shared memory"),
    ):
        Search(REGIONS["few rows"], tiny, MARGIN).run()


@pytest.mark.solver
def test_a_margin_that_leaves_no_registers_is_named(h200: Machine) -> None:
    with one_of(16), pytest.raises(InfeasibleError, match=r"no structure fits; \d+ by registers"):
        Search(REGIONS["few rows"], h200, 240).run()


def test_budgets_are_named_with_their_numbers(h200: Machine) -> None:
    program = lower(REGIONS["plain"], structure(128, 256, 64, 2), h200)
    assert infeasible(program, h200, MARGIN).startswith("registers: a consumer needs ")
    assert infeasible(program, h200, MARGIN).endswith("a thread, it can have 240")
    small = lower(REGIONS["plain"], structure(64, 64, 64, 1), h200)
    tiny = replace(h200, shared_memory_per_block_bytes=20000)
    # A slot of 2 x 64 x 64 bf16, a staged tile, two barriers, the reserve.
    assert infeasible(small, tiny, MARGIN) == "shared memory: 25616 bytes, a block has 20000"
    assert infeasible(small, h200, MARGIN) == ""


def test_too_many_warps_are_named(h200: Machine) -> None:
    program = lower(REGIONS["plain"], structure(64, 64, 64, 3), h200)
    assert (
        infeasible(program, replace(h200, max_warps_per_block=12), MARGIN)
        == "warps: 16, a block has at most 12"
    )


def shallow(h200: Machine) -> tuple[TileProgram, Machine]:
    """A program whose bound is not reached: two slots live long, for a fence, and the three copies take ping_pong."""
    slow = replace(h200, latency=replace(h200.latency, fence=1500.0))
    program = lower(REGIONS["plain"], replace(structure(64, 128, 64, 2), early_release=False), slow)
    return program, replace(slow, shared_memory_per_block_bytes=2 * 32768 + 2 * 16384 + 32 + 1024)


def test_infeasible_is_told_from_unknown(h200: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    program, small = shallow(h200)
    found = solve(program, small, MARGIN)
    assert found.outcome is Outcome.OPTIMAL
    assert found.schedule is not None
    assert found.schedule.ii > ii_lower_bound(program, small)
    with monkeypatch.context() as patch:
        patch.setattr(bound, "II_SLACK", 1)
        nothing = solve(program, small, MARGIN)
    assert (nothing.outcome, nothing.schedule) == (Outcome.INFEASIBLE, None)
    monkeypatch.setattr(optimum, "_DETERMINISTIC_LIMIT", 0.0)
    monkeypatch.setattr(optimum, "_STEP_LIMIT", 0.0)
    stopped = solve(program, small, MARGIN)
    assert (stopped.outcome, stopped.schedule) == (Outcome.UNKNOWN, None)
    assert stopped.reason == "the work limit was reached"


def test_a_ring_that_does_not_fit_is_infeasible(h200: Machine) -> None:
    program = lower(REGIONS["plain"], structure(64, 64, 64, 1), h200)
    found = solve(program, replace(h200, shared_memory_per_block_bytes=20000), MARGIN)
    assert (found.outcome, found.schedule) == (Outcome.INFEASIBLE, None)
    assert found.reason == "shared memory: 25616 bytes, a block has 20000"


@pytest.mark.solver
def test_a_search_left_open_is_told_from_an_infeasible_one(
    h200: Machine, narrow: Narrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitting = [p.structure for p in sample(REGIONS["plain"], h200, 3, seed=4)]
    narrow([*fitting, structure(128, 256, 64, 2)])
    monkeypatch.setattr(optimum, "_DETERMINISTIC_LIMIT", 0.0)
    monkeypatch.setattr(optimum, "_STEP_LIMIT", 0.0)
    with pytest.raises(UndecidedError) as raised:
        Search(REGIONS["plain"], h200, MARGIN).run()
    assert str(raised.value) == (
        "graph small: no schedule was found, but the work limit left 3 of 4 structures open, so one may exist; "
        "the others do not fit: 1 by registers"
    )


@pytest.mark.solver
def test_the_search_counts_what_has_no_schedule(
    h200: Machine, narrow: Narrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, small = shallow(h200)
    narrow([program.structure])
    monkeypatch.setattr(bound, "II_SLACK", 1)
    with pytest.raises(InfeasibleError, match="1 by schedule"):
        Search(REGIONS["plain"], small, MARGIN).run()


@pytest.mark.solver
def test_an_unfinished_structure_leaves_a_gap(
    h200: Machine, narrow: Narrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = sample(REGIONS["plain"], h200, 6, seed=4)
    narrow(p.structure for p in programs)
    order = sorted(programs, key=lambda p: lower_bound_us(p, h200))
    first = order[0].structure

    def stopping(program: TileProgram, machine: Machine, margin: int) -> Solved:
        found = solve(program, machine, margin)
        if program.structure != first:
            return found
        return replace(found, outcome=Outcome.UNKNOWN, schedule=None)

    monkeypatch.setattr(search, "solve", stopping)
    best, certificate = Search(REGIONS["plain"], h200, MARGIN).run()
    assert best.schedule.structure != first
    assert (certificate.unfinished, certificate.status) == (1, "feasible")
    assert certificate.bound_us == lower_bound_us(order[0], h200)
    us = best.schedule.prediction.microseconds
    assert certificate.gap == pytest.approx((us - certificate.bound_us) / us)


@pytest.mark.solver
def test_a_deadline_keeps_what_was_found(h200: Machine, narrow: Narrow) -> None:
    programs = sample(REGIONS["few rows"], h200, 6, seed=4)
    narrow(p.structure for p in programs)
    cut_short = Search(REGIONS["few rows"], h200, MARGIN, deadline=-math.inf)
    _, certificate = cut_short.run()
    assert certificate.solved == 1
    endings = Counter(one.ending for one in cut_short.searched())
    assert endings[Ending.SOLVED] == 1
    assert endings[Ending.OPEN] + endings[Ending.PRUNED] == 5
    assert certificate.solved + certificate.pruned + certificate.unfinished == 6
    assert certificate.bound_us <= min(r.microseconds for r in certificate.runners_up)


@pytest.mark.solver
def test_what_became_of_every_structure_is_what_the_certificate_counts(h200: Machine, narrow: Narrow) -> None:
    narrow((structure(64, 128, 64, 2), structure(64, 64, 64, 1), structure(128, 256, 64, 2)))
    one = Search(REGIONS["residual"], h200, MARGIN)
    best, certificate = one.run()
    found = one.searched()
    assert len({entry.structure for entry in found}) == len(found) == certificate.considered == 3
    endings = Counter(entry.ending for entry in found)
    assert endings[Ending.SOLVED] == certificate.solved
    assert endings[Ending.PRUNED] == certificate.pruned
    assert endings[Ending.INFEASIBLE] == sum(count for _, count in certificate.infeasible) > 0
    (winner,) = (entry for entry in found if entry.structure == best.schedule.structure)
    us = best.schedule.prediction.microseconds
    assert (winner.ending, winner.microseconds, winner.ii) == (Ending.SOLVED, us, best.schedule.ii)
    for entry in found:
        if entry.ending is Ending.PRUNED:
            assert entry.bound_us is not None
            assert entry.bound_us >= us - 1e-9
        if entry.ending is Ending.INFEASIBLE:
            assert entry.reason
    data = read_search(search_text(found))
    columns = {column["name"]: column for column in data["columns"]}
    assert data["count"] == 3
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    read = [columns["ending"]["values"][digits.index(one)] for one in columns["ending"]["places"]]
    assert read == [entry.ending for entry in found]


def test_consumers_in_ping_pong_hide_their_epilogues(h200: Machine) -> None:
    large = region(4096, 4096, 512)
    cooperative, ping_pong = (
        solve(lower(large, structure(height, 128, 64, 2, sharing), h200), h200, MARGIN).schedule
        for height, sharing in ((64, Sharing.COOPERATIVE), (128, Sharing.PING_PONG))
    )
    assert cooperative is not None
    assert ping_pong is not None
    assert ping_pong.prediction.epilogue < cooperative.prediction.epilogue / 2
