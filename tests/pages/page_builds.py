"""Build folders for the tests of pages, made of recorded schedules: no search, no compiler, no simulation."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "digests"))

import replay

from wsopt.emit.source import emit
from wsopt.folder import SEARCH, schedule_text
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.lowering.structures import structures
from wsopt.program.types import Structure
from wsopt.report.summary import kernel_summary
from wsopt.schedule.certificate import Certificate, RunnerUp
from wsopt.schedule.searched import Ending, Searched, search_text
from wsopt.schedule.verified import VerifiedSchedule

SUMMARY = {"max_relative_error": 1e-6, "seeds": 20}


def certificate_of(verified: VerifiedSchedule, margin: int, others: list[Structure]) -> Certificate:
    """A certificate such as a search writes, its runner-up a tenth slower."""
    us = verified.schedule.prediction.microseconds
    runners = tuple(RunnerUp(one, us * 1.1, None) for one in others[:1])
    return Certificate(
        considered=len(others) + 1, pruned=len(others), infeasible=(("shared memory", 3),), solved=1, unfinished=0,
        bound_us=us, gap=0.0, margin=margin, runners_up=runners,
    )  # fmt: skip


def searched(verified: VerifiedSchedule, others: list[Structure]) -> list[Searched]:
    """The record of a search that solved the schedule's structure and dropped or ruled out the others."""
    us, ii = verified.schedule.prediction.microseconds, verified.schedule.ii
    found = [Searched(verified.schedule.structure, Ending.SOLVED, us * 0.99, us, ii)]
    for number, one in enumerate(others):
        if number % 7 == 3:
            found.append(Searched(one, Ending.INFEASIBLE, reason="shared memory: too much"))
        else:
            found.append(Searched(one, Ending.PRUNED, us * (1.01 + number / 97)))
    return found


def write_build(folder: Path, name: str) -> VerifiedSchedule:
    """Write the build of a recorded schedule to a folder."""
    record = replay.recorded(name)
    verified, graph = replay.verified_of(name), replay.graph_of(name, record)
    return write(folder, verified, graph, record["margin"])


def write(
    folder: Path, verified: VerifiedSchedule, graph: Graph, margin: int, count: int = 300
) -> VerifiedSchedule:
    """Write a build of this schedule, with so many other structures in its search."""
    region, own = verified.program.region, verified.schedule.structure
    others = [one for one in structures(region, verified.machine) if one != own][:count]
    certificate = certificate_of(verified, margin, others)
    p = verified.schedule.prediction
    summary = {
        "name": verified.schedule.name, "machine": verified.machine.name, "status": "optimal",
        "predicted_us": p.microseconds, "bound_us": p.microseconds, "roofline_us": p.roofline_us, "gap": 0.0,
        "kernels": [kernel_summary(verified, certificate)], "verified": {"interpreter": SUMMARY},
    }  # fmt: skip
    folder.mkdir(parents=True)
    files = {
        "graph.json": json.dumps(graph_to_json(graph)),
        "schedule.json": schedule_text(verified, certificate, summary),
        "kernel.py": emit(verified),
        "report.txt": "",
        SEARCH: search_text(searched(verified, others)),
    }
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    return verified


def renamed(graph: Graph, name: str) -> Graph:
    """A graph by another name."""
    return replace(graph, name=name)
