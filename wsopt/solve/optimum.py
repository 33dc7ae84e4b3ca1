"""The best schedule of one structure: the least II that has one, and among those with it the one to take.

Mostly the bound of II itself has a schedule. Where a larger II than the least might buy a shorter epilogue, or
where an II could not be decided, one model with II free says what is left.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ortools.sat.python import cp_model

from wsopt.machine.types import Machine
from wsopt.perf import timing
from wsopt.perf.epilogue import Epilogues, epilogues
from wsopt.program.program import OpKind, TileOp, TileProgram
from wsopt.schedule import budget, memory
from wsopt.schedule.types import EpilogueBuffers, PlacedOp, Schedule
from wsopt.solve.alone import Least, least_interval
from wsopt.solve.bound import II_SLACK, ii_bounds, infeasible
from wsopt.solve.families import FAMILIES
from wsopt.solve.model import build, stretches
from wsopt.solve.objective import Floor, floor_of_time, ties
from wsopt.solve.orders import ask_for_another
from wsopt.solve.variables import Model
from wsopt.solve.whole_loop import by_loaders, loop_interval
from wsopt.solve.worker import has_solution, solved

_DETERMINISTIC_LIMIT = 20.0
_TIGHT_LIMIT = 1.0
"""Work after which the tightest order among equals is no longer looked for."""
_SETTLE_LIMIT = 0.5
"""Work on the order among equals. Most loops need a tenth; of nine products there are too many orders for a proof."""
_PROBE_LIMIT = 5.0
"""Work for one II that is asked for on the way to the least: one that takes more is left open."""
_STEP_LIMIT = 0.5
"""Work for one II on the way up to one that has a schedule, where there is too much work for all of them."""
_NEAR = 1 / 256
"""Share of an II up to which a smaller one is looked for on the way down again."""


class Outcome(StrEnum):
    """How one structure ended in the search."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Solved:
    """The outcome of one structure's model; `reason` says which budget made it infeasible, or why it is unknown.

    `objective` is the time of the schedule in the model's own units.
    """

    outcome: Outcome
    schedule: Schedule | None = None
    objective: float = math.inf
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A model whose II is of some range, solved."""

    model: Model
    solver: cp_model.CpSolver
    status: cp_model.CpSolverStatus

    @property
    def found(self) -> bool:
        """Whether there is a schedule."""
        return has_solution(self.status)

    @property
    def value(self) -> int:
        """The time found, in the model's units."""
        return int(self.solver.value(self.model.time))

    @property
    def ii(self) -> int:
        """The II found, in cycles."""
        return int(self.solver.value(self.model.ii)) * self.model.unit

    @property
    def buffers(self) -> EpilogueBuffers:
        """The epilogue's buffers that were chosen."""
        return next(b for b, chosen in self.model.buffers.items() if self.solver.value(chosen))

    def ends_soonest(self) -> bool:
        """Whether no other buffers have shorter epilogues: then a larger II buys nothing.

        Nor has one that sets of sums would hide: one set fits wherever two do.
        """
        m = self.model
        ends = {b: epilogues(m.program, m.machine, b) for b in m.buffers}
        each, last = min(e.each for e in ends.values()), min(e.last for e in ends.values())
        return ends[self.buffers] == Epilogues(each, last, any(e.under for e in ends.values()))

    def _issuer(self, op: TileOp) -> str:
        """The partition that issues an operation."""
        on, among = self.model.on, budget.issuers(self.model.program, op)
        return next(one for one in among if (op.id, one) not in on or self.solver.value(on[op.id, one]))

    def schedule(self) -> Schedule:
        """The schedule of the values that the solver has found for the model's variables."""
        m, value, buffers = self.model, self.solver.value, self.buffers
        placed = tuple(
            PlacedOp(
                op=str(op.id),
                partition=self._issuer(op),
                stage=value(m.stage[op.id]),
                cycle=value(m.cycle[op.id]) * m.unit,
            )
            for op in m.program.loop
        )
        rings = tuple((plan.name, value(m.depth[plan.name])) for plan in m.program.rings)
        slots, loaders = (
            [depth for _, depth in rings],
            len({self._issuer(op) for op in m.program.of(OpKind.TMA_LOAD)}),
        )
        return Schedule(
            name=m.program.whole.name,
            machine=m.machine.name,
            structure=m.program.structure,
            ii=self.ii,
            placed=placed,
            partitions=budget.partitions(m.program, buffers, m.machine, loaders),
            rings=rings,
            buffers=buffers,
            base_registers=budget.base_registers(m.program.structure, m.machine),
            shared_memory_bytes=memory.shared_memory(m.program, slots, buffers),
            prediction=timing.predict(m.program, m.machine, self.ii, buffers, slots),
        )


@dataclass(slots=True)
class _Optimum:
    """The search for a structure's least time, in an order that none of the `others` has.

    `best` is the best attempt; `proved` is whether it is the optimum, or without it that there is none. `last` is the
    last attempt that found something. `spent` counts work, and `open` says that an II was left undecided.
    """

    program: TileProgram
    machine: Machine
    margin: int
    others: tuple[Schedule, ...]
    floor: Floor
    best: _Attempt | None = None
    last: _Attempt | None = None
    proved: bool = True
    spent: float = 0.0
    open: bool = False

    def run(self) -> None:
        """Find the least II; look at larger ones only where they might buy a shorter epilogue."""
        most = ii_bounds(self.program, self.machine)[1]
        loop = loop_interval(self.program, self.machine, self.margin)
        self.spent = loop.work
        if loop.given_up:
            self.proved = False
            self._climb(loop.bound, most)
            return
        least = self._tightest(loop.bound, most)
        if least is None or (least.found and self.last is not None and self.last.ends_soonest()):
            return
        if self.open:
            self.proved = False
            self._climb(least.bound, most if self.best is None else self.best.ii)
            return
        left = least.bound + self.program.grain * least.found
        if left <= most:
            rest = self._attempt(left, most)
            self.proved = rest.status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)

    def _climb(self, low: int, most: int) -> None:
        """Find an II with a schedule by steps that double, and a smaller one by steps that halve."""
        grain = self.program.grain
        below, at = low - grain, low
        while at <= most and not self._step(at):
            below, at = at, at + 2 * (at - below)
        while at <= most and at - below > max(grain, _NEAR * at):
            middle = below + (at - below) // (2 * grain) * grain
            below, at = (below, middle) if self._step(middle) else (middle, at)

    def _step(self, interval: int) -> bool:
        """Whether a schedule with this II is found with little work."""
        self.spent = _DETERMINISTIC_LIMIT - _STEP_LIMIT
        return self._attempt(interval, interval).found

    def _tightest(self, low: int, most: int) -> Least | None:
        """The least II, or None where it is hard to find and would buy nothing: the time is at its floor without it.

        Where a loop computes values, units and rings keep it from taking less than some interval, and an II below
        that is the tighter order among equals.
        """
        steady = stretches(self.program) and all(family.steady for family in FAMILIES.values())
        least_of = functools.partial(least_interval, most=most, unit=self.program.grain, steady=steady)
        floor = self.floor

        def easy(interval: int) -> bool | None:
            hard = self.spent > _TIGHT_LIMIT and interval < floor.interval
            return None if hard else self._probe(interval)

        least = least_of(easy, low)
        if least.found or least.bound >= floor.interval:
            return least
        self._attempt(floor.interval, floor.interval)
        if self.best is not None and self.best.value <= floor.time:
            return None
        return least_of(self._probe, least.bound)

    def _probe(self, interval: int) -> bool | None:
        """Whether this II has a schedule. None if that, or which buffers are best with it, is not decided."""
        before, self.spent = self.spent, max(self.spent, _DETERMINISTIC_LIMIT - _PROBE_LIMIT)
        attempt = self._attempt(interval, interval)
        self.spent -= max(0.0, _DETERMINISTIC_LIMIT - _PROBE_LIMIT - before)
        decided = {cp_model.OPTIMAL: True, cp_model.INFEASIBLE: False}.get(attempt.status)
        self.open = decided is None
        return decided

    def _attempt(self, least: int, most: int) -> _Attempt:
        """Minimize the time. In a range of II, what is no better than what was found already does not count; and
        the least II of that time is taken, for where a ring feeds a whole tile, time does not depend on it.
        """
        free = least < most
        better = self.best.value - 1 if self.best is not None and free else None
        attempt = self._solve(least, most, lambda m: m.time, better)
        if attempt.status == cp_model.OPTIMAL and free:
            tightest = self._solve(least, most, lambda m: m.ii, attempt.value)
            attempt = tightest if tightest.status == cp_model.OPTIMAL else attempt
        if attempt.found:
            self.last = attempt
            self.best = min(self.best or attempt, attempt, key=lambda one: one.value)
        return attempt

    def settle(self, best: _Attempt) -> Schedule:
        """Solve again with II and time fixed at their optimum, for the order among equals: the best that little work
        finds.
        """
        self.spent = _DETERMINISTIC_LIMIT - _SETTLE_LIMIT
        if self.program.lifted:  # it is not emitted: its time is all that is asked
            return best.schedule()
        settled = self._solve(best.ii, best.ii, ties, best.value, best)
        return (settled if settled.found else best).schedule()

    def _solve(
        self,
        least: int,
        most: int,
        objective: Callable[[Model], cp_model.LinearExprT],
        at_most: int | None,
        hint: _Attempt | None = None,
    ) -> _Attempt:
        """Minimize with an II of a range and a time of at most so much, without the orders of the others."""
        model = build(self.program, self.machine, self.margin, (least, most))
        for schedule in self.others:
            ask_for_another(model, schedule)
        if at_most is not None:
            model.cp.add(model.time <= at_most)
        model.cp.minimize(objective(model))
        if hint is not None:
            for name, start in model.start.items():
                model.cp.add_hint(start, hint.solver.value(hint.model.start[name]))
        solver, status = solved(model.cp, _DETERMINISTIC_LIMIT - self.spent)
        self.spent += solver.response_proto.deterministic_time
        return _Attempt(model, solver, status)


def solve(program: TileProgram, machine: Machine, margin: int, *found: Schedule) -> Solved:
    """Solve one tile program's model; a schedule that does in another order what those `found` do.

    A budget, or a condition, that rules the structure out proves it infeasible at once.
    """
    ruled_out = infeasible(program, machine, margin)
    if ruled_out:
        return Solved(Outcome.INFEASIBLE, reason=ruled_out)
    return _searched(program, machine, margin, found)


def _searched(program: TileProgram, machine: Machine, margin: int, found: tuple[Schedule, ...]) -> Solved:
    """The same of a program that no budget rules out."""
    best, settle, proved = None, None, True
    floor = floor_of_time(program, machine)  # who starts which copies is not in it
    for asked in by_loaders(program):
        optimum = _Optimum(asked, machine, margin, found, floor)
        optimum.run()
        proved = proved and optimum.proved
        if optimum.best is not None and (best is None or optimum.best.value < best.value):
            best, settle = optimum.best, optimum.settle
        if best is not None and best.value <= floor.time:
            break
    if best is not None and settle is not None:
        outcome = Outcome.OPTIMAL if proved else Outcome.FEASIBLE
        return Solved(outcome, settle(best), best.value)
    if proved:
        return Solved(Outcome.INFEASIBLE, reason=f"no II up to {II_SLACK} times its bound")
    return Solved(Outcome.UNKNOWN, reason="the work limit was reached")
