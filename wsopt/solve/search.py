"""The search over structures: best bound first, solve, drop what cannot win, and keep the certificate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from wsopt.errors import InfeasibleError, UndecidedError
from wsopt.machine.types import Machine
from wsopt.schedule.certificate import Certificate, RunnerUp
from wsopt.schedule.check import verify
from wsopt.schedule.types import Schedule
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.bound import infeasible, lower_bound_us
from wsopt.solve.model import solve
from wsopt.solve.result import Outcome
from wsopt.tile.lower import lower
from wsopt.tile.structures import structures
from wsopt.tile.types import Region, Structure, TileProgram

DEFAULT_MARGIN = 24
"""Registers a thread beyond the live tiles before ptxas has been asked: addresses, barriers, temporaries."""

_RUNNERS_UP = 5


@dataclass(frozen=True, slots=True)
class Candidate:
    """A structure with its tile program and the bound of its time, in microseconds."""

    structure: Structure
    program: TileProgram
    bound_us: float


@dataclass(slots=True)
class Search:
    """The state of a search; `best` holds the incumbent."""

    region: Region
    machine: Machine
    margin: int = DEFAULT_MARGIN
    deadline: float = math.inf
    rejected: frozenset[Structure] = frozenset()
    progress: Callable[[int, int], None] = lambda done, total: None
    considered: int = 0
    infeasible: dict[str, int] = field(default_factory=dict)
    solved: int = 0
    pruned: int = 0
    unfinished: int = 0
    open_bound: float = math.inf
    best: VerifiedSchedule | None = None
    runners: list[RunnerUp] = field(default_factory=list)

    def _candidates(self) -> list[Candidate]:
        """All structures that no budget rules out, best bound first; ties in the structures' own order."""
        found = []
        for structure in structures(self.region, self.machine):
            self.considered += 1
            program = lower(self.region, structure, self.machine)
            reason = infeasible(program, self.machine, self.margin)
            if structure in self.rejected:
                reason = "ptxas: spilled, or did not compile to the instructions asked for"
            if reason:
                self._count(reason)
                continue
            found.append(Candidate(structure, program, lower_bound_us(program, self.machine)))
        return sorted(found, key=_preference)

    def _count(self, reason: str) -> None:
        budget = reason.partition(":")[0]
        self.infeasible[budget] = self.infeasible.get(budget, 0) + 1

    def _best_us(self) -> float:
        return self.best.schedule.prediction.microseconds if self.best else math.inf

    def _try(self, candidate: Candidate) -> None:
        found = solve(candidate.program, self.machine, self.margin)
        if found.outcome is Outcome.INFEASIBLE:
            self._count(f"schedule: {found.reason}")
            return
        self.solved += 1
        if found.outcome is not Outcome.OPTIMAL:
            self.unfinished += 1
            self.open_bound = min(self.open_bound, candidate.bound_us)
        if found.schedule is None:
            return
        verified = verify(found.schedule, candidate.program, self.machine, self.margin)
        self._keep(found.schedule, verified)

    def _keep(self, schedule: Schedule, verified: VerifiedSchedule) -> None:
        time_us = schedule.prediction.microseconds
        self.runners.append(RunnerUp(schedule.structure, time_us, schedule.ii))
        if time_us < self._best_us():
            self.best = verified

    def run(self) -> tuple[VerifiedSchedule, Certificate]:
        """The best schedule over all structures, with its certificate.

        Raises InfeasibleError, naming the budgets, when no structure has a schedule, and its UndecidedError
        when none was found but the work limit left structures open.
        """
        queue = self._candidates()
        for done, candidate in enumerate(queue):
            self.progress(done, len(queue))
            if candidate.bound_us >= self._best_us():
                self.pruned = len(queue) - done
                break
            if time.monotonic() > self.deadline and self.best:
                self.open_bound = min(self.open_bound, candidate.bound_us)
                self.unfinished += len(queue) - done
                break
            self._try(candidate)
        if self.best is None:
            raise self._nothing_found()
        return self.best, self._certificate(queue)

    def _nothing_found(self) -> InfeasibleError:
        graph, reasons = f"graph {self.region.name}", self._reasons()
        if not self.unfinished:
            return InfeasibleError(f"{graph}: no structure fits; {reasons or 'none is legal'}")
        rest = f"; the others do not fit: {reasons}" if reasons else ""
        return UndecidedError(
            f"{graph}: no schedule was found, but the work limit left {self.unfinished} of {self.considered} "
            f"structures open, so one may exist{rest}"
        )

    def _reasons(self) -> str:
        counts = sorted(self.infeasible.items(), key=lambda item: (-item[1], item[0]))
        return ", ".join(f"{count} by {budget}" for budget, count in counts)

    def _certificate(self, queue: list[Candidate]) -> Certificate:
        best = self._best_us()
        bound = min(best, self.open_bound)
        return Certificate(
            considered=self.considered,
            pruned=self.pruned,
            infeasible=tuple(sorted(self.infeasible.items())),
            solved=self.solved,
            unfinished=self.unfinished,
            bound_us=bound,
            gap=0.0 if best <= bound else (best - bound) / best,
            margin=self.margin,
            runners_up=tuple(self._losers(queue)),
        )

    def _losers(self, queue: list[Candidate]) -> Iterator[RunnerUp]:
        """The best solved losers, then the best of those that their bound dropped."""
        assert self.best is not None
        winner = self.best.schedule.structure
        solved = sorted((r for r in self.runners if r.structure != winner), key=lambda r: r.microseconds)
        yield from solved[:_RUNNERS_UP]
        seen = {r.structure for r in self.runners}
        left = [c for c in queue if c.structure not in seen]
        for candidate in left[: max(0, _RUNNERS_UP - len(solved))]:
            yield RunnerUp(candidate.structure, candidate.bound_us, None)


def _preference(candidate: Candidate) -> tuple[float, int, int, Structure]:
    """Best bound first; among equals fewer consumers, then fewer epilogue pieces, then a fixed order."""
    s = candidate.structure
    return round(candidate.bound_us, 6), s.consumers, s.pieces, s
