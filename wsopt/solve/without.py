"""Solves without limits of the emitter: the best time of the relaxed model, or a bound of it.

What comes out is never emitted: the checker refuses a program with limits lifted, so there is no verified schedule.
The model without limits has all schedules that it has with them, so only faster ones are looked for.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field, replace

from wsopt.lowering.lower import Cuttable
from wsopt.lowering.structures import structures
from wsopt.machine.types import Machine
from wsopt.perf import timing
from wsopt.perf.price import lower
from wsopt.program.limit_records import RECORD, RECORDS, How
from wsopt.program.limits import Lifted, Limit
from wsopt.program.program import TileProgram
from wsopt.program.types import Structure
from wsopt.schedule.types import Schedule
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.alone import consumers_interval
from wsopt.solve.bound import infeasible, lower_bound_us
from wsopt.solve.limits import STRUCTURAL, touching
from wsopt.solve.optimum import Outcome, solve
from wsopt.solve.search import DEFAULT_MARGIN, Search
from wsopt.solve.worker import spent

WORK = 10.0
"""Deterministic time of one graph's search without one limit, after which what is left is only bounded."""


@dataclass(frozen=True, slots=True)
class Without:
    """The best without a limit, which leaves out so many `structures` or schedules of them. In microseconds:
    `best_us` is of a schedule, or of an argument where there is none, and no schedule takes less than `least_us`.
    `schedule` is one that is faster than the best with the limit, if there is one. `ii` is the least interval of the
    best structure with the limit; 0 where it was not decided, or where the limit is about other structures.
    """

    limit: Limit
    structures: int
    best_us: float
    least_us: float
    schedule: Schedule | None = None
    ii: int = 0

    @property
    def decided(self) -> bool:
        """Whether nothing was left open."""
        return self.least_us >= self.best_us


@dataclass(slots=True)
class Relaxed:
    """A graph's space with the limits, solved, and without some."""

    region: Cuttable
    machine: Machine
    margin: int = DEFAULT_MARGIN
    work: float = WORK
    programs: dict[Structure, TileProgram] = field(default_factory=dict)
    base: VerifiedSchedule = field(init=False)

    def __post_init__(self) -> None:
        """Solve with all limits. Raises InfeasibleError, LoweringError as the search."""
        self.base = Search(self.region, self.machine, self.margin, programs=self.programs).run()[0]

    @property
    def base_us(self) -> float:
        """Microseconds of the best schedule with all limits."""
        return self.base.schedule.prediction.microseconds

    def without_each(self) -> tuple[Without, ...]:
        """The best without each limit that leaves something out for this graph."""
        found = (self.without(frozenset({record.limit})) for record in RECORDS)
        return tuple(one for one in found if one.structures)

    def without(self, lifted: Lifted) -> Without:
        """The best without these limits; what is said of how one is lifted is said of the first."""
        first = min(lifted, key=[record.limit for record in RECORDS].index)
        touched = self._touched(lifted)
        if not touched:
            return Without(first, 0, self.base_us, self.base_us)
        if RECORD[first].how is How.BYTES:
            least = min(self.base_us, *(self._floor_us(program) for program in touched))
            return Without(first, len(touched), least, least)
        return replace(self._search(first, touched), ii=self._interval(touched))

    def _touched(self, lifted: Lifted) -> list[TileProgram]:
        """The programs, with limits lifted, of which these leave schedules out, or that they leave out whole."""
        found = []
        more = structures(self.region, self.machine, lifted) if lifted & {*STRUCTURAL} else ()
        for structure in dict.fromkeys((*self.programs, *more)):
            known = self.programs.get(structure)
            program = known or lower(self.region, structure, self.machine)
            reason = infeasible(program, self.machine, self.margin)
            if known is None or lifted & touching(program, self.machine, self.margin, reason):
                found.append(replace(program, lifted=lifted))
        return found

    def _interval(self, touched: list[TileProgram]) -> int:
        """Least interval of the best structure with the limits, without them."""
        own = [one for one in touched if one.structure == self.base.schedule.structure]
        for program in own:
            solved = solve(program, self.machine, self.margin)
            if solved.outcome is Outcome.OPTIMAL and solved.schedule is not None:
                return solved.schedule.ii
        return 0

    def _floor_us(self, program: TileProgram) -> float:
        """Microseconds of a program's bytes, between its start with the first copy and its last store."""
        machine = self.machine
        fixed = timing.fixed_parts(program, machine)
        ends = machine.seconds(fixed.start + machine.latency.tma_load_dram + fixed.tail) * 1e6
        return max(fixed.floors) + ends + machine.kernel_launch_us

    def _search(self, limit: Limit, touched: list[TileProgram]) -> Without:
        """Best bound first among the programs that a limit touches; what is not better than the base is dropped."""
        best, schedule, open_us, until = self.base_us, None, math.inf, spent() + self.work
        order = itertools.count()
        fit = [one for one in touched if not infeasible(one, self.machine, self.margin)]
        heap = [(lower_bound_us(one, self.machine), next(order), False, one) for one in fit]
        heapq.heapify(heap)
        while heap:
            bound, _, tight, program = heapq.heappop(heap)
            if bound >= best:
                break
            if spent() > until:
                open_us = min(open_us, bound)
                break
            if not tight:
                least = consumers_interval(program, self.machine, self.margin)
                bound = lower_bound_us(program, self.machine, least)
                heapq.heappush(heap, (bound, next(order), True, program))
                continue
            solved = solve(program, self.machine, self.margin)
            if solved.outcome in (Outcome.FEASIBLE, Outcome.UNKNOWN):
                open_us = min(open_us, bound)
            if solved.schedule is not None and solved.schedule.prediction.microseconds < best:
                best, schedule = solved.schedule.prediction.microseconds, solved.schedule
        return Without(limit, len(touched), best, min(best, open_us), schedule)
