"""The diary on the fifth survey and on which gradients of norms are fastest says what its files do."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from diary import DIARY as PAGE
from diary import ROOT, measured, page_of, ratios, rows

FOLDER = ROOT / "docs/survey/fifth"
SURVEY = sorted(FOLDER.glob("*.json"))
GRAPHS = {path.stem for path in (FOLDER / "graphs").glob("*.json")}
VIEW = "bhnd_permute"


def test_the_page_is_made_of_the_files(tmp_path: Path) -> None:
    page = (ROOT / "docs/survey_fifth.md").read_text(encoding="utf-8")
    assert page_of(SURVEY, tmp_path) == page


def test_as_they_came() -> None:
    assert {row["name"] for row in rows(SURVEY)} >= GRAPHS
    assert [row["name"] for row in rows(SURVEY) if row["status"] != "ok"] == ["retention_chunk"]
    beside = {name: {k: v for k, v in own.items() if k in GRAPHS} for name, own in ratios(SURVEY).items()}
    assert beside["inductor"].pop(VIEW) < 0.01
    mean = {name: f"{statistics.geometric_mean(own.values()):.2f}" for name, own in beside.items() if own}
    ours, least = beside["inductor"], min(beside["inductor"].values())
    assert f"{len(GRAPHS)} graphs that were in no test, measured as they came ([`survey_fifth.md`]" in PAGE
    told = f"{mean['inductor']} in the geometric mean of {len(ours)} graphs, and the least {least:.2f}"
    assert told in PAGE
    attention = beside["sdpa_cudnn"]
    assert f"cuDNN's attention {mean['sdpa_cudnn']} of {len(attention)}. A permutation" in PAGE


def test_what_is_not_answered() -> None:
    last = {row["name"]: row for row in rows(SURVEY)}

    def told(name: str) -> str:
        row = last[name]
        return f"predicted {row['predicted_us']:.1f} us and took {row['kernel_graph']['median_us']:.1f}"

    assert f"with 40 rows are {told('i8_gelu_40')}" in PAGE
    assert f"along a sequence is {told('dwconv1d_silu').replace(' us', '')}" in PAGE
    assert "element [0, 5, 0, 62, 1] is 3.309778e+38, inf is meant" in last["retention_chunk"]["message"]


def test_one_row_for_each_consumer() -> None:
    def of(graph: str, rank: int) -> dict[str, Any]:
        found: list[dict[str, Any]] = measured("calibration/h200_gradients_chosen")["variants"]
        return next(one for one in found if (one["graph"], one["rank"]) == (graph, rank))

    def us(graph: str, rank: int) -> str:
        return f"{of(graph, rank)['us']:.1f}"

    norm, saved = "layer_norm_backward", "ln_bwd_odd"
    assert all(of(graph, 1)["rows"] == of(graph, 1)["consumers"] for graph in (norm, saved))
    assert of(saved, 4)["rows"] == 2 * of(saved, 4)["consumers"]
    told = f"took {us(norm, 1)} us so and {us(norm, 2)} with one consumer of eight warps"
    assert f"{told}, those with saved statistics {us(saved, 1)} us, and {us(saved, 4)} with two rows" in PAGE


def test_rows_beyond_the_end() -> None:
    """The survey measured the graph of 40 rows; here are its neighbours."""
    found = measured("calibration/h200_rows_beyond")["variants"]
    of = {(one["rows"], one["columns"]): one for one in found}
    wide = {rows: f"{of[rows, 64]['us']:.1f}" for rows in (40, 48, 64)}
    assert (
        f"was predicted {of[40, 64]['predicted_us']:.1f} us and took {wide[40]}, with 48 rows {wide[48]}"
        in PAGE
    )
    assert f"by the same tiles, {wide[64]} as predicted" in PAGE
    assert f"{of[64, 64]['predicted_us']:.1f}" == wide[64]
    assert f"With 48 it takes {of[40, 48]['us']:.1f} us" in PAGE
    parts = {row["folder"]: row for row in measured("calibration/h200_few_rows_parts")["rows"]}

    def both(name: str) -> str:
        before, after = (parts[f"{when}/{name}"]["kernel_graph"]["median_us"] for when in ("before", "after"))
        return f"{before:.1f} -> {after:.1f} us"

    ratio = parts["after/p40_4096_4096"]["baselines"][0]["graph_ratio"]
    assert f"40 rows by 4096 x 4096 {both('p40_4096_4096')} ({ratio:.2f} of cuBLAS), by 14,336 x 4096" in PAGE
    assert (
        f"by 14,336 x 4096 {both('p40_14336_4096')}, 80 rows by 8192 x 8192 {both('p80_8192_8192')}" in PAGE
    )
    assert f"and 48 by 8192 x 4096 {both('p48_8192_4096')}." in PAGE
