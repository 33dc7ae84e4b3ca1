"""Real solves, each made once a session."""

from __future__ import annotations

from pathlib import Path

import pytest
from fewer_structures import one_of

from wsopt.candidates import Contest
from wsopt.frontend.region import find_region
from wsopt.graph.parse import load_graph
from wsopt.machine.load import load_machine
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.verified import VerifiedSchedule

PROBLEMS = Path(__file__).parents[2] / "problems"


WHOLE = ("gemm_small_k", "gemm_bias_gelu")
"""Problems whose reports pages show."""


@pytest.fixture(scope="session", params=[*WHOLE, "gemm_f8", "gemm_residual", "cross_attention"])
def solved(request: pytest.FixtureRequest) -> tuple[VerifiedSchedule, Certificate]:
    """What `wsopt compile` hands over: the best that the compiler leaves whole. Of problems that no page shows, the
    best of a sixth of the structures: reports have all that others have then, without thousands of bounds.
    """
    region = find_region(load_graph(PROBLEMS / f"{request.param}.json"))
    with one_of(1 if request.param in WHOLE else 6):
        (found,) = Contest(region, load_machine("h200")).run()
    return found.verified, found.certificate
