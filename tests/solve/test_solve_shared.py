"""What structures of a search share is what each of them would find alone: loops, work, facts, rooms of bounds."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from solve_shared import CASES, bounded, region_of, structures_of

from wsopt.lowering import loop
from wsopt.lowering import lower as lowering
from wsopt.machine import Machine, load_machine
from wsopt.perf.contention import issue_cycles
from wsopt.perf.epilogue import epilogues
from wsopt.perf.price import lower
from wsopt.program import known
from wsopt.program.known import FACTS, of_loop, of_program
from wsopt.program.program import OpKind, TileProgram
from wsopt.program.types import Sharing
from wsopt.schedule.budget import buffer_options
from wsopt.solve.bound import infeasible, lower_bound_us
from wsopt.solve.limits import touching
from wsopt.solve.search import DEFAULT_MARGIN
from wsopt.solve.worker import uncollected

BY_NAME = {f"{one.__module__}.{one.__qualname__}": one for one in FACTS}
STEP = 7
"""Of what was found for all structures every so-manieth is found again alone."""


def strange(program: TileProgram) -> list[str]:
    """The facts that a program would have found otherwise, had it been the first to ask."""
    found = []
    for where in ("known", "known_of_loop"):
        facts = {key: fact for key, fact in getattr(program, where).items() if isinstance(key, tuple)}
        for (name, *rest), fact in facts.items():
            known._known.cache_clear()
            alone = replace(program)
            if BY_NAME[name].__wrapped__(alone, *rest[0], **dict(rest[1:])) != fact:
                found.append(name)
    return found


@pytest.mark.solver
@pytest.mark.parametrize("case", CASES)
def test_what_a_search_sees_is_what_each_program_is_alone(case: str) -> None:
    search, looks = bounded(case)
    machine, margin = load_machine(CASES[case][1]), DEFAULT_MARGIN
    assert len(looks) > 20
    for structure, look in list(looks.items())[::STEP]:
        known._known.cache_clear()
        program = replace(search.programs[structure])
        reason = infeasible(program, machine, margin)
        assert look.ruled_out == reason
        assert look.limits == touching(program, machine, margin, reason)
        assert reason or look.bound_us == lower_bound_us(program, machine)


@pytest.mark.solver
@pytest.mark.parametrize("case", CASES)
def test_what_is_known_of_a_loop_is_so_for_every_program_that_has_it(case: str) -> None:
    search, looks = bounded(case)
    facts = Counter(id(search.programs[s].known_of_loop) for s in looks)
    assert len(facts) < len(looks) or case == "rows"
    every = [search.programs[s] for s in looks]
    for program in every[::STEP]:
        assert not strange(program), program.structure.describe()


@pytest.mark.parametrize("case", CASES)
def test_structures_with_one_loop_would_each_make_it(case: str) -> None:
    region, machine, every = region_of(case), load_machine(CASES[case][1]), structures_of(case)
    found = set()
    for s in every:
        tiles = lowering.grid_of(region, s).tiles
        shared = loop.loop_of(region, s, machine, tiles)
        found.add(id(shared))
        assert shared == loop._made(region, s, machine, tiles), s.describe()
    assert len(found) < len(every) or case == "rows"


@pytest.mark.parametrize("case", ["values between products", "values in tensor memory"])
def test_structures_that_cut_rows_alike_have_the_same_work(case: str) -> None:
    region, machine = region_of(case), load_machine(CASES[case][1])
    for s in structures_of(case)[::STEP]:
        tiles = lowering.grid_of(region, s).tiles
        own = lowering._work_of.__wrapped__(region, s, machine, tiles)
        assert lowering._work(region, s, machine, tiles) == own, s.describe()


def copied_for(program: TileProgram, cycles: int) -> TileProgram:
    """A program whose products take no time, and whose copies of an iteration hold the path for so many cycles."""
    first = program.of(OpKind.TMA_LOAD)[0]
    busy = {op.id: cycles if op is first else 0 for op in program.ops}
    assert program.demand is not None
    ops = tuple(replace(op, busy=busy[op.id]) for op in program.ops)
    return replace(program, ops=ops, demand=replace(program.demand, tensor=1))


def test_of_copies_an_epilogue_asks_how_long_they_are_the_busiest(h200: Machine) -> None:
    case = "product that reads a tile"
    one = next(s for s in structures_of(case) if s.sharing is Sharing.COOPERATIVE and s.group == 1)
    program = replace(lower(region_of(case), one, h200), k_iterations=1)
    thread = max(issue_cycles(program).values())
    shorter, equal, longer = (copied_for(program, cycles) for cycles in (thread // 2, thread, thread + 8))
    differing = 0
    for buffers in buffer_options(program):
        assert epilogues(shorter, h200, buffers) == epilogues(equal, h200, buffers)
        differing += epilogues(equal, h200, buffers) != epilogues(longer, h200, buffers)
    assert differing


# --- a fault is found -----------------------------------------------------------------------------------


def two(machine: Machine) -> tuple[TileProgram, TileProgram]:
    """Programs with one loop and other epilogues."""
    case = "product that reads a tile"
    first = lower(region_of(case), next(s for s in structures_of(case) if s.subtiles == 1), machine)
    return first, replace(first, structure=replace(first.structure, subtiles=2))


def test_a_fact_that_is_not_the_loops_own_is_found(h200: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def subtiles(program: TileProgram) -> int:
        return program.structure.subtiles

    wrong: Any = of_loop(subtiles)
    FACTS.remove(wrong)
    name = f"{wrong.__module__}.{wrong.__qualname__}"
    monkeypatch.setitem(BY_NAME, name, wrong)
    one, other = two(h200)
    assert one.known_of_loop is other.known_of_loop
    assert wrong(one) == wrong(other) == 1
    assert (strange(one), strange(other)) == ([], [name])


def test_what_is_known_of_a_program_is_no_other_programs(h200: Machine) -> None:
    asked = list[int]()

    def subtiles(program: TileProgram) -> int:
        asked.append(program.structure.subtiles)
        return program.structure.subtiles

    right: Any = of_program(subtiles)
    FACTS.remove(right)
    one, other = two(h200)
    assert [right(one), right(other), right(one), right(replace(one))] == [1, 2, 1, 1]
    assert asked == [1, 2, 1]


def test_a_program_with_other_operations_knows_nothing_of_the_former_ones(h200: Machine) -> None:
    one, _ = two(h200)
    before = one.tensor_columns, len(one.ops)
    longer = replace(one, ops=tuple(replace(op, issue=op.issue + 1) for op in one.ops))
    assert longer.known_of_loop is not one.known_of_loop
    assert (longer.tensor_columns, len(longer.ops)) == before


def test_garbage_is_looked_for_again_behind_a_search() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), uncollected():
        raise KeyError
    assert gc.isenabled()
