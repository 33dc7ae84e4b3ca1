"""The diary on the sixth survey says what its files do."""

from __future__ import annotations

import statistics
from pathlib import Path

from diary import DIARY as PAGE
from diary import ROOT, page_of, ratios, rows

FOLDER = ROOT / "docs/survey/sixth"
SURVEY = sorted(FOLDER.glob("*.json"))
GRAPHS = {path.stem for path in (FOLDER / "graphs").glob("*.json")}


def test_the_page_is_made_of_the_files(tmp_path: Path) -> None:
    page = (ROOT / "docs/survey_sixth.md").read_text(encoding="utf-8")
    assert page_of(SURVEY, tmp_path) == page


def test_as_they_came() -> None:
    assert {row["name"] for row in rows(SURVEY)} >= GRAPHS
    assert {row["status"] for row in rows(SURVEY)} == {"ok"}
    beside = {name: ratio for name, ratio in ratios(SURVEY)["inductor"].items() if name in GRAPHS}
    assert set(beside) == GRAPHS
    mean, least = statistics.geometric_mean(beside.values()), min(beside, key=lambda name: beside[name])
    assert least == "embedding_bag"
    assert f"{len(GRAPHS)} of them, measured as they came ([`survey_sixth.md`]" in PAGE
    assert f"beside Inductor {mean:.2f} in the geometric mean, and the least {beside[least]:.2f}" in PAGE
    assert f"took 908.5 ({beside['three_axes']:.2f} of Inductor)" in PAGE


def test_predictions_that_were_far_off() -> None:
    last = {row["name"]: row for row in rows(SURVEY)}

    def told(name: str, unit: str = "") -> str:
        row = last[name]
        timed = row["kernel_graph"] or row["kernel"]
        return f"predicted {row['predicted_us']:.1f}{unit} and took {timed['median_us']:.1f}"

    assert f"a sum of columns, which is {told('embedding_bag_y', ' us')}" in PAGE
    assert f"were {told('rwkv_shift_xk', ' us')}, for slices" in PAGE
    assert f"along three ways is {told('three_axes', ' us')} (" in PAGE
    assert f"300 columns are {told('attentive_pool')}" in PAGE
