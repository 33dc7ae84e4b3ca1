"""The certificate of a search: structures considered, dropped with the reason, solved, and the gap to the bound."""

from __future__ import annotations

from dataclasses import dataclass

from wsopt.program.types import Structure
from wsopt.schedule.outside import Outside


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """A structure that lost. `ii` is None if its bound alone dropped it; then the time is that bound."""

    structure: Structure
    microseconds: float
    ii: int | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A structure that was solved and that the compiler rejected: its predicted time, and what came of it."""

    structure: Structure
    microseconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """Counts of a search. `bound_us` is what no schedule within the model can be faster than.

    `infeasible` counts structures by the budget that ruled them out; `unfinished` those left open by a
    time limit; `margin` is the registers a thread that were kept for the compiler.

    A search that keeps several schedules gives each a `rank`, from 1: every schedule that is not among those
    before it takes `rank_bound_us` at least, within the model. `gap` is always to `bound_us`.

    `rejected` are structures that count as infeasible because the compiler was asked about them.

    All of it is of schedules that meet the `conditions`, as `schedule/spec.py` reads them; none are empty. `outside`
    is what the space of the search did not hold; None in a build from before that was written down.
    """

    considered: int
    pruned: int
    infeasible: tuple[tuple[str, int], ...]
    solved: int
    unfinished: int
    bound_us: float
    gap: float
    margin: int
    runners_up: tuple[RunnerUp, ...]
    rank: int = 1
    rank_bound_us: float = 0.0
    rejected: tuple[Rejected, ...] = ()
    conditions: str = ""
    outside: Outside | None = None

    @property
    def status(self) -> str:
        """`optimal` when nothing could be faster, neither kept before it nor left open."""
        return "optimal" if self.gap == 0.0 else "feasible"
