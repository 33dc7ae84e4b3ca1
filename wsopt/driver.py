"""From a graph to a build folder. `build` reads as the table of contents of the whole program."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from wsopt.build import Build
from wsopt.cache import BuildCache, build_key, cache_folder
from wsopt.deadline import UNLIMITED, Deadline
from wsopt.entries import extended
from wsopt.errors import NeverRunError
from wsopt.folder import SEARCH, machine_text, schedule_text
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.machine.load import require_target
from wsopt.machine.types import Machine
from wsopt.program.conditions import FREE, Conditions
from wsopt.report.layout import counted
from wsopt.requirements import require_triton

if TYPE_CHECKING:
    from wsopt.candidates import Candidate
    from wsopt.lowering.lower import Cuttable
    from wsopt.schedule.certificate import Certificate
    from wsopt.simulation import Simulation

DEFAULT_MACHINE = "h200"
_CONTESTS = 6
"""Contests for schedules whose kernels run whole, at most: if all have lines that never run, the fault is ours."""
SEEDS = 20
"""Interleavings that every kernel is executed under before it is handed over."""

Progress = Callable[[str, int, int], None]


def _silent(stage: str, done: int, total: int) -> None:
    del stage, done, total


def build(
    graph: Graph,
    machine: Machine,
    *,
    under: Conditions = FREE,
    seconds: float | None = None,
    use_cache: bool = True,
    progress: Progress = _silent,
    below_us: float = math.inf,
) -> Build:
    """Compile a graph for a machine: lower, solve, check, emit, compile ahead of time, simulate, pack.

    The schedule is the best of those that meet the conditions that it is asked to be `under`. `seconds` limits all of
    it: then the result may be feasible and not proved optimal, and be simulated under fewer interleavings, as its
    summary says under `skipped`. Raises LoweringError, InfeasibleError, of these TimeOverError where the time is over
    before there is a kernel that is checked and TooSlowError where none is predicted to take less than `below_us`
    microseconds, or CheckError; nothing is written.
    """
    return builds(
        graph,
        machine,
        1,
        under=under,
        seconds=seconds,
        use_cache=use_cache,
        progress=progress,
        below_us=below_us,
    )[0]


def builds(
    graph: Graph,
    machine: Machine,
    keep: int,
    *,
    under: Conditions = FREE,
    seconds: float | None = None,
    use_cache: bool = True,
    progress: Progress = _silent,
    below_us: float = math.inf,
) -> tuple[Build, ...]:
    """The builds of the `keep` best schedules that differ in structure, roles or order, best first.

    As `build`; each schedule's certificate says its rank and what none after it can be faster than.
    """
    from wsopt.frontend.region import find_region

    deadline = Deadline(math.inf if seconds is None else seconds)
    require_target(machine)
    region = find_region(graph)
    require_triton("compiling a kernel")
    known = known_builds(graph, machine, keep, under) if use_cache else None
    if known is not None:
        return known
    within = deadline.bounded(graph.name, progress)
    made = _builds(graph, region, machine, keep, under, deadline, within, below_us)
    found = tuple(Build(files, _summary(files), time.monotonic() - deadline.began) for files in made)
    if use_cache:
        keep_builds(graph, machine, found, keep, under)
    return found


def known_builds(
    graph: Graph, machine: Machine, keep: int = 1, under: Conditions = FREE
) -> tuple[Build, ...] | None:
    """What `builds` gives, if the cache has it. Tables with more entries for a while have nothing there."""
    began = time.monotonic()
    found = None if extended() else _cache().get(build_key(graph, machine_text(machine), keep, under.text))
    if found is None:
        return None
    return tuple(
        Build(files, _summary(files), time.monotonic() - began) for files in _by_rank(found).values()
    )


def keep_builds(
    graph: Graph, machine: Machine, found: Sequence[Build], keep: int = 1, under: Conditions = FREE
) -> None:
    """Put what `builds` has given into the cache, if the search for it came to its end."""
    if not extended() and _is_whole(found[0].files):
        ranked = {
            f"{rank:02}/{name}": text for rank, one in enumerate(found, 1) for name, text in one.files.items()
        }
        _cache().put(build_key(graph, machine_text(machine), keep, under.text), ranked)


def _cache() -> BuildCache:
    return BuildCache(cache_folder())


def _summary(files: dict[str, str]) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(files["schedule.json"])["summary"]
    return summary


def _is_whole(files: dict[str, str]) -> bool:
    """Whether the search that gave the best schedule came to its end, and nothing else was skipped."""
    summary = _summary(files)
    return bool(summary["status"] == "optimal") and "skipped" not in summary


def _by_rank(found: dict[str, str]) -> dict[str, dict[str, str]]:
    """The files of several builds, which bear their rank before their name, build by build."""
    ranks: dict[str, dict[str, str]] = {}
    for name, text in found.items():
        rank, _, file = name.partition("/")
        ranks.setdefault(rank, {})[file] = text
    return ranks


def _builds(
    graph: Graph,
    region: Cuttable,
    machine: Machine,
    keep: int,
    under: Conditions,
    deadline: Deadline,
    progress: Progress,
    below_us: float,
) -> list[dict[str, str]]:
    """The files of builds, made anew: of schedules whose kernels run whole in the simulation."""
    from wsopt.candidates import Contest
    from wsopt.relaxed import candidates
    from wsopt.solve.worker import limited

    contest = Contest(region, machine, keep, under, deadline.search_end, progress, below_us)
    for left in reversed(range(_CONTESTS)):
        with limited(deadline.end):
            found = candidates(contest)
        packed = list[dict[str, str]]()
        for candidate in found:
            try:
                packed.append(pack(graph, candidate, progress, deadline))
            except NeverRunError as error:
                if not left:
                    raise
                contest.drop(candidate, _told(error))
        if len(packed) == len(found):
            break
    return packed


def _told(error: NeverRunError) -> str:
    """How many lines never ran, without the graph's name before that and the lines behind it."""
    return str(error).splitlines()[0].partition(": ")[2].rstrip(":")


def pack(
    graph: Graph, candidate: Candidate, progress: Progress, deadline: Deadline = UNLIMITED
) -> dict[str, str]:
    """Simulate a kernel, under all interleavings if there is time, and write down what is to be known of it."""
    from wsopt.report.simulated import simulated_text
    from wsopt.report.text import inspect_text
    from wsopt.schedule.searched import search_text
    from wsopt.simulation import simulate

    verified, certificate = candidate.verified, candidate.certificate
    simulation = simulate(
        graph, verified, candidate.source, SEEDS, lambda done, total: progress("simulate", done, total),
        lambda: time.monotonic() > deadline.simulation_end,
    )  # fmt: skip
    summary = summarize(candidate, simulation)
    return {
        "graph.json": json.dumps(graph_to_json(graph), indent=1, ensure_ascii=False) + "\n",
        "schedule.json": schedule_text(verified, certificate, summary),
        "kernel.py": candidate.source,
        "report.txt": inspect_text(verified, certificate) + simulated_text(summary),
        SEARCH: search_text(candidate.searched),
    }


def summarize(candidate: Candidate, simulation: Simulation) -> dict[str, Any]:
    """The object that `compile --json` prints, less what is known only when it is printed; with `conditions` if there
    were any.
    """
    from wsopt.report.summary import kernel_summary

    verified, certificate, compiled = candidate.verified, candidate.certificate, candidate.compiled
    kernel = kernel_summary(verified, certificate)
    kernel["ptxas"] = {
        "registers": compiled.registers,
        "stack_bytes": compiled.stack_bytes,
        "spill_loads": compiled.spill_loads,
        "spill_stores": compiled.spill_stores,
        "tensor_instructions": compiled.tensor_instructions,
        "tensor_columns": compiled.tensor_columns,
    }
    asked = {"conditions": certificate.conditions} if certificate.conditions else {}
    return {
        "name": verified.schedule.name,
        "machine": verified.machine.name,
        **asked,
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
            "interpreter": simulation.summary(),
            "compiled": True,
        },
        **({"skipped": skipped} if (skipped := _skipped(certificate, simulation)) else {}),
    }


def _skipped(certificate: Certificate, simulation: Simulation) -> list[str]:
    """What there was no time for, in words."""
    left = f"{counted(certificate.unfinished, 'structure')} left open" if certificate.unfinished else ""
    fewer = simulation.asked - simulation.seeds
    alike = f"{counted(fewer, 'interleaving')} of {simulation.asked} not simulated" if fewer > 0 else ""
    return [told for told in (left, alike) if told]
