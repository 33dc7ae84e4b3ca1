"""What CP-SAT answers to models: to one that is known and takes long the record (`records.py`).

One release of OR-Tools gives one answer to one model with one set of parameters: it works alone, with a fixed seed,
and its limit counts work. So most tests of what is made of an answer need no search until a model changes. Tests of
the answers themselves are in `tests/solve`, where all are found.
"""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import records
from ortools.sat.python import cp_model, cp_model_helper

from wsopt.solve import worker

LEAST = 0.0002
"""Work, in deterministic time, from which on an answer gets a record: a hundredth of a second of a core, where to
ask for a record takes half a hundredth.
"""

SOLVE = cp_model.CpSolver.solve

RECORDS = records.Records(
    "solver_answers",
    fault="CP-SAT answers a model in another way",
    plain=lambda found: (found["status"], found["solution"]),
    worth=lambda found: found["work"] >= LEAST,
)


@functools.cache
def _release() -> str:
    return importlib.metadata.version("ortools")


def read() -> None:
    """Read what is known, for forks of this process."""
    _release()
    RECORDS.read()


def solve(solver: cp_model.CpSolver, model: cp_model.CpModel) -> cp_model.CpSolverStatus:
    """What `CpSolver.solve` does. Raises AssertionError if the answer is not the one that is recorded."""
    parameters = solver.parameters
    if parameters.num_workers != 1 or parameters.max_time_in_seconds < float("inf"):
        return SOLVE(solver, model)  # which answer comes is a matter of the machine
    key = records.key_of(_release(), str(parameters), str(model.proto))
    answer = RECORDS.get(key, lambda: _found(solver, model))
    response = cp_model_helper.CpSolverResponse()
    response.parse_text_format(
        f"status: {answer['status']} deterministic_time: {answer['work']!r} "
        f"solution: [{','.join(map(str, spread(answer['solution'])))}]"
    )
    solver._CpSolver__response = response
    return response.status


def _found(solver: cp_model.CpSolver, model: cp_model.CpModel) -> dict[str, Any]:
    """The answer that the solver finds. What was given up on the way is none: GivenUpError."""
    status = SOLVE(solver, model)
    worker.check()
    response = solver.response_proto
    return {
        "status": status.name,
        "work": response.deterministic_time,
        "solution": gathered(response.solution),
    }


def gathered(values: Iterable[int]) -> list[int | list[int]]:
    """Values in which neighbours that are equal are one pair: the value and how many there are."""
    runs = ((value, len(list(same))) for value, same in itertools.groupby(values))
    return [value if count == 1 else [value, count] for value, count in runs]


def spread(gathered: Sequence[int | Sequence[int]]) -> Iterable[int]:
    """The values that `gathered` has gathered."""
    for one in gathered:
        value, count = (one, 1) if isinstance(one, int) else one
        yield from itertools.repeat(value, count)
