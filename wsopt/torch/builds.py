"""Builds of pieces, from the cache on disk, or made by processes of their own, several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from wsopt.build import Build
from wsopt.driver import build, keep_builds
from wsopt.entries import extended
from wsopt.errors import (
    CheckError,
    InfeasibleError,
    InputError,
    InternalError,
    LoweringError,
    TooSlowError,
    UndecidedError,
)
from wsopt.graph.symbolic import AnyGraph, SymbolicGraph, any_to_json, parse_any
from wsopt.graph.types import Graph
from wsopt.machine.load import load_machine
from wsopt.machine.types import Machine
from wsopt.pool.cluster import workers_at
from wsopt.pool.local import Interpreters
from wsopt.ranges.build import RangeBuild
from wsopt.ranges.make import build_range, keep_range
from wsopt.torch.outcomes import Outcome, Refusal, Wanted, keep_bound, keep_refusal, known, too_slow


def build_all(wanted: Sequence[Wanted], machine: str, workers: int | str) -> list[Outcome]:
    """What comes of building graphs, in their order.

    `workers` are how many processes work at once, 0 for as many as there are cores, or the address of a Dask
    scheduler that has some. Each is an interpreter of its own, which no thread and no CUDA context of this one
    disturbs. Raises InternalError if one of them fails, RequirementError as `workers_at`.
    """
    found = [known(one, machine) for one in wanted]
    missing = [number for number, one in enumerate(found) if one is None]
    record = load_machine(machine)
    tasks = [_Task(_checked(wanted[n].graph), record, wanted[n].below_us) for n in missing]
    with workers_at(workers) if isinstance(workers, str) else nullcontext(Interpreters(workers)) as those:
        made = those.results(_made, tasks, keep=lambda place, one: _keep(tasks[place], machine, one))
    made_of = {number: one.outcome for number, one in zip(missing, made, strict=True)}
    return [made_of[number] if one is None else one for number, one in enumerate(found)]


@dataclass(frozen=True, slots=True)
class _Task:
    graph: AnyGraph
    machine: Machine
    below_us: float


@dataclass(frozen=True, slots=True)
class _Made:
    """What came of a task: the bound by which its kernel is too slow, and whether a refusal stays true."""

    outcome: Outcome
    bound_us: float | None = None
    decided: bool = True


def _checked(graph: AnyGraph) -> AnyGraph:
    """A piece's graph, read as one from a file is. Raises InternalError for one that is none."""
    try:
        return parse_any(any_to_json(graph), "piece")
    except InputError as error:
        raise InternalError(f"a piece's graph is refused: {error}") from error


def _made(task: _Task) -> _Made:
    """A build, if its kernel may be fast enough, made anew wherever this runs; of several kernels for a range."""
    try:
        if isinstance(task.graph, SymbolicGraph):
            return _Made(build_range(task.graph, task.machine, use_cache=False))
        return _Made(build(task.graph, task.machine, use_cache=False, below_us=task.below_us))
    except TooSlowError as error:
        return _Made(too_slow(error.bound_us, task.below_us), error.bound_us)
    except InputError as error:
        raise InternalError(f"a piece's graph or requirement is refused: {error}") from error
    except (LoweringError, InfeasibleError, CheckError) as error:
        return _Made(Refusal(str(error)), decided=not isinstance(error, UndecidedError))


def _keep(task: _Task, machine: str, made: _Made) -> None:
    """Put what came of a task into the cache."""
    if extended():
        return
    if made.bound_us is not None:
        keep_bound(task.graph, machine, made.bound_us)
    if isinstance(made.outcome, RangeBuild) and isinstance(task.graph, SymbolicGraph):
        keep_range(task.graph, task.machine, made.outcome)
    elif isinstance(made.outcome, Build) and isinstance(task.graph, Graph):
        keep_builds(task.graph, task.machine, [made.outcome])
    elif isinstance(made.outcome, Refusal) and made.decided and made.outcome.bound_us is None:
        keep_refusal(task.graph, machine, made.outcome.text)
