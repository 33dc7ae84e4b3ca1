"""Result of solving one structure's model. INFEASIBLE, UNKNOWN and MODEL_INVALID are kept apart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wsopt.schedule.types import Schedule


class Outcome(StrEnum):
    """How one structure ended in the search."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Solved:
    """The outcome of one structure's model; `reason` says which budget made it infeasible.

    `objective` and `bound` are in the model's own units; equal when optimal.
    """

    outcome: Outcome
    schedule: Schedule | None
    objective: float
    bound: float
    reason: str
    seconds: float
