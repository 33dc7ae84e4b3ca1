"""From a graph to a build folder. `build` reads as the table of contents of the whole program."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsopt.cache import BuildCache, build_key, cache_folder
from wsopt.errors import CheckError
from wsopt.folder import machine_text, schedule_text, write_folder
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.machine.load import load_machine, require_target
from wsopt.machine.types import Machine

if TYPE_CHECKING:
    from wsopt.gpu.aot import CompiledKernel
    from wsopt.rehearsal import Rehearsal
    from wsopt.schedule.certificate import Certificate
    from wsopt.schedule.verified import VerifiedSchedule
    from wsopt.tile.types import Region, Structure

DEFAULT_MACHINE = "h200"
SEEDS = 20
"""Interleavings that every kernel is executed under before it is handed over."""

_ORACLE_ROUNDS = 8

Progress = Callable[[str, int, int], None]


def _silent(stage: str, done: int, total: int) -> None:
    del stage, done, total


@dataclass(frozen=True, slots=True)
class Build:
    """A finished build: the files of its folder by name, and what `--json` prints of it."""

    files: dict[str, str]
    summary: dict[str, Any]
    seconds: float = field(compare=False)

    @property
    def kernel(self) -> str:
        """The source of kernel.py."""
        return self.files["kernel.py"]


def build(
    graph: Graph,
    machine: Machine,
    *,
    seconds: float | None = None,
    use_cache: bool = True,
    progress: Progress = _silent,
) -> Build:
    """Compile a graph for a machine: lower, solve, check, emit, compile ahead of time, rehearse, pack.

    `seconds` limits the search; with a limit the result may be feasible and not proved optimal. Raises
    LoweringError, InfeasibleError or CheckError; nothing is written.
    """
    from wsopt.tile.region import find_region

    began = time.monotonic()
    require_target(machine)
    region = find_region(graph)
    cache, key = BuildCache(cache_folder()), build_key(graph, machine_text(machine))
    found = cache.get(key) if use_cache else None
    if found is None:
        found = _build(graph, region, machine, seconds, progress)
        if use_cache and json.loads(found["schedule.json"])["summary"]["status"] == "optimal":
            cache.put(key, found)
    summary = json.loads(found["schedule.json"])["summary"]
    return Build(found, summary, time.monotonic() - began)


def _build(
    graph: Graph, region: Region, machine: Machine, seconds: float | None, progress: Progress
) -> dict[str, str]:
    """The files of a build, made anew."""
    from wsopt.rehearsal import rehearse
    from wsopt.report.text import inspect_text

    deadline = None if seconds is None else time.monotonic() + seconds
    verified, certificate, source, compiled = _search(region, machine, deadline, progress)
    rehearsal = rehearse(
        graph, verified, source, SEEDS, lambda done, total: progress("rehearse", done, total)
    )
    summary = summarize(verified, certificate, compiled, rehearsal)
    return {
        "graph.json": json.dumps(graph_to_json(graph), indent=1, ensure_ascii=False) + "\n",
        "schedule.json": schedule_text(verified, certificate, summary),
        "kernel.py": source,
        "report.txt": inspect_text(verified, certificate),
    }


def _search(
    region: Region, machine: Machine, deadline: float | None, progress: Progress
) -> tuple[VerifiedSchedule, Certificate, str, CompiledKernel]:
    """Search, emit and compile; a kernel that ptxas spoils is rejected and the search goes on."""
    from wsopt.emit.source import emit, expected_wgmma
    from wsopt.gpu.aot import compile_kernel
    from wsopt.gpu.errors import CompileError
    from wsopt.gpu.oracle import Expectation, verdict
    from wsopt.solve.search import Search

    rejected: dict[Structure, str] = {}
    for _ in range(_ORACLE_ROUNDS):
        search = Search(region, machine, rejected=frozenset(rejected))
        search.progress = lambda done, total: progress("solve", done, total)
        search.deadline = float("inf") if deadline is None else deadline
        verified, certificate = search.run()
        source = emit(verified)
        progress("compile", 0, 1)
        structure = verified.schedule.structure
        try:
            compiled = compile_kernel(source, architecture=machine.architecture)
        except CompileError as error:
            rejected[structure] = str(error)
            continue
        expectation = Expectation(expected_wgmma(verified), verified.schedule.shared_memory_bytes)
        complaints = verdict(compiled, expectation)
        if not complaints:
            return verified, certificate, source, compiled
        rejected[structure] = "; ".join(complaints)
    last, why = list(rejected.items())[-1]
    raise CheckError(
        f"graph {region.name}: the compiler spoils each of the {len(rejected)} best schedules; "
        f"the last one, {last.describe()}: {why}"
    )


def summarize(
    verified: VerifiedSchedule, certificate: Certificate, compiled: CompiledKernel, rehearsal: Rehearsal
) -> dict[str, Any]:
    """The object that `compile --json` prints, less what is known only when it is printed."""
    from wsopt.report.summary import kernel_summary

    kernel = kernel_summary(verified, certificate)
    kernel["ptxas"] = {
        "registers": compiled.registers,
        "stack_bytes": compiled.stack_bytes,
        "spill_loads": compiled.spill_loads,
        "spill_stores": compiled.spill_stores,
        "wgmma": compiled.wgmma,
    }
    return {
        "name": verified.schedule.name,
        "machine": verified.machine.name,
        "status": certificate.status,
        "predicted_us": verified.schedule.prediction.microseconds,
        "bound_us": certificate.bound_us,
        "roofline_us": verified.schedule.prediction.roofline_us,
        "gap": certificate.gap,
        "structures": {
            "considered": certificate.considered,
            "pruned": certificate.pruned,
            "infeasible": sum(count for _, count in certificate.infeasible),
            "solved": certificate.solved,
        },
        "kernels": [kernel],
        "verified": {
            "checker": True,
            "interpreter": {"seeds": rehearsal.seeds, "max_relative_error": rehearsal.max_relative_error},
            "compiled": True,
        },
    }


def compile_graph(
    graph: Graph,
    machine: Machine | str | Path = DEFAULT_MACHINE,
    directory: Path | str | None = None,
    **options: Any,
) -> Build:
    """Compile a graph, and write the build folder if `directory` is given.

    `machine` is a shipped card's name, a machine file, or a record; `options` are those of `build`.
    """
    record = machine if isinstance(machine, Machine) else load_machine(machine)
    result = build(graph, record, **options)
    if directory is not None:
        write_folder(Path(directory), result.files)
    return result
