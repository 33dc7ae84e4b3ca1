"""Makes candidates: solves, checks, emits and compiles chosen structures as `wsopt compile` does, and writes them.

Each has a folder with graph.json and kernel.py, the first choice all that `wsopt compile` writes; the index
beside them has the predictions, so that measuring needs no solver.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wsopt.checker import verify
from wsopt.codegen.aot import compile_kernel
from wsopt.codegen.errors import CompileError
from wsopt.codegen.oracle import verdict
from wsopt.driver import build
from wsopt.emit.source import emit, expectation
from wsopt.errors import CheckError, InputError, Problem
from wsopt.folder import read_folder, write_folder
from wsopt.frontend.region import find_region
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.machine.load import require_target
from wsopt.machine.types import Machine
from wsopt.program.conditions import Overlap
from wsopt.schedule.types import Schedule
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.simulation import simulate
from wsopt.solve.optimum import solve
from wsopt.solve.search import DEFAULT_MARGIN
from wsopt.validate.files import (
    FIRST,
    INDEX,
    Candidate,
    CandidateSet,
    GraphCandidates,
    candidate_set_to_json,
    write_json,
)
from wsopt.validate.select import Entry, Wish, choose, held_to, pool, wishes

SEEDS = 4
"""Interleavings that a candidate is executed under; its numbers are checked on the GPU once more."""

_TRIES = 6
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A candidate's schedule, whose source has been through all checks."""

    verified: VerifiedSchedule
    source: str


def make_candidates(
    graphs: Sequence[Graph], machine: Machine, count: int, folder: Path, progress: Progress
) -> CandidateSet:
    """Write `count` candidates of each graph, fewer where there are not so many, and their index.

    Raises InputError for a folder that is not empty and for two graphs of one name, and what `wsopt compile`
    raises for a graph that it cannot compile.
    """
    require_target(machine)
    names = [graph.name for graph in graphs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError("graphs", [Problem("", f"two are named {twice[0]}; give one of them another name")])
    _check_empty(folder)
    made = [_of_graph(graph, machine, count, folder / graph.name, progress) for graph in graphs]
    found = CandidateSet(machine.name, machine.sm_count, tuple(made))
    write_json(folder / INDEX, candidate_set_to_json(found))
    return found


def _check_empty(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        strange = next(iter(sorted(item.name for item in folder.iterdir())), None)
    except OSError as error:
        raise InputError(str(folder), [Problem("", f"cannot be a folder: {error.strerror}")]) from error
    if strange is not None:
        raise InputError(str(folder), [Problem("", f"is not empty: it holds {strange}")])


def _of_graph(
    graph: Graph, machine: Machine, count: int, folder: Path, progress: Progress
) -> GraphCandidates:
    """The candidates of one graph: the first choice, then what fills the other places."""
    folder.mkdir()
    first = _first_choice(graph, machine, folder / "00", progress)
    every = list(pool(find_region(graph), machine, DEFAULT_MARGIN))
    taken = [entry for entry in every if entry.structure == first.structure and entry.free]
    selection = _Selection(graph, machine, [entry for entry in every if entry not in taken], taken)
    candidates = [candidate("00", FIRST, first, 0)]
    computes = taken[0].program.computes_with_products
    for done, wish in enumerate(wishes(count - 1, taken[0].bound_us, computes=computes)):
        progress(f"{graph.name}: candidate", done + 1, count)
        if (found := selection.take(wish)) is not None:
            entry, made = found
            name = f"{len(candidates):02}"
            _write(folder / name, graph, made.source)
            candidates.append(candidate(name, wish.why, made.verified.schedule, entry.slots, entry.overlap))
    refused = tuple(selection.refused)
    return GraphCandidates(graph.name, graph_to_json(graph), len(every), refused, tuple(candidates))


@dataclass(slots=True)
class _Selection:
    """Structures of a graph: those `left` to be measured, those `taken`, and those without a kernel, which are
    `dropped`, and `refused` with the reason.
    """

    graph: Graph
    machine: Machine
    left: list[Entry]
    taken: list[Entry]
    dropped: list[Entry] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def take(self, wish: Wish) -> tuple[Entry, Kernel] | None:
        """The structure that fits a wish best, with its kernel; None where none is left, or several had none."""
        for _ in range(_TRIES):
            entry = choose(self.left, [*self.taken, *self.dropped], wish)
            if entry is None:
                return None
            self.left.remove(entry)
            made = _make(self.graph, entry, self.machine)
            if isinstance(made, Kernel):
                self.taken.append(entry)
                return entry, made
            self.dropped.append(entry)
            self.refused.append((entry.describe, made))
            self.left = [one for one in self.left if entry.overlap is Overlap.ANY or one.loop != entry.loop]
        return None


def _first_choice(graph: Graph, machine: Machine, folder: Path, progress: Progress) -> Schedule:
    """Compile the graph as `wsopt compile` does, write its folder, and return the schedule."""
    found = build(graph, machine, progress=lambda stage, done, total: progress(stage, done, total))
    write_folder(folder, found.files)
    return read_folder(folder).verified.schedule


def _make(graph: Graph, entry: Entry, machine: Machine) -> Kernel | str:
    """The kernel of an entry, or why there is none."""
    limited = held_to(entry.program, machine, entry.slots)
    found = solve(entry.program, limited, DEFAULT_MARGIN)
    if found.schedule is None:
        return f"schedule: {found.reason}"
    verified = verify(found.schedule, entry.program, limited, DEFAULT_MARGIN)
    source = emit(verified)
    try:
        compiled = compile_kernel(source, architecture=machine.architecture)
    except CompileError as error:
        return f"compiler: {error}"
    complaints = verdict(compiled, expectation(verified))
    if complaints:
        return f"compiler: {'; '.join(complaints)}"
    try:
        simulate(graph, verified, source, SEEDS, lambda _done, _total: None)
    except CheckError as error:
        return f"interpreter: {error}"
    return Kernel(verified, source)


def _write(folder: Path, graph: Graph, source: str) -> None:
    folder.mkdir()
    text = json.dumps(graph_to_json(graph), indent=1, ensure_ascii=False) + "\n"
    (folder / "graph.json").write_text(text, encoding="utf-8")
    (folder / "kernel.py").write_text(source, encoding="utf-8")


def candidate(
    name: str, why: str, schedule: Schedule, slots: int, overlap: Overlap = Overlap.ANY
) -> Candidate:
    """A schedule as it stands in the index."""
    structure: dict[str, Any] = dataclasses.asdict(schedule.structure)
    depth = max((depth for _, depth in schedule.rings), default=0)
    return Candidate(
        name=name,
        why=why,
        what=f"{schedule.structure.describe()}, " + (f"ring of {depth}" if depth else "no ring"),
        structure={key: str(value) if key == "sharing" else value for key, value in structure.items()},
        slots=slots,
        overlap=overlap,
        store_warps=schedule.buffers.store_warp,
        depth=depth,
        ii=schedule.ii,
        predicted_us=schedule.prediction.microseconds,
        parts=dataclasses.asdict(schedule.prediction),
    )
