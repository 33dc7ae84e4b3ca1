"""Kernels with lines that never run: the search goes on without their structure, and the certificate says so."""

from __future__ import annotations

from typing import Any

import pytest

import wsopt
from wsopt import simulation
from wsopt.errors import CheckError, NeverRunError
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.types import Graph

pytestmark = [pytest.mark.solver, pytest.mark.compiler]
TOLD = "3 of the kernel's 60 lines did not run at any extents it was executed at"


def scaled() -> Graph:
    g = GraphBuilder("scaled")
    g.output(g.cast(g.input("x", (512, 256), "bf16") * 2.0, dtype="bf16", name="y"))
    return g.build()


def never_run(monkeypatch: pytest.MonkeyPatch, times: int) -> list[Any]:
    """Have so many simulations find lines that never run; the schedules that were simulated."""
    simulate, seen = simulation.simulate, list[Any]()

    def found(graph: Graph, verified: Any, *rest: Any) -> Any:
        seen.append(verified.schedule.structure)
        if len(seen) <= times:
            raise NeverRunError(f"graph {graph.name}: {TOLD}:\n  kernel.py:7: x = 0")
        return simulate(graph, verified, *rest)

    monkeypatch.setattr(simulation, "simulate", found)
    return seen


def test_the_search_goes_on_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = never_run(monkeypatch, 2)
    made = wsopt.compile(scaled(), use_cache=False)
    assert len({*seen}) == 3
    assert f"by the model; {TOLD}" in " ".join(made.report.split())
    assert made.report.count("by the model; 3 of") == 2
    assert made.summary["status"] == "optimal"
    assert made.summary["verified"]["interpreter"]["lines"]["run"] > 0


def test_it_does_not_go_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = never_run(monkeypatch, 10**6)
    with pytest.raises(NeverRunError, match=r"kernel\.py:7: x = 0"):
        wsopt.compile(scaled(), use_cache=False)
    assert 2 < len({*seen}) == len(seen) < 10


def test_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    never_run(monkeypatch, 10**6)
    conditions = "consumers=1,rows=4,consumer_warps=4,columns=256"
    with pytest.raises(
        wsopt.WsoptError, match="the compiler or the simulation rejects each of the"
    ) as caught:
        wsopt.compile(scaled(), use_cache=False, under=conditions)
    assert TOLD in str(caught.value)
    assert caught.value.exit_status == 3


def test_another_fault_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*asked: Any) -> Any:
        raise CheckError("graph scaled, output y on the CPU, seed 0: wrong")

    monkeypatch.setattr(simulation, "simulate", wrong)
    with pytest.raises(CheckError, match="seed 0: wrong"):
        wsopt.compile(scaled(), use_cache=False)
