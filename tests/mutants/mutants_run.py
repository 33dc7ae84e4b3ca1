"""Runs a kernel's mutants, each until the first interleaving that shows its mistake."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Self

from mutants_prepared import Prepared, Run

from wsopt.errors import CheckError
from wsopt.graph.agreement import Referee, expectations
from wsopt.graph.reference import Array, random_inputs
from wsopt.interpret import Execution, Mutant, Place, deletions, execute
from wsopt.interpret.strategy import processors
from wsopt.simulation import input_draws

SEEDS_OF_LISTED = 5
"""Interleavings for a mutant that is known to change nothing."""

Attempt = tuple[int, int]
"""A case by its number, and a seed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant: the fault that showed it, empty if none did.

    `idle` says that the statement deleted is a wait that ended no product and no store in any case.
    """

    kernel: str
    place: Place
    fault: str
    idle: bool


@dataclass(slots=True)
class Bench:
    """A kernel with its inputs and who judges the outputs; the attempt that showed the last mistake goes first.

    `tried` says of each case which run of the simulation it is, and which draw of its inputs.
    """

    prepared: Prepared
    tried: list[tuple[Run, int]]
    cases: list[tuple[dict[str, Array], Callable[[], Referee], frozenset[str]]]
    attempts: list[Attempt]
    ending: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, prepared: Prepared) -> Self:
        """The bench of a kernel; AssertionError if the kernel as it is shows a fault."""
        cases, tried = [], [(run, draw) for run in prepared.runs for draw in range(input_draws(run.graph))]
        for run, draw in tried:
            inputs = random_inputs(run.graph, draw)
            cases.append(
                (inputs, functools.cache(functools.partial(_referee, run, inputs)), run.graph.constants)
            )
        most = max(run.seeds for run in prepared.runs)
        attempts = [
            (case, seed) for seed in range(most) for case, (run, _) in enumerate(tried) if seed < run.seeds
        ]
        bench = cls(prepared, tried, cases, attempts)
        for case in range(len(cases)):
            fault = bench.fault(prepared.source, (case, 0), bench.ending)
            assert not fault, f"{prepared.name} as it is: {fault}"
        return bench

    def fault(self, source: str, attempt: Attempt, ending: set[int] | None = None) -> str:
        """What one run shows of a source; empty for nothing. `ending` gains lines of waits that ended something."""
        try:
            found = self.executed(source, attempt)
        except CheckError as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
        referee = self.cases[attempt[0]][1]()
        for name in referee.expected:
            agreement = referee.agreement(name, found.outputs[name])
            if not agreement.accepted:
                return f"wrong number: {name}: {agreement.told}"
        if ending is not None:
            ending |= found.ending
        return ""

    def executed(self, source: str, attempt: Attempt) -> Execution:
        """One run of a source. Raises CheckError for what is wrong with it beside numbers."""
        (inputs, _, constants), seed = self.cases[attempt[0]], attempt[1]
        return execute(source, inputs, seed=seed, processors=processors(seed), constants=constants)

    def first_fault(self, source: str, seeds: int) -> str:
        """The first fault that shows in interleavings up to `seeds` of every case; empty if none does."""
        for attempt in [one for one in self.attempts if one[1] < seeds]:
            fault = self.fault(source, attempt)
            if fault:
                self.attempts.remove(attempt)
                self.attempts.insert(0, attempt)
                return fault
        return ""


def _referee(run: Run, inputs: dict[str, Array]) -> Referee:
    return Referee(expectations(run.graph, inputs), run.tolerance)


def outcomes(bench: Bench, chosen: Container[Place] | None, listed: Container[Place]) -> Iterator[Outcome]:
    """What became of a kernel's chosen mutants (None: all); those `listed` are tried under fewer interleavings."""
    most = max(run.seeds for run in bench.prepared.runs)
    for place, mutant in deletions(bench.prepared.source):
        if chosen is None or place in chosen:
            seeds = min(most, SEEDS_OF_LISTED) if place in listed else most
            fault = bench.first_fault(mutant.source, seeds)
            yield Outcome(bench.prepared.name, place, fault, _idle(bench, mutant))


def _idle(bench: Bench, mutant: Mutant) -> bool:
    ends_something = mutant.kind in ("drop-mma-wait", "drop-store_wait")
    return ends_something and mutant.line not in bench.ending
