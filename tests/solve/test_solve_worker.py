"""What a solver's status says: whether a solution is known, and whether there is one at all."""

from __future__ import annotations

import pytest
from ortools.sat.python import cp_model

from wsopt.solve.worker import has_solution, is_feasible


@pytest.mark.parametrize(
    ("status", "known", "feasible"),
    [
        (cp_model.OPTIMAL, True, True),
        (cp_model.FEASIBLE, True, True),
        (cp_model.INFEASIBLE, False, False),
        (cp_model.UNKNOWN, False, None),
    ],
)
def test_what_a_status_says(status: cp_model.CpSolverStatus, known: bool, feasible: bool | None) -> None:
    assert has_solution(status) is known
    assert is_feasible(status) is feasible
