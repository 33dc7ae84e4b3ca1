"""The README opens with a schedule as `wsopt inspect` shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from wsopt.report.text import inspect_text
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.verified import VerifiedSchedule

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("solved", ["cross_attention"], indirect=True)
def test_the_first_picture_is_what_inspect_shows(solved: tuple[VerifiedSchedule, Certificate]) -> None:
    told = README.read_text(encoding="utf-8")
    assert "problems/cross_attention.json" in told
    picture = told.split("```\n")[1]
    assert picture.startswith("II = ")
    assert picture.rstrip("\n") in "\n".join(line.rstrip() for line in inspect_text(*solved).splitlines())
