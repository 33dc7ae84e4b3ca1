"""The search over structures: best bound first, solve, drop what cannot win, and keep the certificate."""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from wsopt.checker import verify
from wsopt.errors import InfeasibleError, UndecidedError
from wsopt.lowering.lower import Cuttable
from wsopt.lowering.structures import structures
from wsopt.machine.types import Machine
from wsopt.perf.contention import held_cycles
from wsopt.perf.price import lower
from wsopt.program.changed import changed
from wsopt.program.conditions import FREE, Conditions, lacking
from wsopt.program.limits import Lifted, Limit
from wsopt.program.program import TileProgram
from wsopt.program.types import Structure
from wsopt.schedule.certificate import Certificate, RunnerUp
from wsopt.schedule.searched import Ending, Searched
from wsopt.schedule.types import Schedule
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.bound import Room, fitted_bound_us, infeasible, lower_bound_us, room_of
from wsopt.solve.limits import left_out, touching
from wsopt.solve.margin import learned
from wsopt.solve.optimum import Outcome, Solved, solve
from wsopt.solve.outside import outside_of
from wsopt.solve.whole_loop import loaders_interval
from wsopt.solve.worker import check, uncollected
from wsopt.targets import Operands

DEFAULT_MARGIN = learned().registers
"""Registers a thread beyond the live tiles before ptxas has been asked: addresses, barriers, temporaries."""

_RUNNERS_UP = 5
_COMPILER = "ptxas"
_REJECTED = "spilled, did not compile to the instructions asked for, or has lines that never run"
"""The budget by which structures count as ruled out that the compiler rejected."""

Ranked = tuple[VerifiedSchedule, Certificate]
Solutions = dict[tuple[Structure, tuple[Schedule, ...]], Solved]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A structure with its tile program and the bound of its time, in microseconds.

    `found` are schedules that it has given already; what is left of it does things in another order. A bound is
    `tight` if its consumers' own schedule is in it, which takes work, so only those that may win are made so.
    """

    structure: Structure
    program: TileProgram
    bound_us: float
    found: tuple[Schedule, ...] = ()
    tight: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What bounds alone say of a structure: the budget that rules it out, with its numbers, or nothing; limits of the
    emitter that leave something of it out; and microseconds that no schedule of it beats.
    """

    ruled_out: str
    limits: Lifted
    bound_us: float


@dataclass(slots=True)
class Search:
    """The state of a search; `kept` holds the incumbents, best first.

    It keeps the `keep` best schedules that differ in structure, roles or order, at most `orders` of one
    structure. What the compiler rejected is `rejected`; of `spilled` also what lives in as many registers.
    `bounding` is told of structures whose bounds are found, `progress` of those that are done with then.
    With `conditions` it searches among schedules that meet them, and proves what it says of those alone.
    `first_bounds` are the bounds, in microseconds, of all structures that no budget rules out, before any is tight;
    `ruled_out` has why each of the others was. `programs` are those that earlier searches of the same region on the
    same machine have lowered, `solutions` what they have solved.
    """

    region: Cuttable
    machine: Machine
    margin: int = DEFAULT_MARGIN
    conditions: Conditions = FREE
    deadline: float = math.inf
    rejected: frozenset[Structure] = frozenset()
    spilled: frozenset[Structure] = frozenset()
    progress: Callable[[int, int], None] = lambda done, total: None
    bounding: Callable[[int, int], None] = lambda done, total: None
    keep: int = 1
    orders: int = 1
    programs: dict[Structure, TileProgram] = field(default_factory=dict)
    looks: dict[Structure, Look] = field(default_factory=dict)
    solutions: Solutions = field(default_factory=dict)
    limits: Counter[Limit] = field(default_factory=Counter)
    considered: int = 0
    infeasible: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    ruled_out: dict[Structure, str] = field(default_factory=dict)
    solved: int = 0
    pruned: int = 0
    unfinished: int = 0
    open_bound: float = math.inf
    bounds: dict[Structure, float] = field(default_factory=dict)
    first_bounds: dict[Structure, float] = field(default_factory=dict)
    kept: list[VerifiedSchedule] = field(default_factory=list)
    runners: list[RunnerUp] = field(default_factory=list)
    _rooms: dict[tuple[Structure, int], tuple[str, Lifted, Room | None]] = field(default_factory=dict)

    def _candidates(self) -> list[Candidate]:
        """All structures that no budget rules out, best bound first; ties in the structures' own order."""
        with uncollected():
            return sorted(self._bounded(), key=_preference)

    def _bounded(self) -> Iterator[Candidate]:
        """All structures that no budget rules out, with their bounds, in the order in which they are enumerated."""
        every = list(filter(self.conditions.admit, structures(self.region, self.machine)))
        for structure in every:
            self.bounding(self.considered, len(every))
            self.considered += 1
            check()
            look, program = self.look(structure), self.programs[structure]
            self.limits.update(look.limits)
            reason = look.ruled_out
            if structure in self.rejected or (self.spilled and live_set(program) in self.spilled):
                reason = f"{_COMPILER}: {_REJECTED}"
            if reason:
                self._count(structure, reason)
            else:
                self.first_bounds[structure] = look.bound_us
                yield Candidate(structure, program, look.bound_us)

    def look(self, structure: Structure) -> Look:
        """What bounds alone say of a structure; its program is kept."""
        if structure not in self.programs:
            program = lower(self.region, structure, self.machine)
            if self.conditions:
                program = changed(program, conditions=self.conditions)
            self.programs[structure] = program
        if structure not in self.looks:
            self.looks[structure] = self._looked(self.programs[structure])
        return self.looks[structure]

    def _looked(self, program: TileProgram) -> Look:
        """What bounds say of a program, whatever the compiler makes of it.

        Structures that differ in the rasterization order alone have the same room, unless an epilogue asks for copies
        and those of the loop make its busiest unit busy for other times.
        """
        busiest = max(held_cycles(program).values()) if program.after.full else 0
        alike = changed(program.structure, group=1), busiest
        if alike not in self._rooms:
            reason = infeasible(program, self.machine, self.margin)
            limits = touching(program, self.machine, self.margin, reason)
            self._rooms[alike] = reason, limits, None if reason else room_of(program, self.machine)
        reason, limits, room = self._rooms[alike]
        bound = math.inf if room is None else lower_bound_us(program, self.machine, room=room)
        return Look(reason, limits, bound)

    def least_bound_us(self) -> float:
        """Microseconds that no schedule is faster than, found without solving any; infinite if no structure fits."""
        return min((candidate.bound_us for candidate in self._candidates()), default=math.inf)

    def _count(self, structure: Structure, reason: str) -> None:
        budget, _, numbers = reason.partition(": ")
        self.ruled_out[structure] = reason
        self.infeasible[budget] += 1
        self.reasons.setdefault(budget, numbers)

    def _worst_us(self) -> float:
        """Time in microseconds below which a schedule is kept."""
        return _microseconds(self.kept[-1]) if len(self.kept) == self.keep else math.inf

    def _tightened(self, candidate: Candidate) -> Candidate:
        """A candidate with the bound of what fits together, or if that says no more of its loop's own schedule."""
        program, before = candidate.program, candidate.bound_us
        bound = max(before, fitted_bound_us(program, self.machine))
        tight = bound == before
        if tight:
            least = loaders_interval(program, self.machine, self.margin)
            bound = max(bound, fitted_bound_us(program, self.machine, least))
        self.bounds[candidate.structure] = bound
        return replace(candidate, bound_us=bound, tight=tight)

    def _try(self, candidate: Candidate) -> Candidate | None:
        """Solve a candidate; what is left of its structure, if more of it may be kept."""
        key, program, new = (candidate.structure, candidate.found), candidate.program, not candidate.found
        if key not in self.solutions:
            self.solutions[key] = solve(program, self.machine, self.margin, *candidate.found)
        found = self.solutions[key]
        if found.outcome is Outcome.INFEASIBLE:
            if new:
                self._count(candidate.structure, f"schedule: {found.reason}")
            return None
        self.solved += new
        if found.outcome is not Outcome.OPTIMAL:
            self.unfinished += new
            self.open_bound = min(self.open_bound, candidate.bound_us)
        if found.schedule is None:
            return None
        verified = verify(found.schedule, program, self.machine, self.margin)
        time_us, others = _microseconds(verified), (*candidate.found, found.schedule)
        self.runners.append(RunnerUp(candidate.structure, time_us, found.schedule.ii))
        # Sorting is stable: among equals the one that was found first stays.
        self.kept = sorted([*self.kept, verified], key=_microseconds)[: self.keep]
        at_least = time_us if found.outcome is Outcome.OPTIMAL else candidate.bound_us
        return replace(candidate, bound_us=at_least, found=others) if len(others) < self.orders else None

    def run(self) -> Ranked:
        """The best schedule over all structures, with its certificate; raises as `run_all`."""
        return self.run_all()[0]

    def run_all(self) -> tuple[Ranked, ...]:
        """The best schedules over all structures, best first, each with its certificate.

        What is left of a structure comes back with the time of what it gave as its bound (Lawler, Management
        Science 18, 1972), so each rank is proved as the first is. Raises InfeasibleError, naming the
        budgets, when no structure has a schedule, and its UndecidedError when none was found but the work
        limit left structures open.
        """
        queue = self._candidates()
        if not self.conditions:  # bounds alone, without a certificate, do not ask for it
            self.limits += left_out(self.region, self.machine, self.programs)
        heap = [(_preference(candidate), candidate) for candidate in queue]
        fresh = len(queue)
        while heap:
            self.progress(len(queue) - fresh, len(queue))
            check()
            candidate = heapq.heappop(heap)[1]
            if candidate.bound_us >= self._worst_us():
                self.pruned = fresh
                break
            if time.monotonic() > self.deadline and self.kept:
                self.open_bound = min(self.open_bound, candidate.bound_us)
                self.unfinished += fresh
                break
            fresh -= candidate.tight and not candidate.found
            rest = self._try(candidate) if candidate.tight else self._tightened(candidate)
            if rest is not None:
                heapq.heappush(heap, (_preference(rest), rest))
        if not self.kept:
            raise self._nothing_found()
        return tuple((one, self._certificate(queue, one)) for one in self.kept)

    def _nothing_found(self) -> InfeasibleError:
        counts = sorted(self.infeasible.items(), key=lambda item: (-item[1], item[0]))
        graph, reasons = f"graph {self.region.name}", ", ".join(f"{n} by {budget}" for budget, n in counts)
        if self.conditions:
            graph += f" under {self.conditions.text}"
            reasons += f" (the first: {self.reasons[counts[0][0]]})" if counts else ""
        if not self.unfinished:
            why = reasons or lacking(self.conditions, structures(self.region, self.machine))
            return InfeasibleError(f"{graph}: no structure fits; {why}")
        rest = f"; the others do not fit: {reasons}" if reasons else ""
        return UndecidedError(
            f"{graph}: no schedule was found, but the work limit left {self.unfinished} of {self.considered} "
            f"structures open, so one may exist{rest}"
        )

    def _certificate(self, queue: list[Candidate], one: VerifiedSchedule) -> Certificate:
        """The certificate of a kept schedule. Its rank counts those that come before it."""
        time_us = _microseconds(one)
        bound = min(_microseconds(self.kept[0]), self.open_bound)
        return Certificate(
            considered=self.considered,
            pruned=self.pruned,
            infeasible=tuple(sorted(self.infeasible.items())),
            solved=self.solved,
            unfinished=self.unfinished,
            bound_us=bound,
            gap=0.0 if time_us <= bound else (time_us - bound) / time_us,
            margin=self.margin,
            runners_up=self._losers(queue, one.schedule.structure),
            rank=1 + self.kept.index(one),
            rank_bound_us=min(time_us, self.open_bound),
            conditions=self.conditions.text,
            outside=outside_of(one.program, self.machine, self.limits),
        )

    def searched(self) -> tuple[Searched, ...]:
        """What became of every structure that this search considered, in their own order."""
        return tuple(self._ending(structure) for structure in sorted({*self.ruled_out, *self.first_bounds}))

    def _ending(self, structure: Structure) -> Searched:
        bound = self.bounds.get(structure, self.first_bounds.get(structure))
        if structure in self.ruled_out:
            reason = self.ruled_out[structure]
            ending = Ending.REJECTED if reason.startswith(f"{_COMPILER}: ") else Ending.INFEASIBLE
            return Searched(structure, ending, bound, reason=reason)
        own = [runner for runner in self.runners if runner.structure == structure]
        best = min(own, key=lambda runner: runner.microseconds, default=None)
        if best is not None:
            return Searched(structure, Ending.SOLVED, bound, best.microseconds, best.ii)
        assert bound is not None, "what is not ruled out has a bound"
        return Searched(structure, Ending.PRUNED if bound >= self._worst_us() else Ending.OPEN, bound)

    def _losers(self, queue: list[Candidate], winner: Structure) -> tuple[RunnerUp, ...]:
        """The best of the other solved structures, then the best of those that their bound dropped."""
        fastest: dict[Structure, RunnerUp] = {}
        for runner in sorted(self.runners, key=lambda r: r.microseconds):
            fastest.setdefault(runner.structure, runner)
        left = [
            RunnerUp(c.structure, self.bounds.get(c.structure, c.bound_us), None)
            for c in queue
            if c.structure not in fastest
        ]
        left.sort(key=lambda r: round(r.microseconds, 6))
        solved = [runner for structure, runner in fastest.items() if structure != winner]
        return (*solved, *left)[:_RUNNERS_UP]


def _microseconds(verified: VerifiedSchedule) -> float:
    return verified.schedule.prediction.microseconds


def runner_up(verified: VerifiedSchedule, certificate: Certificate) -> VerifiedSchedule | None:
    """The first of the runners-up, solved; of the winner's own structure a schedule with another order.

    None if there is none, or if its structure has no schedule after all: then its bound was all that it had.
    """
    if not certificate.runners_up:
        return None
    structure, machine = certificate.runners_up[0].structure, verified.machine
    same = structure == verified.schedule.structure
    ours = verified.program
    program = ours if same else replace(lower(ours.region, structure, machine), conditions=ours.conditions)
    found = solve(program, machine, certificate.margin, *([verified.schedule] if same else []))
    return None if found.schedule is None else verify(found.schedule, program, machine, certificate.margin)


def live_set(program: TileProgram) -> Structure:
    """Key of a structure's register demand: structures with equal keys spill alike.

    Rasterization order, the memory of operands, when blocks begin, and the share of exp2, whose polynomial has three
    temporaries, are left out, and where arithmetic waits for products the epilogue's subtiles, else the depth. Of
    blocks side by side a thread has as many elements whatever the shape of their tile.
    """
    own = program.structure
    if own.resident:
        return replace(own, rows=own.rows * own.columns, columns=1)
    structure = replace(
        own, group=0, persistent=True, exp2_eighths=0, operands=Operands.REGISTERS, staggered=False
    )
    return replace(structure, subtiles=1) if program.computes_with_products else replace(structure, depth=0)


def _preference(candidate: Candidate) -> tuple[float, int, int, int, int, Structure]:
    """Best bound first; among equals structures that have given fewest, then those with fewer consumers,
    then fewer epilogue subtiles, then blocks that keep more of an SM's schedulers busy, then a fixed order.
    """
    s = candidate.structure
    without = max(0, _SCHEDULERS - s.consumer_warps) if s.occupancy else 0
    return round(candidate.bound_us, 6), len(candidate.found), s.consumers, s.subtiles, without, s


_SCHEDULERS = 4
"""Warps of a block of which each has a scheduler of its own. Where an SM has several blocks and memory binds, the
model takes blocks of one warp for as fast as those of four; rows of a table took 67.3 us and 66.8
(`docs/calibration/h200_stored_by_threads.json`).
"""
