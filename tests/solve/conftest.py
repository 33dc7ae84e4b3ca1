"""Tests of the solver's answers and of the search: each is found, and none is taken from a record."""

from __future__ import annotations

from collections.abc import Iterator

import known_schedules
import pytest
import solver_answers
from ortools.sat.python import cp_model


@pytest.fixture(scope="module", autouse=True)
def all_is_solved(answers_that_are_known: None, schedules_that_are_known: None) -> Iterator[None]:
    """CP-SAT solves every model of every program."""
    with pytest.MonkeyPatch.context() as patch, known_schedules.all_is_searched():
        patch.setattr(cp_model.CpSolver, "solve", solver_answers.SOLVE)
        yield
