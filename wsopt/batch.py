"""Builds of many graphs: those in the cache are taken, workers make the others, and here they are kept.

Workers read and write no cache of builds, so that machines need not share one on a network drive. What has come back
before an interruption is not made again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from wsopt import driver
from wsopt.build import Build
from wsopt.driver import builds, keep_builds, known_builds
from wsopt.errors import CheckError, InfeasibleError, InputError, LoweringError
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.pool.cluster import workers_at
from wsopt.pool.workers import Progress, Workers, silent
from wsopt.program.conditions import FREE, Conditions

Refusal = LoweringError | InfeasibleError | CheckError | InputError
Outcome = tuple[Build, ...] | Refusal
"""The builds of a graph, best first, or why there are none."""


@dataclass(frozen=True, slots=True)
class BuildTask:
    """What `driver.builds` is asked for."""

    graph: Graph
    machine: Machine
    keep: int = 1
    under: Conditions = FREE
    seconds: float | None = None


def build_batch(
    tasks: Sequence[BuildTask], workers: Workers, *, use_cache: bool = True, progress: Progress = silent
) -> list[Outcome]:
    """The builds of each task, in the tasks' order. What is in the cache counts as done from the start."""
    found: dict[int, Outcome] = {}
    for place, task in enumerate(tasks):
        known = known_builds(task.graph, task.machine, task.keep, task.under) if use_cache else None
        if known is not None:
            found[place] = known
    missing = [place for place in range(len(tasks)) if place not in found]

    def keep(number: int, outcome: Outcome) -> None:
        task = tasks[missing[number]]
        if use_cache and isinstance(outcome, tuple):
            keep_builds(task.graph, task.machine, outcome, task.keep, task.under)

    made = workers.results(
        _made,
        [tasks[place] for place in missing],
        lambda done, _total: progress(len(tasks) - len(missing) + done, len(tasks)),
        keep,
    )
    found |= zip(missing, made, strict=True)
    return [found[place] for place in range(len(tasks))]


def build_one(task: BuildTask, workers: Workers, *, use_cache: bool, progress: Progress) -> tuple[Build, ...]:
    """The builds of a task. Raises as `driver.builds`."""
    (found,) = build_batch([task], workers, use_cache=use_cache, progress=progress)
    if isinstance(found, tuple):
        return found
    raise found


def build_at(scheduler: str | None, task: BuildTask, *, use_cache: bool, progress: driver.Progress) -> Build:
    """The best build of a task: of a search here, or by a worker of the cluster whose `scheduler` has this address.
    Raises as `driver.build`.
    """
    if scheduler is None:
        return driver.build(
            task.graph,
            task.machine,
            under=task.under,
            seconds=task.seconds,
            use_cache=use_cache,
            progress=progress,
        )
    with workers_at(scheduler) as workers:
        best, *_ = build_one(
            task, workers, use_cache=use_cache, progress=functools.partial(progress, "search")
        )
    return best


def _made(task: BuildTask) -> Outcome:
    """The builds of a task, made anew wherever this runs."""
    try:
        return builds(
            task.graph, task.machine, task.keep, under=task.under, seconds=task.seconds, use_cache=False
        )
    except (LoweringError, InfeasibleError, CheckError, InputError) as refusal:
        return refusal
