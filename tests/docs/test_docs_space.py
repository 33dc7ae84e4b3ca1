"""The page of what the space does not hold is made from the committed figures; examples are of recorded schedules."""

from __future__ import annotations

from pathlib import Path

import pytest
import replay

from wsopt.program.limit_records import RECORDS
from wsopt.report.outside import outside_section
from wsopt.schedule.certificate import Certificate
from wsopt.solve.outside import outside_of
from wsopt.space import docs
from wsopt.space.figures import load_figures

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = DOCS / "space" / "h200.json"


def test_the_page_is_what_the_figures_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The page's links are relative to it, so it is written beside a link to the files.
    (tmp_path / "space").symlink_to(DOCS / "space")
    monkeypatch.chdir(tmp_path)
    assert docs.main(["space/h200.json", "-o", "space.md"]) == 0
    assert (tmp_path / "space.md").read_text(encoding="utf-8") == (DOCS / "space.md").read_text(
        encoding="utf-8"
    )


def test_the_figures_are_of_all_problems_and_limits_of_today() -> None:
    figures = load_figures(FIGURES)
    problems = {path.stem for path in (DOCS.parent / "problems").glob("*.json")}
    others = {path.stem for path in (DOCS / "space" / "graphs").glob("*.json")}
    assert {row.name for row in figures.rows} == problems | others
    assert {gain.limit for row in figures.rows for gain in row.gains} <= {record.limit for record in RECORDS}
    assert all(gain.best_us <= row.base_us for row in figures.rows for gain in row.gains)


def test_the_sentences_of_the_example_are_of_its_schedule() -> None:
    verified = replay.verified_of("gemm_bias_gelu")
    found = outside_of(verified.program, verified.machine, {})
    us = verified.schedule.prediction.microseconds
    certificate = Certificate(1, 0, (), 1, 0, us, 0.0, 0, (), outside=found)
    page = (DOCS / "how-it-works.md").read_text(encoding="utf-8")
    lines = [line for line in outside_section(verified, certificate, 100) if "Limits of" not in line]
    assert "\n".join(lines) in page
