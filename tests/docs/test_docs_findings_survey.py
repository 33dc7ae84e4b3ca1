"""The diary's figures of the second survey, and of what it led to, are those of the files that it names."""

from __future__ import annotations

import statistics
from pathlib import Path

from diary import DIARY as PAGE
from diary import ROOT, measured, page_of, ratio, ratios, rows

SURVEY = sorted((ROOT / "docs/survey/second").glob("*.json"))
ROWS = rows(SURVEY)


def told(name: str, run: int = 0) -> tuple[float, float]:
    """Microseconds of a graph in one of its measurements, and its ratio to Inductor."""
    row = [row for row in ROWS if row["name"] == name][run]
    (beside,) = (ratio(one) for one in row["baselines"] if one["name"] == "inductor")
    return row["kernel_graph"]["median_us"], beside


def test_the_page_is_made_of_the_files(tmp_path: Path) -> None:
    page = (ROOT / "docs/survey_second.md").read_text(encoding="utf-8")
    assert page_of(SURVEY, tmp_path) == page


def test_second_survey() -> None:
    graphs = {path.stem for path in (ROOT / "docs/survey/second/graphs").glob("*.json")}
    assert {row["status"] for row in ROWS} == {"ok"}
    assert graphs <= {row["name"] for row in ROWS}
    assert all(any(row["name"].startswith(graph) for graph in graphs) for row in ROWS)
    beside = ratios(SURVEY)
    mean = {name: f"{statistics.geometric_mean(own.values()):.2f}" for name, own in beside.items()}
    assert f"{len(graphs)} graphs of kinds that were in no test" in PAGE
    assert f"beside Inductor {mean['inductor']} in the geometric mean of {len(beside['inductor'])}" in PAGE
    assert f"beside cuDNN's attention {mean['sdpa_cudnn']} of {len(beside['sdpa_cudnn'])}" in PAGE
    assert f"{mean['cublas']} of {len(beside['cublas'])}. Two stood out" in PAGE
    us, less = told("gn_last")
    assert f"took {us:.1f} us, {less:.2f} of Inductor, in five kernels" in PAGE
    us, more = told("gn_last", -1)
    assert f"it takes {us:.1f} us since, {more:.2f} of Inductor" in PAGE


def test_vectors_of_every_tile() -> None:
    (before, less), (after, more) = told("adaln"), told("adaln", -1)
    assert f"took {before:.1f} us for 16 images" in PAGE
    assert f"{less:.2f} of Inductor, where 23.5 were predicted" in PAGE
    assert f"The norm takes {after:.1f} us, {more:.2f} of Inductor" in PAGE
    aligned = {
        one["told"]: one["us"]
        for one in measured("calibration/h200_vectors_a_tile")["variants"]
        if (one["rows"], one["consumers"], one["occupancy"]) == (2, 3, 0)
    }
    assert f"the same kernel takes {aligned[True]:.1f} for {aligned[False]:.1f}" in PAGE


def test_places_of_tiles() -> None:
    us = {
        (one["run"], one["graph"], one["divided_by"]): f"{one['us']:.2f}"
        for one in measured("calibration/h200_tile_places")["variants"]
    }
    whole = "whole numbers"
    small = us["second", "mm_512_1024_2048", "f32, as emitted"], us["second", "mm_512_1024_2048", whole]
    others = [
        f"{us['first', name, 'f32']} for {us['first', name, whole]}"
        for name in ("mm_512_2112_2048", "rotary", "positions")
    ]
    assert f"512 x 1024 x 2048 takes {small[0]} us for {small[1]}" in PAGE
    assert f"of 512 x 2112 x 2048 {others[0]}, rotary embedding {others[1]} and a table" in PAGE
    assert f"is added {others[2]};" in PAGE
    assert f"without masks rotary embedding takes {us['first', 'rotary', 'constants, and no masks']}" in PAGE


def test_shares_or_not() -> None:
    shared, turns, *_ = measured("calibration/h200_shares_or_not")["variants"]
    assert f"stands at {shared['cublas']:.2f} of cuBLAS in cycles" in PAGE
    assert f"that are not shared reach {turns['cublas']:.2f} ([" in PAGE
    assert f"and {turns['cublas_settled']:.2f} for {shared['cublas_settled']:.2f} once both" in PAGE
    assert f"has them {100 * (turns['predicted_us'] / shared['predicted_us'] - 1):.0f} % behind" in PAGE


def test_rows_since() -> None:
    rows = {row["name"]: row for row in measured("rows/h200_taken_at_run_time")["rows"]}
    us = {name: (row["kernel_graph"] or row["kernel"])["median_us"] for name, row in rows.items()}
    copied = {
        name: ratio(next(one for one in row["baselines"] if one["name"] == "copy"))
        for name, row in rows.items()
    }
    ring = rows["ce_151936"]
    assert f"as fast as the first, {ring['predicted_us']:.1f} us: that takes {us['ce_151936']:.1f}" in PAGE
    assert f"128,256 columns is at {copied['softmax_128256']:.2f} of a copy" in PAGE
    assert f"{copied['log_softmax_128256']:.2f}" == f"{copied['softmax_128256']:.2f}"
    assert f"takes {us['sm50257']:.1f} us, {copied['sm50257']:.2f} of a copy" in PAGE
    assert f"predicted {100 * (1 - rows['sm50257']['predicted_us'] / us['sm50257']):.0f} % too fast" in PAGE
