"""Runs CP-SAT with fixed parameters, so that the same model gives the same answer.

What is solved ahead, while it is not known whether anybody will want the answer, can be given up at any time.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ortools.sat.python import cp_model

_LEAST_SECONDS = 0.01


class GivenUpError(Exception):
    """Nobody wants the answer any more. What was being computed is not kept."""


@dataclass(slots=True)
class _Work:
    """The solver at work, whether it has been told to stop, the deterministic time of all that was solved, and the
    moment, by the monotonic clock, at which the time for solving is over.
    """

    solver: cp_model.CpSolver | None = None
    given_up: bool = False
    spent: float = 0.0
    end: float = math.inf


_WORK = _Work()


def solved(model: cp_model.CpModel, limit: float) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
    """Solve with one worker, a fixed seed, and a limit that counts work (deterministic time) instead of seconds.
    Where the time is limited too (`limited`) the solver stops when it is over, with what it has.

    Raises GivenUpError if the work was given up. A model that OR-Tools calls invalid is a fault of this program and
    raises RuntimeError.
    """
    solver = _WORK.solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = max(0.0, limit)
    if _WORK.end < math.inf:
        solver.parameters.max_time_in_seconds = max(_LEAST_SECONDS, _WORK.end - time.monotonic())
    check()
    status = solver.solve(model)
    _WORK.spent += solver.response_proto.deterministic_time
    check()
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"invalid model: {model.validate()}")
    return solver, status


def has_solution(status: cp_model.CpSolverStatus) -> bool:
    """Whether the solver has found a solution, the best one or not."""
    return status in (cp_model.OPTIMAL, cp_model.FEASIBLE)


def is_feasible(status: cp_model.CpSolverStatus) -> bool | None:
    """Whether a model has a solution at all; None where that was left open."""
    return True if has_solution(status) else {cp_model.INFEASIBLE: False}.get(status)


def spent() -> float:
    """Deterministic time that this process has spent in solving."""
    return _WORK.spent


def check() -> None:
    """Raise GivenUpError if this thread's work was given up."""
    if _WORK.given_up:
        raise GivenUpError


@contextmanager
def uncollected() -> Iterator[None]:
    """A context in which Python looks for no cycles of garbage, for work that makes many records and no cycles: each
    look goes through all that is kept, a tenth of the time of a search's bounds.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextmanager
def limited(end: float) -> Iterator[None]:
    """A context in which nothing is solved beyond a moment of the monotonic clock."""
    before, _WORK.end = _WORK.end, end
    try:
        yield
    finally:
        _WORK.end = before


@contextmanager
def ahead() -> Iterator[Callable[[], None]]:
    """A context for work of this thread that another one may have given up, by calling what the context gives."""

    def give_up() -> None:
        _WORK.given_up = True
        if _WORK.solver is not None:
            _WORK.solver.stop_search()

    _WORK.given_up = False
    try:
        yield give_up
    finally:
        _WORK.given_up = False
