"""The best schedule of one structure: the least II that has one, and among those with it the one to take.

Mostly the bound of II itself has a schedule. Where a larger II than the least might buy a shorter epilogue, or
where an II could not be decided, one model with II free says what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ortools.sat.python import cp_model

from wsopt.machine.types import Machine
from wsopt.perf.epilogue import Epilogues, epilogues
from wsopt.program.program import TileProgram
from wsopt.schedule.types import Schedule
from wsopt.solve.alone import consumers_interval
from wsopt.solve.bound import II_SLACK, ii_bounds, infeasible
from wsopt.solve.emitter import stretches
from wsopt.solve.families import FAMILIES
from wsopt.solve.floor import floor_of_time
from wsopt.solve.intervals import Least, least_interval
from wsopt.solve.model import build
from wsopt.solve.objective import ties
from wsopt.solve.orders import ask_for_another
from wsopt.solve.overlap import Overlap, ask_for
from wsopt.solve.reading import read
from wsopt.solve.result import Outcome, Solved
from wsopt.solve.variables import Model
from wsopt.solve.worker import deterministic, solved, work

_DETERMINISTIC_LIMIT = 20.0
_TIGHT_LIMIT = 1.0
"""Work after which the tightest order among equals is no longer looked for."""


@dataclass(slots=True)
class _Attempt:
    """A model whose II is of some range, minimized."""

    model: Model
    solver: cp_model.CpSolver
    status: cp_model.CpSolverStatus

    @property
    def found(self) -> bool:
        """Whether there is a schedule."""
        return self.status in (cp_model.OPTIMAL, cp_model.FEASIBLE)

    @property
    def value(self) -> int:
        """The time found, in the model's units."""
        return int(self.solver.value(self.model.time))

    @property
    def interval(self) -> int:
        """The II found, in cycles."""
        return int(self.solver.value(self.model.ii)) * self.model.unit

    @property
    def ends_soonest(self) -> bool:
        """Whether no other buffers have shorter epilogues: then a larger II buys nothing.

        Nor has one that sets of sums would hide: one set fits wherever two do.
        """
        m = self.model
        ends = {b: epilogues(m.program, m.machine, b) for b in m.buffers}
        each, last = min(e.each for e in ends.values()), min(e.last for e in ends.values())
        least = Epilogues(each, last, any(e.under for e in ends.values()))
        return all(ends[b] == least for b in m.buffers if self.solver.value(m.buffers[b]))


@dataclass(slots=True)
class _Optimum:
    """The search for a structure's least time, in an order that none of the `others` has.

    `best` is the best attempt, of which `bound` says how good any may be; `proved` is whether it is the optimum,
    or without it that there is none. `last` is the last attempt that found something. `spent` counts work,
    `seconds` the time that it took.
    """

    program: TileProgram
    machine: Machine
    margin: int
    others: tuple[Schedule, ...]
    overlap: Overlap = Overlap.ANY
    best: _Attempt | None = None
    last: _Attempt | None = None
    bound: float = math.inf
    proved: bool = True
    spent: float = 0.0
    seconds: float = 0.0

    def run(self) -> None:
        """Find the least II; look at larger ones only where they might buy a shorter epilogue."""
        low, most = ii_bounds(self.program, self.machine)
        low = max(low, consumers_interval(self.program, self.machine, self.margin))
        unit = self.program.grain
        least = self._tightest(low, most, unit)
        if least is None:
            return
        left = least.bound + unit if least.found else least.bound
        if left > most or (least.found and self.last is not None and self.last.ends_soonest):
            return
        rest = self._attempt(left, most)
        if rest.status not in (cp_model.OPTIMAL, cp_model.INFEASIBLE):
            self.proved, self.bound = False, rest.solver.best_objective_bound

    def _tightest(self, low: int, most: int, unit: int) -> Least | None:
        """The least II, or None where it is hard to find and would buy nothing: the time is at its floor without it.

        Where a loop computes values, units and rings keep it from taking less than some interval, and an II below
        that is the tighter order among equals.
        """
        steady = stretches(self.program) and all(family.steady for family in FAMILIES.values())
        if self.program.work is None:
            return least_interval(self._probe, low, most, unit, steady=steady)

        def easy(interval: int) -> bool | None:
            hard = self.spent > _TIGHT_LIMIT
            if hard and interval < floor_of_time(self.program, self.machine).interval:
                return None
            return self._probe(interval)

        least = least_interval(easy, low, most, unit, steady=steady)
        if least.found:
            return least
        floor = floor_of_time(self.program, self.machine)
        if least.bound >= floor.interval:
            return least
        self._attempt(floor.interval, floor.interval)
        if self.best is not None and self.best.value <= floor.time:
            return None
        return least_interval(self._probe, least.bound, most, unit, steady=steady)

    def _probe(self, interval: int) -> bool | None:
        """Whether this II has a schedule. None if that, or which buffers are best with it, is not decided."""
        attempt = self._attempt(interval, interval)
        return {cp_model.OPTIMAL: True, cp_model.INFEASIBLE: False}.get(attempt.status)

    def model(self, least: int, most: int) -> Model:
        """The model with an II of this range, without the orders of the others."""
        model = build(self.program, self.machine, self.margin, (least, most))
        ask_for(model, self.overlap)
        for schedule in self.others:
            ask_for_another(model, schedule)
        return model

    def _attempt(self, least: int, most: int) -> _Attempt:
        """Minimize the time. In a range of II, what is no better than what was found already does not count; and
        the least II of that time is taken, for where a ring feeds a whole tile, time does not depend on it.
        """
        model = self.model(least, most)
        if self.best is not None and least < most:
            model.cp.add(model.time <= self.best.value - 1)
        model.cp.minimize(model.time)
        attempt = self._run(model, _DETERMINISTIC_LIMIT - self.spent)
        self.spent += work(attempt.solver)
        if attempt.status == cp_model.OPTIMAL and least < most:
            attempt = self._least_interval(attempt, least, most)
        if attempt.found:
            self.last = attempt
            if self.best is None or attempt.value < self.best.value:
                self.best, self.bound = attempt, attempt.value
        return attempt

    def _least_interval(self, found: _Attempt, least: int, most: int) -> _Attempt:
        """The attempt of this range with the least II among those that take as long."""
        model = self.model(least, most)
        model.cp.add(model.time <= found.value)
        model.cp.minimize(model.ii)
        attempt = self._run(model, _DETERMINISTIC_LIMIT - self.spent)
        self.spent += work(attempt.solver)
        return attempt if attempt.status == cp_model.OPTIMAL else found

    def _run(self, model: Model, limit: float) -> _Attempt:
        """Solve. A model that OR-Tools calls invalid is a fault of this program and raises RuntimeError."""
        solver = deterministic(limit)
        attempt = _Attempt(model, solver, solved(solver, model.cp))
        if attempt.status == cp_model.MODEL_INVALID:
            raise RuntimeError(f"invalid model: {model.cp.validate()}")
        self.seconds += solver.wall_time
        return attempt

    def settle(self, best: _Attempt) -> Schedule:
        """Solve again with II and time fixed at their optimum, for the order among equals."""
        model = self.model(best.interval, best.interval)
        model.cp.add(model.time <= best.value)
        model.cp.minimize(ties(model))
        for name, start in model.start.items():
            model.cp.add_hint(start, best.solver.value(best.model.start[name]))
        settled = self._run(model, _DETERMINISTIC_LIMIT)
        chosen = settled if settled.found else best
        return read(chosen.model, chosen.solver)


def solve(
    program: TileProgram,
    machine: Machine,
    margin: int,
    *found: Schedule,
    overlap: Overlap = Overlap.ANY,
) -> Solved:
    """Solve one tile program's model; a schedule that does in another order what those `found` do.

    With an `overlap` the best among those that have it.
    A budget that rules the structure out proves it infeasible at once.
    """
    ruled_out = infeasible(program, machine, margin)
    if ruled_out:
        return Solved(Outcome.INFEASIBLE, None, math.inf, math.inf, ruled_out, 0.0)
    optimum = _Optimum(program, machine, margin, found, overlap)
    optimum.run()
    best = optimum.best
    if best is not None:
        outcome = Outcome.OPTIMAL if optimum.proved else Outcome.FEASIBLE
        schedule = optimum.settle(best)
        return Solved(outcome, schedule, best.value, optimum.bound, "", optimum.seconds)
    if optimum.proved:
        reason = f"no II up to {II_SLACK} times its bound"
        return Solved(Outcome.INFEASIBLE, None, math.inf, math.inf, reason, optimum.seconds)
    return Solved(Outcome.UNKNOWN, None, math.inf, 0.0, "the work limit was reached", optimum.seconds)
