"""The README shows what `wsopt inspect` says of a schedule in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wsopt.report.text import inspect_text
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.verified import VerifiedSchedule

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("solved", ["gemm_small_k"], indirect=True)
def test_the_words_are_those_of_inspect(solved: tuple[VerifiedSchedule, Certificate]) -> None:
    told = README.read_text(encoding="utf-8")
    (words,) = re.findall(r"<!-- in-words -->\n```\n(.*?)```", told, re.DOTALL)
    assert "compile problems/gemm_small_k.json" in told
    assert f"\nIn words\n--------\n{words}\n" in inspect_text(*solved)
