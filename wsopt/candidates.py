"""The best schedules of a search that the compiler leaves whole, as kernels: search, emit, ask the oracle, repeat.

Whoever finds later that a kernel will not do has it `dropped`, and runs the contest again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Queue
from threading import Event
from typing import TYPE_CHECKING

from wsopt.codegen.aot import compile_kernel
from wsopt.codegen.errors import CompileError
from wsopt.codegen.oracle import verdict
from wsopt.emit.source import emit, expectation
from wsopt.errors import CheckError, InfeasibleError, TooSlowError, WsoptError
from wsopt.lowering.lower import Cuttable
from wsopt.machine.types import Machine
from wsopt.pool.share import cores
from wsopt.program.conditions import FREE, Conditions
from wsopt.program.program import TileProgram
from wsopt.program.types import Structure
from wsopt.schedule.certificate import Certificate, Rejected
from wsopt.schedule.searched import Searched
from wsopt.solve.search import Look, Ranked, Search, Solutions, live_set
from wsopt.solve.worker import GivenUpError, ahead

if TYPE_CHECKING:
    from wsopt.codegen.aot import CompiledKernel
    from wsopt.schedule.verified import VerifiedSchedule

_ORACLE_ROUNDS = 8
_LAST_ROUND = 24
"""Searches, at most: for better schedules than one that the compiler leaves whole, and for a first such one."""

_Kernel = tuple[str, "VerifiedSchedule"]
"""A kernel's source, and the schedule that it was written from."""

_CORES = 2
"""Cores from which on the compiler leaves one for the search."""

ORDERS = 2
"""Schedules of one structure among several that are kept: further ones differ in order alone."""

Progress = Callable[[str, int, int], None]
_Without = tuple[frozenset[Structure], frozenset[Structure]]
"""Structures that a search leaves out: those rejected, and live sets that spilled."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule with its certificate, its kernel's source, the compiled kernel's resources, and what the last search
    made of every structure.
    """

    verified: VerifiedSchedule
    certificate: Certificate
    source: str
    compiled: CompiledKernel
    searched: tuple[Searched, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A kernel that the compiler was asked for: what came of it, None if it refused, and the `complaint` about that,
    empty if there is none. `dropped` says why the kernel was given up later.
    """

    verified: VerifiedSchedule
    compiled: CompiledKernel | None
    complaint: str
    dropped: str = ""

    @property
    def spilled(self) -> bool:
        """Whether the compiler spilled registers."""
        k = self.compiled
        return k is not None and bool(k.spill_loads or k.spill_stores or k.stack_bytes)


@dataclass(slots=True)
class Contest:
    """A search that goes on until none of its `keep` best schedules is rejected.

    With `conditions` all of it is among schedules that meet them; none is wanted that is not predicted to take less
    than `below_us` microseconds. `rejected` says why each structure was dropped of which the compiler, or a check
    after it, rejected a kernel; `asked` is every kernel that it saw, by source, and `rounds` how often the search was
    run.
    """

    region: Cuttable
    machine: Machine
    keep: int = 1
    conditions: Conditions = FREE
    deadline: float = math.inf
    progress: Progress = lambda stage, done, total: None
    below_us: float = math.inf
    rejected: dict[Structure, str] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)
    rounds: int = 0
    _programs: dict[Structure, TileProgram] = field(default_factory=dict)
    _looks: dict[Structure, Look] = field(default_factory=dict)
    _solutions: Solutions = field(default_factory=dict)
    _ahead: dict[_Without, tuple[Ranked, ...]] = field(default_factory=dict)
    _answers: dict[str, Asked] = field(default_factory=dict)
    _searched: dict[_Without, tuple[Searched, ...]] = field(default_factory=dict)

    def check_fast_enough(self) -> None:
        """Raise TooSlowError if bounds alone say that no kernel takes less than is allowed."""
        if self.below_us < math.inf:
            search = self._new_search()
            search.bounding = functools.partial(self.progress, "bound")
            self._check_time(search.least_bound_us())

    def _check_time(self, least_us: float) -> None:
        if self.below_us <= least_us < math.inf:
            raise TooSlowError(self.region.name, least_us, self.below_us)

    def run(self) -> tuple[Candidate, ...]:
        """The candidates, best first.

        InfeasibleError as the search, where the compiler has no registers for any schedule, and as TooSlowError where
        none that is left takes less than is allowed; CheckError if there is none for another reason.
        """
        self.check_fast_enough()
        whole, began = tuple[Candidate, ...](), self.rounds
        while self.rounds - began < (_LAST_ROUND if self._only_spills and not whole else _ORACLE_ROUNDS):
            dropped = len(self.rejected)
            try:
                whole = self._round()
            except TooSlowError:
                raise
            except InfeasibleError as error:
                raise (self._all_rejected() if self.rejected else error) from error
            if len(self.rejected) == dropped:
                break
        if not whole:
            raise self._all_rejected()
        return tuple(replace(one, certificate=self._told(one.certificate)) for one in whole)

    def drop(self, candidate: Candidate, why: str) -> None:
        """Leave out the structure of a candidate in all runs to come."""
        self.asked[candidate.source] = replace(self.asked[candidate.source], dropped=why)
        self.rejected[candidate.verified.schedule.structure] = why

    @property
    def _only_spills(self) -> bool:
        return all(one.spilled for one in self.asked.values())

    def _all_rejected(self) -> WsoptError:
        """The error for a search all of whose schedules were rejected."""
        last, why = list(self.rejected.items())[-1]
        under = f" under {self.conditions.text}" if self.conditions else ""
        text = (
            f"graph {self.region.name}{under}: {self._by_whom} each of the {len(self.rejected)} best schedules; "
            f"the last one, {last.describe()}: {why}"
        )
        if self.conditions:
            return InfeasibleError(text)
        if self._only_spills:
            return InfeasibleError(
                f"{text}; too many values live at once for a thread's registers, so make the graph two: "
                "store what the first half computes, and go on from there"
            )
        return CheckError(text)

    @property
    def _by_whom(self) -> str:
        """Who rejected schedules, in words."""
        dropped = any(one.dropped for one in self.asked.values())
        return "the compiler or the simulation rejects" if dropped else "the compiler rejects"

    def _told(self, certificate: Certificate) -> Certificate:
        """The certificate with the schedules that were rejected, in the order in which they were compiled."""
        rejected = (
            Rejected(a.verified.schedule.structure, a.verified.schedule.prediction.microseconds, why)
            for a in self.asked.values()
            if (why := a.complaint or a.dropped)
        )
        return replace(certificate, rejected=tuple(rejected))

    def _round(self) -> tuple[Candidate, ...]:
        """Search without what was rejected, and ask the compiler about each schedule found."""
        self.rounds += 1
        # What the compiler makes of a loop that computes values does not depend on what follows it.
        every = [(asked, asked.verified.program) for asked in self.asked.values()]
        spilled = frozenset(
            live_set(program)
            for asked, program in every
            if asked.spilled or (asked.complaint and program.computes_with_products)
        )
        without = frozenset(self.rejected), spilled
        found = self._ahead.get(without) or self._search(*without, self.progress)
        self._check_time(found[0][0].schedule.prediction.microseconds)
        whole = []
        for done, (verified, certificate) in enumerate(found):
            self.progress("compile", done, len(found))
            source = emit(verified)
            if source not in self.asked:
                known = self._answers.pop(source, None)
                self.asked[source] = known or self._ask(source, verified, without)
            asked = self.asked[source]
            if asked.compiled is None or asked.complaint or asked.dropped:
                self.rejected.setdefault(verified.schedule.structure, asked.complaint or asked.dropped)
            else:
                whole.append(
                    Candidate(verified, certificate, source, asked.compiled, self._searched[without])
                )
        return tuple(whole)

    def _new_search(self) -> Search:
        """A search that knows what earlier ones have found."""
        return Search(
            self.region, self.machine, conditions=self.conditions, programs=self._programs, looks=self._looks,
            solutions=self._solutions,
        )  # fmt: skip

    def _search(
        self,
        rejected: frozenset[Structure],
        spilled: frozenset[Structure],
        progress: Progress,
    ) -> tuple[Ranked, ...]:
        """The best schedules without these structures, and without those that live in as many registers."""
        search = self._new_search()
        search.rejected, search.spilled = rejected, spilled
        search.bounding = functools.partial(progress, "bound")
        search.progress = functools.partial(progress, "solve")
        search.deadline = self.deadline
        search.keep, search.orders = self.keep, ORDERS if self.keep > 1 else 1
        found = search.run_all()
        self._searched[rejected, spilled] = search.searched()
        return found

    def _ask(self, source: str, verified: VerifiedSchedule, without: _Without) -> Asked:
        """What the compiler makes of a kernel. With a core to spare the search goes on, as if it spilled, and so does
        the compiler with what that finds, until it leaves one whole.
        """
        if self.keep > 1 or cores() < _CORES:
            return ask(source, verified)
        with ahead() as give_up, ThreadPoolExecutor(1) as pool:
            compiler = _Compiler(give_up)
            compiler.kernels.put((source, verified))
            answers = pool.submit(compiler.answers)
            try:
                self._go_on(compiler.kernels, verified, without)
            finally:
                compiler.kernels.put(None)
                compiler.kernels.put(None)
            if compiler.spilled():  # there is a core for a second one now
                self._answers.update(compiler.answers())
        self._answers.update(answers.result())
        return self._answers.pop(source)

    def _go_on(self, kernels: Queue[_Kernel | None], verified: VerifiedSchedule, without: _Without) -> None:
        """Search on as if one kernel after the other spilled, until somebody gives that up or nothing is left."""
        rejected, spilled = without
        with suppress(GivenUpError, InfeasibleError):  # without a schedule the round that comes to it says so
            for _ in range(_ORACLE_ROUNDS):
                program = verified.program
                rejected, spilled = rejected | {program.structure}, spilled | {live_set(program)}
                later = rejected, spilled
                if later not in self._ahead:
                    self._ahead[later] = self._search(*later, lambda stage, done, total: None)
                verified = self._ahead[later][0][0]
                kernels.put((emit(verified), verified))


@dataclass(slots=True)
class _Compiler:
    """Compiles kernels one after the other, up to the first that does not spill; then whoever searches on is told."""

    give_up: Callable[[], None]
    kernels: Queue[_Kernel | None] = field(default_factory=Queue)
    answered: Event = field(default_factory=Event)
    whole: Event = field(default_factory=Event)

    def spilled(self) -> bool:
        """Whether the first kernel spilled, once that is known."""
        self.answered.wait()
        return not self.whole.is_set()

    def answers(self) -> dict[str, Asked]:
        """What the compiler makes of each kernel that this thread takes, by source."""
        found: dict[str, Asked] = {}
        try:
            while not self.whole.is_set() and (kernel := self.kernels.get()) is not None:
                found[kernel[0]] = ask(*kernel)
                if not found[kernel[0]].spilled:
                    self.whole.set()
                self.answered.set()
        finally:
            if self.whole.is_set() or not self.answered.is_set():
                self.whole.set()
                self.give_up()
            self.answered.set()
        return found


def ask(source: str, verified: VerifiedSchedule) -> Asked:
    """Compile a schedule's kernel and compare what came of it with what was asked for."""
    try:
        compiled = compile_kernel(source, architecture=verified.machine.architecture)
    except CompileError as error:
        return Asked(verified, None, str(error))
    return Asked(verified, compiled, "; ".join(verdict(compiled, expectation(verified))))
