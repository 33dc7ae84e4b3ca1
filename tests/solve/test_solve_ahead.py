"""Searching on while the compiler works: the same answers as one after the other, and no work that nobody wants."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest
from attention_graphs import attention
from ortools.sat.python import cp_model

from wsopt import candidates
from wsopt.candidates import Asked, Contest
from wsopt.codegen.aot import CompiledKernel
from wsopt.frontend.region import find_region
from wsopt.machine.types import Machine
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve import worker
from wsopt.solve.search import Search

KERNEL = CompiledKernel.__dataclass_fields__


def answer(verified: VerifiedSchedule, *, spills: bool) -> Asked:
    numbers: dict[str, Any] = {name: 0 for name, one in KERNEL.items() if one.type == "int"}
    rest: dict[str, Any] = {name: () for name, one in KERNEL.items() if one.type != "int"}
    kernel = CompiledKernel(**(rest | numbers | {"seconds": 0.0, "spill_loads": int(spills)}))
    return Asked(verified, kernel, "spills" if spills else "")


@dataclass
class Compiler:
    """Spills in its first answers; where it has a core of its own, not before the search went on without it."""

    rejects: int
    waits: bool = False
    answers: int = 0
    searches: int = 0

    def ask(self, source: str, verified: VerifiedSchedule) -> Asked:
        del source
        self.answers += 1
        spills, searches = self.answers <= self.rejects, self.searches
        deadline = time.monotonic() + 60
        while self.waits and spills and self.searches == searches and time.monotonic() < deadline:
            time.sleep(0.01)
        return answer(verified, spills=spills)

    def best(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> str:
        plain = Search.run_all

        def run_all(search: Search) -> Any:
            result = plain(search)
            self.searches += 1
            return result

        with monkeypatch.context() as patch:
            patch.setattr(Search, "run_all", run_all)
            patch.setattr(candidates, "ask", self.ask)
            patch.setattr(candidates, "_CORES", 2)  # which tests/conftest.py has set out of reach
            patch.setattr(candidates, "cores", lambda: 2 if self.waits else 1)
            (one,) = Contest(find_region(attention()), machine).run()
        return str((one.verified.schedule, one.certificate))


@pytest.mark.solver
def test_the_answer_is_that_of_one_after_the_other(h200: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, beside = Compiler(rejects=2), Compiler(rejects=2, waits=True)
    assert beside.best(h200, monkeypatch) == alone.best(h200, monkeypatch)
    assert alone.searches == 3
    # Each search but the first was made under the compiler; one that nobody wants may have come to its end.
    assert beside.searches in (3, 4)
    worker.check()  # nothing is left over which later work would stumble


def test_work_that_is_given_up_keeps_nothing() -> None:
    model = cp_model.CpModel()
    with worker.ahead() as give_up:
        give_up()
        with pytest.raises(worker.GivenUpError):
            worker.solved(model, 1.0)
    assert worker.solved(model, 1.0)[1] == cp_model.OPTIMAL
