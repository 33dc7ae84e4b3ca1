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
    assert f"turned took {us('gptj'):.1f} us then, {beside['gptj']:.2f} of Inductor" in PAGE
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


def variants(name: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = measured(f"calibration/{name}")["variants"]
    return found


def test_launches_of_several_axes() -> None:
    taken = {(one["graph"], one["grid"], one["changed"]): one["us"] for one in variants("h200_launch_grids")}
    each = [
        (taken[graph, "an axis each", "none"], taken[graph, "one axis", "none"])
        for graph in ("rotary", "positions")
    ]
    (rotary, before), (table, table_before) = each
    assert (
        f"rotary embedding {rotary} us for {before}, a table that is added {table} for {table_before}" in PAGE
    )
    bare = [taken[graph, "an axis each", "no masks"] for graph in ("rotary", "positions")]
    assert f"without masks {bare[0]} and {bare[1]}" in PAGE
    norms = [
        {name: us for (g, _, name), us in taken.items() if g == graph}
        for graph in ("rms_1024", "layer_norm_1024")
    ]
    rms, layer = norms
    early = "vectors loaded before the reductions"
    assert f"({rms[early]} for {rms['none']}, {layer[early]} for {layer['none']})" in PAGE
    late = "the kernel before waited for behind the addresses"
    assert f"behind the addresses ({rms[late]}, {layer[late]})" in PAGE
    assert f"streamed ({rms['stores streamed']}, {layer['stores streamed']})" in PAGE


def test_pairs() -> None:
    path = ROOT / "docs/rows/h200_pairs.json"
    taken = {row["name"]: row["kernel_graph"]["median_us"] for row in rows([path])}
    beside, copy = ratios([path])["inductor"], ratios([path])["copy"]
    pairs, gate, norm, product = "rotary_pairs", "swiglu_pairs", "norm_pairs", "complex_product"
    assert f"take {taken[pairs]:.1f} us for 58.2, {beside[pairs]:.2f} of Inductor for 0.68" in PAGE
    assert f"multiplies {taken[gate]:.1f} ({beside[gate]:.2f}), a norm" in PAGE
    assert f"products {taken[norm]:.1f} ({beside[norm]:.2f}), complex" in PAGE
    assert (
        f"products {taken[product]:.1f} ({beside[product]:.2f}), which a copy takes {copy[product]:.2f}"
        in PAGE
    )
    assert f"at {beside['rotary']:.3f} and the table at {beside['positions']:.3f}" in PAGE


def test_buffers_of_stores() -> None:
    own = {one["buffers"]: one for one in variants("h200_one_buffer") if "changed" not in one}
    waits = sorted(cycles for consumer in own[1]["waits"] for cycles in consumer)  # type: ignore[attr-defined]
    assert f"{waits[0]} to {waits[-1]:,} cycles" in PAGE
    two, three, one = (f"{own[count]['us']:.2f}" for count in (2, 3, 1))
    assert f"two buffers it takes {two} us, with three {three}, with one {one}" in PAGE


def test_constants_ahead_of_one_row() -> None:
    data = variants("h200_ahead_of_one_row")
    alone = {one["slots"]: one["us"] for one in data if one.get("rows") == 1}
    assert (
        f"ahead: {alone[9]:.2f} us. With seven slots it takes {alone[7]:.2f}, with five {alone[5]:.2f}"
        in PAGE
    )
    assert f"with four {alone[4]:.2f} (" in PAGE
    fence = {(one["kernel"], one["fence"]): one["us"] for one in data if "kernel" in one}
    assert f"({fence['i4_1', True]} us for {fence['i4_1', False]})" in PAGE
    assert fence["i4_1", True] / fence["i4_1", False] == pytest.approx(1.02, abs=0.005)  # type: ignore[operator]
    for kernel, more in (("i4_16", 1.007), ("i8_16", 1.007), ("blocks_4096x4096x7168", 1.01)):
        assert fence[kernel, True] / fence[kernel, False] == pytest.approx(more, abs=0.001)  # type: ignore[operator]
    since = {row["name"]: row for row in rows([ROOT / "docs/quantized/h200_ahead.json"])}
    assert f"five of nine slots, and {since['i4_1']['kernel_graph']['median_us']:.1f} us" in PAGE
