"""A range that has little time: samples are left open, near structures unsolved; what has to be done is named."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from wsopt.checker import verify
from wsopt.deadline import Deadline
from wsopt.errors import InfeasibleError, TimeOverError
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.symbolic import SymbolicGraph
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.pool.local import Forks
from wsopt.program.types import Sharing, Structure
from wsopt.ranges.choose import Chooser, chooser_of
from wsopt.ranges.document import record_of, summary_of
from wsopt.ranges.find import Task, search_at
from wsopt.ranges.price import Extents, Kernel
from wsopt.ranges.text import range_text
from wsopt.schedule.certificate import Certificate
from wsopt.solve.optimum import solve
from wsopt.solve.search import DEFAULT_MARGIN, Search

BASE = Structure(64, 64, 64, 1, 4, Sharing.COOPERATIVE, persistent=True, swap=False, subtiles=1, group=1)


def _projection() -> SymbolicGraph:
    g = GraphBuilder("projection")
    g.dim("tokens", 60, 64)
    x, w = g.input("x", ("tokens", 128), "bf16"), g.input("w", (128, 64), "bf16", constant=True)
    g.output(g.matmul(x, w, name="y"))
    return g.symbolic()


def spent(share: float) -> Deadline:
    """A limit of which such a share is over."""
    return Deadline(1000.0, time.monotonic() - 1000.0 * share)


def _chooser(machine: Machine, deadline: Deadline) -> Chooser:
    """A choice among one solved kernel and the bound of a structure that is near it."""
    extents = Extents(_projection(), machine)
    program = lower(extents.region((64,)), BASE, machine)
    found = solve(program, machine, DEFAULT_MARGIN)
    assert found.schedule is not None
    verified = verify(found.schedule, program, machine, DEFAULT_MARGIN)
    chooser = chooser_of(extents, 2, lambda stage, done, total: None, Forks(1), deadline)
    chooser._add(Kernel((64,), verified, Certificate(9, 2, (), 3, 4, 1.0, 0.1, DEFAULT_MARGIN, ())))
    us = verified.schedule.prediction.microseconds
    chooser.bounds[replace(BASE, subtiles=2)] = [us / 1.25 for _ in chooser.grid.cells]
    return chooser


def test_a_near_structure_that_is_not_solved_serves_nowhere_and_still_says_what_the_best_is(
    h200: Machine,
) -> None:
    choice = _chooser(h200, spent(0.7)).choose()
    assert {kernel.schedule.structure for kernel in choice.kernels} == {BASE}
    assert choice.worst == pytest.approx(0.25, abs=0.01)
    assert choice.skipped == ("1 near structure not solved",)
    assert choice.proved == (False, False, False)
    record = record_of(choice, "projection", "h200", 2, (), alike=False)
    record = replace(
        record, skipped=choice.skipped, certificate=replace(record.certificate, searched=((64,),))
    )
    assert summary_of(record)["skipped"] == ["1 near structure not solved"]
    assert "Skipped for lack of time: 1 near structure not solved." in range_text(record)


def test_covers_end_with_the_time(h200: Machine) -> None:
    extents = Extents(_projection(), h200)
    show = spent(1.1).bounded("projection", lambda stage, done, total: None)
    with pytest.raises(TimeOverError, match="in the stage cover"):
        chooser_of(extents, 2, show, Forks(1)).choose()


def test_a_sample_without_time_names_its_extents(h200: Machine) -> None:
    task = Task(_projection(), h200, (64,), deadline=spent(1.1))
    with pytest.raises(
        TimeOverError, match=r"with tokens = 64: graph projection: the 1000 s of --time-limit"
    ):
        search_at(task)


def test_a_sample_leaves_open_what_it_has_no_time_for(h200: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[float] = []

    def run(search: Search) -> None:
        ends.append(search.deadline - time.monotonic())
        raise InfeasibleError("none")

    monkeypatch.setattr(Search, "run", run)
    for seconds in (3.0, math.inf):
        with pytest.raises(InfeasibleError, match="with tokens = 64: none"):
            search_at(Task(_projection(), h200, (64,), seconds=seconds))
    assert ends == [pytest.approx(3.0, abs=0.5), math.inf]
