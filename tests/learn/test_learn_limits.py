"""Learning the margin: schedules with fewer registers, the least of them without a spill, and the loop's record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fewer_structures import one_of

from wsopt import candidates, learn
from wsopt.candidates import Asked, Contest, ask
from wsopt.emit.source import emit
from wsopt.errors import CheckError, InfeasibleError, WsoptError
from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder
from wsopt.machine import Machine, load_machine
from wsopt.report.text import inspect_text
from wsopt.schedule import budget
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.search import Search, live_set


@pytest.fixture(scope="module")
def h200() -> Machine:
    return load_machine("h200")


@pytest.fixture(scope="module", autouse=True)
def fewer_structures() -> Iterator[None]:
    with one_of(5):
        yield


@pytest.fixture(scope="module")
def region() -> Region:
    g = GraphBuilder("small")
    p = g.matmul(g.input("x", (512, 256), "bf16"), g.input("w", (512, 256), "bf16"), transpose_b=True)
    g.output(g.cast(p, dtype="bf16", name="y"))
    return find_region(g.build())


@pytest.fixture(scope="module")
def best(region: Region, h200: Machine) -> VerifiedSchedule:
    return Search(region, h200).run()[0]


@pytest.mark.solver
@pytest.mark.parametrize("limit", [80, 96, 160, 200, 208, 240])
def test_what_consumers_give_up_goes_to_the_loader(best: VerifiedSchedule, limit: int) -> None:
    schedule, machine = learn.limited(best, limit).schedule, best.machine
    total = 0
    for p in schedule.partitions:
        assert p.registers % 8 == 0
        assert p.registers >= budget.HELPER_REGISTERS
        if p.role is PartitionRole.CONSUMER:
            assert p.registers == limit
        total += p.registers * budget.warpgroup_warps(p.warps, machine)
    assert schedule.base_registers <= best.schedule.base_registers
    warps = sum(budget.warpgroup_warps(p.warps, machine) for p in schedule.partitions)
    assert total == schedule.base_registers * warps  # what trading leaves is what there was
    assert schedule.base_registers * warps * 32 <= machine.registers_per_sm


@pytest.mark.solver
def test_the_least_limit_by_bisection(best: VerifiedSchedule, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def pretend(source: str, verified: VerifiedSchedule) -> Asked:
        limit = verified.schedule.partitions[0].registers
        tried.append(limit)
        return Asked(verified, None, "" if limit >= 136 else "spills")

    monkeypatch.setattr(learn, "ask", pretend)
    monkeypatch.setattr(learn, "emit", lambda verified: "")
    assert learn.least_limit(Asked(best, None, "")) == 136
    assert len(tried) <= 6
    assert learn.least_limit(Asked(best, None, "spills")) == 248  # not even with all that it can have


@pytest.mark.solver
def test_ptxas_agrees_with_the_limit(best: VerifiedSchedule) -> None:
    asked = ask(emit(best), best)
    assert asked.complaint == ""
    assert asked.compiled is not None
    consumers = best.schedule.structure.consumers
    assert len(asked.compiled.tensor_registers) == consumers
    assert len(asked.compiled.copy_registers) == 1
    assert max(asked.compiled.tensor_registers) > best.program.accumulator_registers
    least = learn.least_limit(asked)
    below = learn.limited(best, least - 8)
    assert ask(emit(below), below).complaint


def test_tight_ones_differ_in_what_lives_in_registers(region: Region, h200: Machine) -> None:
    found = list(learn.tightest(region, h200))
    assert len({live_set(one.program) for one in found}) == len(found) == 2
    slack = [
        budget.consumer_registers(one.schedule.structure, h200) - budget.needed_registers(one.program, 0)
        for one in found
    ]
    assert slack == sorted(slack)


@pytest.mark.solver
def test_a_spill_drops_all_with_the_same_live_set(
    region: Region, h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: list[VerifiedSchedule] = []

    def pretend(source: str, verified: VerifiedSchedule) -> Asked:
        first.append(verified)
        asked = ask(source, verified)
        if len(first) > 1 or asked.compiled is None:
            return asked
        return Asked(verified, replace(asked.compiled, spill_loads=3), "spills: 3 loads and 0 stores")

    monkeypatch.setattr(candidates, "ask", pretend)
    contest = Contest(region, h200)
    (found,) = contest.run()
    assert (contest.rounds, len(contest.asked), len(contest.rejected)) == (2, 2, 1)
    spilled = first[0].schedule.structure
    assert live_set(found.verified.program) != live_set(first[0].program)
    assert dict(found.certificate.infeasible)["ptxas"] > 1
    (told,) = found.certificate.rejected
    assert (told.structure, told.why) == (spilled, "spills: 3 loads and 0 stores")
    assert told.microseconds == first[0].schedule.prediction.microseconds
    shown = inspect_text(found.verified, found.certificate)
    assert "Solved, and rejected by the compiler or the simulation:" in shown
    assert "us by the model; spills: 3 loads and 0 stores" in " ".join(shown.split())


@pytest.mark.solver
@pytest.mark.parametrize(
    ("compiles", "error", "told"),
    [(True, InfeasibleError, "thread's registers, so make the graph two"), (False, CheckError, ": too hard")],
)
def test_a_graph_of_which_every_kernel_is_rejected(
    compiles: bool,
    error: type[WsoptError],
    told: str,
    region: Region,
    best: VerifiedSchedule,
    h200: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spills are the graph's doing, and it is refused; a kernel that does not compile is a fault of the emitter."""
    compiled = ask(emit(best), best).compiled
    assert compiled is not None
    spilled = replace(compiled, spill_loads=3) if compiles else None
    monkeypatch.setattr(candidates, "ask", lambda source, verified: Asked(verified, spilled, "too hard"))
    monkeypatch.setattr(candidates, "_LAST_ROUND", 2)
    monkeypatch.setattr(candidates, "_ORACLE_ROUNDS", 2)
    with pytest.raises(error, match=told) as found:
        Contest(region, h200, deadline=0.0).run()
    assert type(found.value) is error
    assert "rejects each of the 2 best schedules" in str(found.value)
