"""The predictions of backward passes in docs/cuts.md are those of their file, and its graphs are there."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from wsopt.graph.parse import load_graph

DOCS = Path(__file__).parents[2] / "docs"
FOUND = json.loads((DOCS / "rows/backward/predicted/h200.json").read_text("utf-8"))
PAGE = (DOCS / "cuts.md").read_text("utf-8")


@pytest.mark.parametrize("name", FOUND["graphs"])
def test_a_row_of_the_table_follows_from_the_file(name: str) -> None:
    graph, one = load_graph(DOCS / f"rows/backward/{name}.json"), FOUND["graphs"][name]
    tensors = [*(item.type for item in graph.inputs), *(graph.type_of(name) for name in graph.outputs)]
    rate = sum(tensor.nbytes for tensor in tensors) / one["predicted_us"] / 1e3
    assert f"| {name} | {one['kernels']} | {one['predicted_us']} | {rate:.0f} |" in PAGE


def test_the_time_before_is_told() -> None:
    assert f"{FOUND['graphs']['rms_norm_backward']['before_us']} us by the same model" in PAGE


def test_what_was_measured_is_told() -> None:
    rows = json.loads((DOCS / "rows/backward/measured/h100.json").read_text("utf-8"))["rows"]
    found = {row["folder"]: row for row in rows}
    rms, layer = (
        (
            found[f"{name}_backward"]["kernel"]["median_us"],
            *(one["ratio"] for one in found[f"{name}_backward"]["baselines"]),
        )
        for name in ("rms_norm", "layer_norm")
    )
    page = " ".join(PAGE.split())
    assert f"of an RMS norm takes {rms[0]:.1f} us, Inductor {rms[1]:.2f} times as long" in page
    assert f"a copy of as many bytes {rms[2]:.2f} of it" in page
    assert f"that of a layer norm {layer[0]:.1f} us, {layer[1]:.2f} and {layer[2]:.2f}" in page


def test_what_was_measured_on_the_other_card_is_told() -> None:
    rows = json.loads((DOCS / "rows/backward/measured/h200.json").read_text("utf-8"))["rows"]
    found = {
        row["folder"]: (row["kernel"]["median_us"], *(b["ratio"] for b in row["baselines"])) for row in rows
    }
    page = " ".join(PAGE.split())
    us, inductor, copy = found["rms_norm_backward"]
    assert (
        f"of an RMS norm {us:.1f} us, Inductor {inductor:.2f} times as long, a copy {copy:.2f} of it" in page
    )
    for name, words in (("layer_norm_backward", "layer norm"), ("softmax_backward", "softmax")):
        us, inductor, copy = found[name]
        assert f"of a {words} {us:.1f} us, {inductor:.2f} and {copy:.2f}" in page


def test_one_kernel_beside_several_is_told() -> None:
    rows = json.loads((DOCS / "calibration/h200_given_scores.json").read_text("utf-8"))["kernels"]
    us = {(row["graph"], row["variant"]): row["us"] for row in rows}
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    page = " ".join(PAGE.split())
    one, several = (
        [name for name in graphs if (us[name, "one kernel"] < us[name, "several"]) is wanted]
        for wanted in (True, False)
    )
    assert several == ["sv_2d", "pre_f8"]
    for variant in ("one kernel", "several"):
        assert listed([us[name, variant] for name in one]) in page
        assert " and ".join(f"{us[name, variant]:.1f}" for name in several) in page


def test_packed_tensors_are_told() -> None:
    page = " ".join(PAGE.split())
    rows = json.loads((DOCS / "calibration/h200_packed.json").read_text("utf-8"))["kernels"]
    us = {(row["graph"], row["variant"]): f"{row['us']:.1f}" for row in rows}
    names = ("qkv_packed", "qkv_gqa", "glu_packed", "glu_16")
    words = ("packed queries, keys and values", "grouped queries", "of a packed product", "behind 16 rows")
    for name, word in zip(names, words, strict=True):
        one, several = us[name, "one kernel"], us[name, "several"]
        told = (
            f"{word} {one} us (several kernels {several})"
            if name == names[0]
            else f"{word} {one} ({several})"
        )
        assert told in page
    for file, first, words in (
        ("h200_packed", 2, "takes {} and {} times as long for the two gates"),
        ("h200_packed_attention", 0, "as views, {} and {} times for the two attentions"),
    ):
        measured = json.loads((DOCS / f"cuts/{file}.json").read_text("utf-8"))["rows"]
        ratio = {row["name"]: row["baselines"][0]["ratio"] for row in measured}
        assert words.format(*(f"{ratio[name]:.2f}" for name in names[first : first + 2])) in page


def test_small_graphs_with_slices_are_told() -> None:
    rows = json.loads((DOCS / "cuts/h200_slices.json").read_text("utf-8"))["rows"]
    own = [row for row in rows if not row["name"].startswith("conv9_")]  # the whole, and not its kernels
    ratios = [row["baselines"][0]["graph_ratio"] for row in own]
    page = " ".join(PAGE.split())
    assert f"{len(own)} small graphs with slices" in page
    assert (
        f"takes {statistics.geometric_mean(ratios):.2f} times as long on the mean, and {min(ratios):.2f}"
        in page
    )
    assert all(row["status"] == "ok" for row in rows)


def listed(figures: list[float]) -> str:
    *most, last = (f"{figure:.1f}" for figure in figures)
    return f"{', '.join(most)} and {last}"


def test_rows_in_parts_are_told() -> None:
    data = json.loads((DOCS / "calibration/h200_few_long_rows.json").read_text("utf-8"))
    parts = {one["variant"]: one["graph_us"] for one in data["parts"]}
    whole = {one["variant"]: one for one in data["whole"]}
    page, few, lse = " ".join(PAGE.split()), whole["few_8_128256"], whole["lse_8_128256"]
    assert (
        f"take {parts['sp_8']:.1f} and {parts['sp_64']:.1f} us (in one kernel {few['graph_us']:.1f} and"
        in page
    )
    assert f"Inductor {few['graph_us'] * few['of_inductor_in_graphs']:.1f} for 8 rows" in page
    told = f"{parts['sp_lse8']:.1f} and {parts['sp_lse64']:.1f} us ({lse['graph_us']:.1f} and"
    assert f"logarithms of their sums {told}" in page
