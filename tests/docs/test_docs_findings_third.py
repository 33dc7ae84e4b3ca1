"""The diary on the third survey, on loads under way, and on blocks that share an SM says what its files do."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from diary import DIARY as PAGE
from diary import ROOT, measured, page_of, ratios, rows

SURVEY = sorted((ROOT / "docs/survey/third").glob("*.json"))


def us(name: str, run: int = -1) -> float:
    taken = [row["kernel_graph"] for row in rows(SURVEY) if row["name"] == name and row["kernel_graph"]]
    return float(taken[run]["median_us"])


def test_the_page_is_made_of_the_files(tmp_path: Path) -> None:
    page = (ROOT / "docs/survey_third.md").read_text(encoding="utf-8")
    assert page_of(SURVEY, tmp_path) == page


def test_as_they_came() -> None:
    first = [path for path in SURVEY if path.stem.endswith("_1")]
    graphs = {path.stem for path in (ROOT / "docs/survey/third/graphs").glob("*.json")}
    assert graphs <= {row["name"] for row in rows(first)}
    assert [row["name"] for row in rows(first) if row["status"] != "ok"] == ["gptj"]
    came = ratios(first)
    mean = {name: f"{statistics.geometric_mean(own.values()):.2f} " for name, own in came.items()}
    assert f"{len(graphs)} graphs that were in no test" in PAGE
    assert (
        f"beside Inductor {mean['inductor']}in the geometric mean of {len(came['inductor'])} kernels" in PAGE
    )
    assert f"beside cuDNN's attention {mean['sdpa_cudnn']}of {len(came['sdpa_cudnn'])}" in PAGE
    assert f"which has the product alone, {mean['cublas']}of {len(came['cublas'])}. One was wrong" in PAGE


def test_since() -> None:
    last, came = ratios(SURVEY), ratios([path for path in SURVEY if path.stem.endswith("_1")])
    beside, cudnn = last["inductor"], last["sdpa_cudnn"]
    assert f"take {us('gptj'):.1f} us since, {beside['gptj']:.2f} of Inductor" in PAGE
    mean = "col_mean_var"
    assert f"columns took {us(mean, 0):.1f} us, {came['inductor'][mean]:.2f} of Inductor" in PAGE
    assert f"it takes {us(mean):.1f} us, {beside[mean]:.2f}." in PAGE
    assert f"72 over 256 keys take {us('dit'):.1f} us for {us('dit', 0):.1f}, {cudnn['dit']:.2f} of" in PAGE
    assert f"over 77 keys {cudnn['sv_cross77']:.2f} of cuDNN (1.01)" in PAGE
    assert f"77 keys and queries {cudnn['att_clip']:.2f} (1.22)" in PAGE
    assert f"197 keys {cudnn['att_vit']:.2f} (1.09)" in PAGE
    assert f"heads of 64 in f16 {cudnn['att_f16_1k']:.2f} (0.98)" in PAGE
    assert f"with heads of 64 {cudnn['att_bert']:.2f} (1.05)" in PAGE


@pytest.mark.parametrize(
    ("graph", "blocks", "text"),
    [
        ("cross77", 4, "it takes {:.1f} us for {:.1f}, as blocks"),
        ("sink_window", 4, "with sinks takes {:.1f} us for {:.1f}"),
        ("att_vit", 4, "197 keys {:.1f} for {:.1f}"),
        ("att_clip", 4, "77 keys and queries {:.1f} for {:.1f}"),
        ("attention_causal", 2, "4,096 keys loses by it, {:.0f} us for {:.0f}"),
    ],
)
def test_blocks_that_share_an_sm(graph: str, blocks: int, text: str) -> None:
    own = [one for one in measured("calibration/h200_blocks_of_values")["variants"] if one["graph"] == graph]
    several = min(one["us"] for one in own if one["blocks"] == blocks)
    alone = [one for one in own if one["blocks"] == 1 and one["consumers"] > 1]
    first = min(alone, key=lambda one: float(one["predicted_before_us"]))
    assert text.format(several, first["us"]) in PAGE


def test_loads_that_copies_overwrote() -> None:
    fences = measured("calibration/h200_fences")
    taken = {(one["graph"], one["variant"]): one["us"] for one in fences["variants"]}
    assert "21,204 to 32,262 of 33.5 million elements were another tile's" in PAGE
    assert "21,204 to 32,262 of its 33.5 million elements were wrong" in fences["doc"]
    for graph in ("softmax_4096", "rms_8192"):
        assert f"{taken[graph, 'fence']:.2f} " in PAGE
        assert f" for {taken[graph, 'own']:.2f}" in PAGE
    longest = taken["softmax_128256", "fence"] / taken["softmax_128256", "own"] - 1
    assert f"{longest:.1%}".replace("%", " %") in PAGE
    assert f"each thread has the next 32 bytes. {taken['gptj', 'own']:.0f} us for 44.3 predicted" in PAGE
