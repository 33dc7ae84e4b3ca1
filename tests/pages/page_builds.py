"""Build folders for the tests of pages, made of recorded schedules: no search, no compiler, no simulation."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "digests"))

import replay

from wsopt.emit.source import emit
from wsopt.folder import SEARCH, BuildFolder, read_folder, schedule_text
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.lowering.structures import structures
from wsopt.partition.build import CutFolder
from wsopt.partition.cut import CutCertificate
from wsopt.partition.document import FORMAT, CutRecord, Place, Step
from wsopt.program.types import Structure
from wsopt.report.summary import kernel_summary
from wsopt.schedule.certificate import Certificate, RunnerUp
from wsopt.schedule.searched import Ending, Searched, search_text
from wsopt.schedule.verified import VerifiedSchedule, for_trial

NAMES = ("gemm_bf16", "gemm_swiglu", "attention_causal", "layer_norm")
TRACES = Path(__file__).parents[2] / "docs" / "traces"
SUMMARY = {"max_relative_error": 1e-6, "seeds": 20}


@dataclass(frozen=True)
class Pages:
    """The files of the pages by name, and the builds of one kernel that they are of."""

    folder: Path
    builds: dict[str, BuildFolder]

    def __getitem__(self, name: str) -> Path:
        return self.folder / f"{name}.html"


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


def cut_folder(folder: Path) -> CutFolder:
    """A build of three launches by two recorded kernels, as if it had been read back."""
    names = ("golden-plain", "golden-residual_ping_pong")
    for number, name in enumerate(names):
        write_build(folder / "cut" / "kernels" / str(number), name)
    kernels = tuple(read_folder(folder / "cut" / "kernels" / str(number)) for number in range(len(names)))
    steps = tuple(
        Step(
            f"kernels/{kernel}", {}, inputs, outputs,
            kernels[kernel].verified.schedule.prediction.microseconds,
            kernels[kernel].verified.schedule.prediction.roofline_us,
            kernels[kernel].verified.schedule.prediction.bound_by,
        )
        for kernel, inputs, outputs in ((0, ("x",), ("h",)), (1, ("h", "r"), ("u",)), (0, ("u",), ("y",)))
    )  # fmt: skip
    total, roofs = sum(step.predicted_us for step in steps), sum(step.roofline_us for step in steps)
    places = (Place("h", 0, 1 << 20, 0, 1), Place("u", 1 << 20, 1 << 20, 1, 2))
    certificate = CutCertificate(9, True, 6, 5, 4, 3, True, ())
    record = CutRecord(FORMAT, "three", "h200", total, roofs, 2 << 20, steps, places, certificate)
    return CutFolder(folder / "cut", replace(kernels[0].graph, name="three"), record, kernels)


HOSTILE = "</script><img src=x onerror=alert(1)><!--&lt;'\"`${alert(1)}{{7*7}}]]>"
"""A text that breaks out of HTML, attributes, scripts, templates and SVG where it is not escaped."""


def hostile_build(folder: Path) -> BuildFolder:
    """A build whose texts are made to break a page, as a damaged folder might have them: names in graphs are
    identifiers, so they are put in behind the checks of what is read.
    """
    record = replay.recorded("golden-plain")
    verified, graph = replay.verified_of("golden-plain"), replay.graph_of("golden-plain", record)
    write(folder, verified, graph, record["margin"])
    found, program = read_folder(folder), verified.program
    whole = replace(program.whole, name=HOSTILE, doc=HOSTILE)
    forged = for_trial(
        verified,
        program=replace(program, whole=whole),
        machine=replace(verified.machine, title=HOSTILE),
    )
    search = (folder / SEARCH).read_text(encoding="utf-8")
    (folder / SEARCH).write_text(search.replace('"shared memory"', json.dumps(HOSTILE)), encoding="utf-8")
    trace = json.loads((TRACES / "gemm_bf16.json").read_text(encoding="utf-8"))
    trace["card"]["device"] = trace["date"] = trace["versions"]["triton"] = HOSTILE
    trace["schedule"] |= {
        "structure": verified.schedule.structure.describe(),
        "ii_cycles": verified.schedule.ii,
    }
    for partition in trace["partitions"]:
        partition["name"] += HOSTILE
        for op in partition["ops"]:
            op |= {"op": op["op"].replace("product", "p"), "words": HOSTILE}
    (folder / "trace").mkdir()
    (folder / "trace" / "trace.json").write_text(json.dumps(trace), encoding="utf-8")
    graph = replace(graph, name=HOSTILE)
    return replace(found, graph=graph, verified=forged, kernel=f"# {HOSTILE}\n{found.kernel}")
