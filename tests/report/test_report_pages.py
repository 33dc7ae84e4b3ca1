"""Pages show what `wsopt inspect` says of a schedule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wsopt.candidates import Contest
from wsopt.report.against import Side, against_text
from wsopt.report.text import inspect_text
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.spec import parse_conditions
from wsopt.schedule.verified import VerifiedSchedule

ROOT = Path(__file__).parents[2]


def shown(page: str, mark: str) -> list[str]:
    """The blocks of a page that stand behind a mark."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"<!-- {mark} -->\n```\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("solved", ["gemm_small_k"], indirect=True)
def test_the_words_of_the_readme(solved: tuple[VerifiedSchedule, Certificate]) -> None:
    (words,) = shown("README.md", "in-words")
    assert "compile problems/gemm_small_k.json" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\nIn words\n--------\n{words}\n" in inspect_text(*solved)


@pytest.mark.parametrize("solved", ["gemm_bias_gelu"], indirect=True)
@pytest.mark.parametrize(("page", "count"), [("how-it-works", 7), ("performance-model", 1)])
def test_the_example_that_is_followed_through(
    page: str, count: int, solved: tuple[VerifiedSchedule, Certificate]
) -> None:
    blocks, told = shown(f"docs/{page}.md", "inspect"), inspect_text(*solved)
    assert len(blocks) == count
    assert [block for block in blocks if block not in told] == []


@pytest.mark.parametrize("solved", ["gemm_small_k"], indirect=True)
def test_the_comparison_that_is_shown(solved: tuple[VerifiedSchedule, Certificate]) -> None:
    (block,) = shown("docs/against.md", "against")
    verified, certificate = solved
    conditions = parse_conditions("consumers=2,sharing=ping_pong", "here")
    (other,) = Contest(verified.program.region, verified.machine, conditions=conditions).run()
    ours = Side("this build", verified, certificate)
    theirs = Side(f"the build under {conditions.text}", other.verified, other.certificate)
    assert block in against_text(ours, theirs)
