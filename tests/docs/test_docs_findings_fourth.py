"""The diary on the fourth survey, on who contends, on columns together and on pairs says what its files do."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from diary import DIARY as PAGE
from diary import ROOT, measured, page_of, ratios, rows

SURVEY = sorted((ROOT / "docs/survey/fourth").glob("*.json"))
SINCE = ROOT / "docs/survey/fourth/h200_rows_3.json"
AHEAD = "values of rows a tile ahead"
TOGETHER = "a thread has all rows of its columns and carries one value of each"


def us(file: str, **chosen: Any) -> float:
    """The time of a variant in a file of measurements, the first of those that are as chosen."""
    found = measured(f"calibration/{file}")["variants"]
    return next(float(one["us"]) for one in found if chosen.items() <= one.items())


def test_the_page_is_made_of_the_files(tmp_path: Path) -> None:
    page = (ROOT / "docs/survey_fourth.md").read_text(encoding="utf-8")
    assert page_of(SURVEY, tmp_path) == page


def test_as_they_came() -> None:
    graphs = {path.stem for path in (ROOT / "docs/survey/fourth/graphs").glob("*.json")}
    came = [path for path in SURVEY if path != SINCE]
    assert graphs <= {row["name"] for row in rows(came)}
    assert [row["name"] for row in rows(came) if row["status"] != "ok"] == ["adamw_bf16"]
    beside = {name: {k: v for k, v in own.items() if k in graphs} for name, own in ratios(came).items()}
    mean = {name: f"{statistics.geometric_mean(own.values()):.2f}" for name, own in beside.items()}
    assert f"{len(graphs)} graphs that were in no test" in PAGE
    assert f"{mean['inductor']} in the geometric mean of {len(beside['inductor'])} graphs" in PAGE
    assert f"product alone, {mean['cublas']} of {len(beside['cublas'])}. Under Inductor" in PAGE
    assert {name for name, one in beside["inductor"].items() if one < 1} == {"ln_bwd_odd", "cumsum_exp"}
    last = ratios([SINCE])["inductor"]
    norm = "ln_bwd_odd"
    assert f"statistics, {beside['inductor'][norm]:.2f}, which is {last[norm]:.2f} since" in PAGE
    assert f"chunks, {beside['inductor']['cumsum_exp']:.2f}, two kernels" in PAGE
    (product,) = (row for row in rows(came) if row["name"] == "bias_res_2880")
    (cublas,) = (one for one in product["baselines"] if one["name"] == "cublas")
    assert f"at {beside['cublas']['bias_res_2880']:.2f} of cuBLAS in turns and" in PAGE
    assert f"{cublas['settled_ratio']:.2f} settled" in PAGE
    (sigmoid,) = (row for row in rows(came) if row["name"] == "sigmoid_attention")
    took = sigmoid["kernel_graph"]["median_us"]
    told = f"predicted {sigmoid['predicted_us']:.1f} us and took {took:.1f}, at whatever clock the card had"
    assert f"{told}; it is {beside['inductor']['sigmoid_attention']:.1f} of Inductor" in PAGE


def test_who_contends() -> None:
    def of(graph: str, model: str) -> float:
        return us("h200_rows_of_consumers", graph=graph, model=model)

    first, *others = ((of(g, "before"), of(g, "since")) for g in ("relbias", "triangle", "att_t5"))
    told = f"{first[0]:.1f} -> {first[1]:.1f} us, {others[0][0]:.1f} -> {others[0][1]:.1f} and"
    assert f"{told} {others[1][0]:.1f} -> {others[1][1]:.1f} for three graphs" in PAGE
    less = 1 - of("att_bert", "since") / of("att_bert", "before")
    assert f"heads of 64 take {100 * less:.1f} % less" in PAGE


def test_columns_together() -> None:
    def of(graph: str, run: int, changed: str, **more: Any) -> float:
        return us("h200_columns_together", graph=graph, run=run, changed=changed, **more)

    norm, own = "ln_bwd_odd", {"consumer_warps": 8}
    assert f"took {of(norm, 4, 'none', **own):.1f} us, 0.67 of Inductor" in PAGE
    assert f"loaded a tile ahead, {of(norm, 4, AHEAD, **own):.1f}." in PAGE
    bare = f"{AHEAD}, parts not brought together, no parts left"
    assert f"without that {of(norm, 7, bare, **own):.1f} us" in PAGE
    now, then = of(norm, 8, f"{AHEAD}, {TOGETHER}", **own), of(norm, 8, AHEAD, **own)
    assert f"{now:.1f} us for {then:.1f} in one run" in PAGE
    rms, layer = "rms_norm_backward", "layer_norm_backward"
    assert f"gradients {of(rms, 8, TOGETHER):.1f} for {of(rms, 8, 'none'):.1f}" in PAGE
    assert f"columns {of(layer, 8, TOGETHER):.1f} for {of(layer, 8, 'none'):.1f}" in PAGE
    last = ratios([SINCE])["inductor"]
    assert f"Beside Inductor {last[norm]:.2f}, {last[rms]:.2f} and {last[layer]:.2f}" in PAGE
    chosen, two = of(layer, 9, "as chosen since"), of(layer, 9, TOGETHER)
    assert f"three slots, {chosen:.1f} us, where two rows take {two:.1f};" in PAGE


def test_pairs() -> None:
    def of(run: int, changed: str, warps: int) -> float:
        return us("h200_rounded_in_pairs", run=run, changed=changed, consumer_warps=warps, blocks=4)

    rounded = "rounded two at a time"
    assert f"MUFU pipe: {of(5, 'none', 8):.1f} us with eight warps a row, {of(5, rounded, 8):.1f}" in PAGE
    assert f"and {of(5, 'none', 4):.1f} and {of(5, rounded, 4):.1f} with four warps" in PAGE
    early = "both tiles loaded first"
    told = f"first norm, {of(4, early, 8):.1f} us for {of(4, 'none', 8):.1f} and"
    assert f"{told} {of(4, early, 4):.1f} for {of(4, 'none', 4):.1f}" in PAGE
