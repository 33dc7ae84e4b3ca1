"""A request for a build: its options, which of them go together, and the build that answers it.

That is one kernel, several, or what measurements chose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from wsopt.batch import BuildTask, build_at
from wsopt.build import Build
from wsopt.deadline import UNLIMITED, Deadline
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.build import CutBuild
from wsopt.partition.make import build_cut, one_or_several
from wsopt.pool.cluster import workers_at
from wsopt.program.conditions import FREE, Conditions
from wsopt.tune.tuned import tuned_build

Progress = Callable[[str, int, int], None]

_EXCLUDES = (
    ("time_limit", "tuned", "a search that is cut short has no fixed candidates"),
    ("scheduler", "tuned", "`wsopt tune --scheduler` finds the candidates"),
    ("under", "tuned", "what was measured was made without conditions"),
    ("tuned", "cut", "it is about one kernel"),
    ("under", "cut", "it is about one kernel"),
)
"""Options that do not go with another, and why."""
_WANTS = (("card", "tuned", "it says whose measurements count"),)
"""Options that go only with another, and why."""


def clashes(given: Iterable[str], spelled: Callable[[str], str] = str) -> Iterator[tuple[str, str]]:
    """The options that do not go together among those that were given, each with the reason; `spelled` says how
    whoever gave them writes their names.
    """
    there = frozenset(given)
    for option, other, why in _EXCLUDES:
        if {option, other} <= there:
            yield option, f"does not go with {spelled(other)}: {why}"
    for option, other, why in _WANTS:
        if option in there and other not in there:
            yield option, f"goes only with {spelled(other)}: {why}"


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a graph's build, whose options are known to go together.

    under: conditions of which the schedule is the best, None for the best of all.
    seconds: the time for all of it, None for as long as a proof takes.
    cut: several kernels also where one computes all.
    tuned: what was measured chooses, on the GPU named `card` if there are several.
    use_cache: whether the cache of finished builds is read and written.
    scheduler: the address of a Dask scheduler whose workers search, None for this machine.
    progress: called with a stage's name, the steps done and their number; `tell` with what a person should know.
    """

    graph: Graph
    machine: Machine
    under: Conditions | None
    seconds: float | None
    cut: bool
    tuned: bool
    card: str | None
    use_cache: bool
    scheduler: str | None
    progress: Progress
    tell: Callable[[str], None]

    def build(self) -> Build | CutBuild:
        """The build. A graph of which nothing else is said gets several kernels where no single one computes it, and
        where they are clearly faster; under a time limit that is asked of few long rows alone.
        """
        if self.cut:
            return self._several(UNLIMITED if self.seconds is None else Deadline(self.seconds))
        if self.tuned:
            return self._measured()
        if self.under is not None:
            return self._one(self.seconds)
        return one_or_several(self.graph, self.machine, self._one, self._several, seconds=self.seconds)

    def _one(self, seconds: float | None) -> Build:
        under = FREE if self.under is None else self.under
        task = BuildTask(self.graph, self.machine, under=under, seconds=seconds)
        return build_at(self.scheduler, task, use_cache=self.use_cache, progress=self.progress)

    def _several(self, deadline: Deadline) -> CutBuild:
        with workers_at(self.scheduler) as workers:
            return build_cut(
                self.graph,
                self.machine,
                deadline=deadline,
                use_cache=self.use_cache,
                workers=workers,
                progress=self.progress,
            )

    def _measured(self) -> Build:
        return tuned_build(
            self.graph,
            self.machine,
            card=self.card,
            use_cache=self.use_cache,
            progress=self.progress,
            tell=self.tell,
        )
