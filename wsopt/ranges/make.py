"""Builds for graphs with named dimensions: kernels are chosen, compiled, simulated, packed; one `run` for all."""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from wsopt.cache import BuildCache, build_key, cache_folder
from wsopt.candidates import Candidate, ask
from wsopt.checker import verify
from wsopt.deadline import Deadline
from wsopt.driver import pack
from wsopt.entries import extended
from wsopt.errors import CheckError
from wsopt.folder import machine_text
from wsopt.graph.symbolic import SymbolicGraph, symbolic_to_json
from wsopt.machine.load import require_target
from wsopt.machine.types import Machine
from wsopt.perf.price import lower
from wsopt.pool.local import LOCAL
from wsopt.pool.workers import Workers
from wsopt.ranges.build import RangeBuild, range_build
from wsopt.ranges.choose import Choice, chooser_of
from wsopt.ranges.dispatch import dispatch_text
from wsopt.ranges.document import RangeRecord, record_of, record_text
from wsopt.ranges.find import Progress
from wsopt.ranges.points import Point
from wsopt.ranges.price import Extents, Kernel, Key
from wsopt.ranges.text import range_text
from wsopt.requirements import require_triton
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.types import Schedule
from wsopt.simulation import simulate
from wsopt.solve.worker import limited

DEFAULT_KERNELS, MOST_KERNELS = 4, 64
_SEEDS = 4
"""Interleavings at the largest extents that a kernel serves, beside those at its own."""
_ROUNDS = 8
"""Choices at most, each without the structures that the compiler rejected in those before."""


def build_range(
    graph: SymbolicGraph,
    machine: Machine,
    *,
    kernels: int = DEFAULT_KERNELS,
    seconds: float | None = None,
    use_cache: bool = True,
    workers: Workers = LOCAL,
    progress: Progress = lambda stage, done, total: None,
) -> RangeBuild:
    """Compile a graph for the ranges of its dimensions, to at most so many kernels; `workers` search them. `seconds`
    limits all of it: what there was no time for, the summary says under `skipped`.

    Raises LoweringError or InfeasibleError, with the extents, where some of the range have no kernel, TimeOverError
    where the time is over before there are checked kernels for all of it, and CheckError; nothing is written.
    """
    deadline = Deadline(math.inf if seconds is None else seconds)
    require_target(machine)
    require_triton("compiling a kernel")
    use_cache = use_cache and not extended()
    kept = kept_range(graph, machine, kernels) if use_cache else None
    if kept is not None:
        return replace(kept, seconds=time.monotonic() - deadline.began)
    show = deadline.bounded(graph.name, progress)
    with limited(deadline.end):
        _, files = _made(graph, machine, kernels, workers, deadline, show)
    found = range_build(files, time.monotonic() - deadline.began)
    if use_cache:
        keep_range(graph, machine, found, kernels)
    return found


def kept_range(graph: SymbolicGraph, machine: Machine, kernels: int = DEFAULT_KERNELS) -> RangeBuild | None:
    """The build of a graph that is in the cache, if there is one."""
    files = BuildCache(cache_folder()).get(build_key(graph, machine_text(machine), kernels))
    return None if files is None else range_build(files, 0.0)


def keep_range(
    graph: SymbolicGraph, machine: Machine, found: RangeBuild, kernels: int = DEFAULT_KERNELS
) -> None:
    """Put a build into the cache, if nothing was left out of it for lack of time."""
    if not found.record.skipped:
        BuildCache(cache_folder()).put(build_key(graph, machine_text(machine), kernels), found.files)


def _made(
    graph: SymbolicGraph,
    machine: Machine,
    kernels: int,
    workers: Workers,
    deadline: Deadline,
    progress: Progress,
) -> tuple[RangeRecord, dict[str, str]]:
    """The record and the files of a build, made anew."""
    chooser = chooser_of(Extents(graph, machine), kernels, progress, workers, deadline)
    chooser.search()
    packed: dict[_Key, _Packed] = {}
    rejected: list[str] = []
    for _ in range(_ROUNDS):
        choice = chooser.choose()
        keys = [(kernel.key, choice.largest(number)) for number, kernel in enumerate(choice.kernels)]
        new = [(key, one) for key, one in zip(keys, choice.kernels, strict=True) if key not in packed]
        tasks = [
            _Pack(graph, machine, one.home, largest, one.schedule, one.certificate, deadline)
            for (_, largest), one in new
        ]
        results = workers.results(_packed, tasks, lambda done, total: progress("compile", done, total))
        packed |= {key: one for (key, _), one in zip(new, results, strict=True)}
        refused = [(packed[key].complaint, one) for key, one in new if packed[key].complaint]
        if not refused:
            return _files(graph, machine, kernels, choice, [packed[key].files for key in keys], rejected)
        rejected += [f"{one.schedule.structure.describe()} ({complaint})" for complaint, one in refused]
        chooser.rejected |= {one.schedule.structure for _, one in refused}
    raise CheckError(f"graph {graph.name}: the compiler rejects what is chosen; the last one, {rejected[-1]}")


_Key = tuple[Key, Point]
"""A kernel, and the largest extents that it serves."""


@dataclass(frozen=True, slots=True)
class _Pack:
    """A kernel to be compiled, simulated and packed, with the extents it was found at and the largest it serves."""

    graph: SymbolicGraph
    machine: Machine
    home: Point
    largest: Point
    schedule: Schedule
    certificate: Certificate
    deadline: Deadline


@dataclass(frozen=True, slots=True)
class _Packed:
    """The files of a kernel's build, or the compiler's complaint about it."""

    files: dict[str, str]
    complaint: str


def _packed(task: _Pack) -> _Packed:
    extents = Extents(task.graph, task.machine)
    program = lower(extents.region(task.home), task.schedule.structure, task.machine)
    verified = verify(task.schedule, program, task.machine, task.certificate.margin)
    kernel = Kernel(task.home, verified, task.certificate)
    asked = ask(kernel.source, verified)
    if asked.compiled is None or asked.complaint:
        return _Packed({}, asked.complaint or "it does not compile")
    candidate = Candidate(verified, task.certificate, kernel.source, asked.compiled)
    show = task.deadline.bounded(task.graph.name, lambda stage, done, total: None)
    files = pack(extents.graph(extents.lowered(task.home)), candidate, show, task.deadline)
    if task.largest != task.home:  # which may have but one row
        largest, simulated = extents.graph(task.largest), functools.partial(show, "simulate")
        simulate(largest, verified, kernel.source, _SEEDS, simulated)
    return _Packed(files, "")


def _files(
    graph: SymbolicGraph,
    machine: Machine,
    kernels: int,
    choice: Choice,
    builds: list[dict[str, str]],
    rejected: list[str],
) -> tuple[RangeRecord, dict[str, str]]:
    """The record of the whole build, and its files: each kernel's in its folder, and what is over them."""
    alike = graph.generic.deterministic
    record = record_of(choice, graph.name, machine.name, kernels, tuple(rejected), alike=alike)
    record = replace(record, skipped=(*choice.skipped, *_kernels_skipped(record, builds)))
    folders = [member.folder for member in record.kernels]
    own = {
        f"{folder}/{name}": text
        for folder, files in zip(folders, builds, strict=True)
        for name, text in files.items()
    }
    return record, {
        "graph.json": json.dumps(symbolic_to_json(graph), indent=1, ensure_ascii=False) + "\n",
        "range.json": record_text(record),
        "kernel.py": dispatch_text(graph, choice.grid, choice.serves, folders),
        "report.txt": range_text(record),
        **own,
    }


def _kernels_skipped(record: RangeRecord, builds: list[dict[str, str]]) -> Iterator[str]:
    """What there was no time for in the search and the simulation of each kernel."""
    for member, files in zip(record.kernels, builds, strict=True):
        for told in json.loads(files["schedule.json"])["summary"].get("skipped", ()):
            yield f"{member.folder}: {told}"
