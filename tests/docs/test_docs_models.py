"""Figures of the pages on cuts and on torch.compile are those of the files that they name."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from wsopt.machine.load import load_machine

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    return " ".join((DOCS / name).read_text(encoding="utf-8").split())


def read(name: str) -> Any:
    return json.loads((DOCS / name).read_text(encoding="utf-8"))


def medians(row: Any, key: str) -> dict[str, float]:
    return {name: statistics.median(one) for name, one in row[key].items()}


FILES = ("h200_models", "h200_second_process")


def test_models() -> None:
    told = page("torch.md")
    for row in (row for file in FILES for row in read(f"models/{file}.json")["rows"]):
        plain, graph = (medians(row, key) for key in ("plain_us", "graph_us"))
        ours, theirs = plain["predicted"], plain["inductor"]
        in_graphs = graph["inductor"] / graph["predicted"]
        first = row["first_s"]["predicted"]
        assert f"| {ours:,.1f} | {theirs:,.1f} | {theirs / ours:.2f} | {in_graphs:.2f} | {first} |" in told
        assert max(row["error"].values()) < 0.03


def test_models_without_a_compiler_and_on_another_card() -> None:
    told, rows = page("torch.md"), {row["model"]: row for row in read("models/h200_models.json")["rows"]}
    bert, vit = (medians(rows[name], "plain_us") for name in ("bert:32x512", "vit:32"))
    ratios = " and ".join(f"{one['eager'] / one['predicted']:.2f}" for one in (bert, vit))
    assert f"BERT takes {bert['eager']:,.1f} us and ViT {vit['eager']:,.1f}, {ratios} times as long" in told
    (row,) = read("models/h100.json")["rows"]
    found = medians(row, "plain_us")
    assert (
        f"1 x 2048 takes {found['predicted']:,.1f} us, Inductor {found['inductor']:,.1f}, with `max-autotune` "
        f"{found['max-autotune']:,.1f}."
    ) in told
    second = [read(f"models/{file}.json")["second_process_s"] for file in ("h200_models", "h100")]
    assert f"has {second[0]['bert:32x512']} s for BERT's first call" in told
    assert f"{second[1]['vit:32']} s for ViT's" in told


def test_models_beside_autotuned_ones() -> None:
    told, rows = page("torch.md"), {row["model"]: row for row in read("models/h200_autotuned.json")["rows"]}
    found, few = medians(rows["llama:1x2048"], "plain_us"), medians(rows["llama:1x16"], "graph_us")
    assert (
        f"1 x 2048 takes {found['predicted']:,.1f} us, Inductor {found['inductor']:,.1f}, with `max-autotune` "
        f"{found['max-autotune']:,.1f}; 1 x 16 in CUDA graphs {few['predicted']:.1f}, {few['inductor']:.1f} and "
        f"{few['max-autotune']:.1f}."
    ) in told
    bert, vit = (medians(rows[name], "plain_us")["predicted"] for name in ("bert:32x512", "vit:32"))
    assert f"In the same run BERT takes {bert:,.1f} us and ViT {vit:,.1f}," in told
    assert max(max(row["error"].values()) for row in rows.values()) < 0.03


def test_models_as_they_came() -> None:
    told = page("torch.md")
    for row in read("models/h200_later_models.json")["rows"]:
        plain, graph = (medians(row, key) for key in ("plain_us", "graph_us"))
        ratios = [one["inductor"] / one["predicted"] for one in (plain, graph)]
        name = row["model"].replace(",", ", ").replace("|", "/")
        times = f"{plain['predicted']:,.1f} | {plain['inductor']:,.1f} | {ratios[0]:.2f} | {ratios[1]:.2f}"
        assert f"| `{name}` | {times} | {row['first_s']['predicted']} |" in told
        assert row["error"]["predicted"] < max(1.2 * row["error"]["inductor"], 1e-3)
        assert min(ratios) > 1


def test_more_models_beside_autotuned_ones() -> None:
    told, rows = (
        page("torch.md"),
        {row["model"]: row for row in read("models/h200_max_autotune.json")["rows"]},
    )
    plain = {
        name: {who: f"{us:,.1f}" for who, us in medians(row, "plain_us").items()}
        for name, row in rows.items()
    }
    four, long, vit, bert = (
        plain[name] for name in ("llama:4x2048", "llama:1x8192", "vit:32", "bert:32x512")
    )
    graph = {who: f"{us:,.1f}" for who, us in medians(rows["llama:4x2048"], "graph_us").items()}
    assert (
        f"4 x 2048 takes {four['predicted']} us, Inductor {four['inductor']}, with `max-autotune` "
        f"{four['max-autotune']}, and in CUDA graphs {graph['predicted']}, {graph['inductor']} and "
        f"{graph['max-autotune']}; 1 x 8192 takes {long['predicted']}, {long['inductor']} and "
        f"{long['max-autotune']}, without a compiler {long['eager']}."
    ) in told
    assert (
        f"With `max-autotune` ViT takes {vit['max-autotune']} us and BERT {bert['max-autotune']}, where this backend "
        f"takes {vit['predicted']} and {bert['predicted']}."
    ) in told
    assert max(max(row["error"].values()) for row in rows.values()) < 0.03


def test_models_of_other_types() -> None:
    told = page("torch.md")
    for card in ("H200", "H100"):
        document = read(f"models/{card.lower()}_more_models.json")
        assert card in document["machine"]["device"]
        for row in document["rows"]:
            own, graph = medians(row, "plain_us"), medians(row, "graph_us")
            name = row["model"].replace(",", ", ")
            assert (
                f"| `{name}` | {card} | {own['predicted']:,.1f} | {own['inductor']:,.1f} | "
                f"{own['inductor'] / own['predicted']:.2f} | {graph['inductor'] / graph['predicted']:.2f} | "
                f"{own['eager'] / own['predicted']:.2f} |"
            ) in told
            assert row["error"]["predicted"] < max(0.03, row["error"]["inductor"])
    document = read("models/h200_more_models.json")
    tuned = [medians(document["rows"][0], way)["max-autotune"] for way in ("plain_us", "graph_us")]
    assert f"`max-autotune` takes {tuned[0]:,.1f} us, in CUDA graphs {tuned[1]:,.1f}." in told
    before = [medians(row, "plain_us") for row in document["before"]]
    first, second = (f"{one['inductor'] / one['predicted']:.2f}" for one in before)
    assert f"stood at {first} (T5) and {second} (Mistral)" in told


def test_a_step_behind_a_cache() -> None:
    (row,) = read("models/h200_decode_step.json")["rows"]
    assert f"takes {beside_inductor(row)}" in page("torch.md")
    assert row["error"]["predicted"] < 0.03


def test_keys_that_are_read_in_place() -> None:
    graphs = [medians(row, "graph_us") for row in read("models/h200_grouped_keys.json")["rows"]]
    short, long, mistral = ({name: f"{us:,.1f}" for name, us in one.items()} for one in graphs)
    told = page("torch.md")
    assert f"{short['all']} us for 1 x 16 (Inductor {short['inductor']})" in told
    assert f"{long['all']} for 1 x 2048 ({long['inductor']})" in told
    assert f"{mistral['all']} for 1 x 512 ({mistral['inductor']})" in told
    predicted = [one["predicted"] for one in (short, long, mistral)]
    assert f"to be faster {predicted[0]}, {predicted[1]} and {predicted[2]}." in told


def test_kernels_among_others() -> None:
    graphs = [medians(row, "graph_us") for row in read("models/h200_among.json")["rows"]]
    told = page("torch.md")
    for mark, name in (("of another run): ", "predicted"), ("all pieces ", "all"), ("Inductor ", "inductor")):
        first, second, third = (f"{one[name]:,.1f}" for one in graphs)
        assert f"{mark}{first}, {second} and {third}" in told, name


def test_joined_products_of_frozen_weights() -> None:
    found = read("models/h200_frozen.json")["median_us"]
    told = page("torch.md")
    assert (
        f"1 x 16 takes {found['frozen']} us beside {found['all']} without and {found['inductor']} by" in told
    )
    weights = 4 * 2 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14336)
    bound = weights / load_machine("h200").dram_sustained_bandwidth * 1e6
    assert f": {found['frozen'] / bound:.2f} times the time of its weights' bytes" in told


def test_a_gate_with_packed_weights() -> None:
    (row,) = read("models/h200_packed_gate.json")["rows"]
    assert f"on an H200: {beside_inductor(row)} (" in page("torch.md")
    assert row["error"]["predicted"] < row["error"]["inductor"]


def beside_inductor(row: dict[str, Any]) -> str:
    """What a model takes, plainly and out of CUDA graphs."""
    plain, graph = medians(row, "plain_us"), medians(row, "graph_us")
    return (
        f"{plain['predicted']:,.1f} us, {plain['inductor']:,.1f} by Inductor, and in CUDA graphs "
        f"{graph['predicted']:,.1f} and {graph['inductor']:,.1f}"
    )


def test_the_diary_tells_of_prices_of_attention() -> None:
    told = page("findings.md")
    rates = json.loads((DOCS.parent / "wsopt" / "torch" / "rates.json").read_text(encoding="utf-8"))["rows"]
    us = {tuple(row["shape"]): row["us"] for row in rates if row["kind"] == "attention"}
    assert (
        f"64 heads of 2,048 keys take {us[64, 2048, 128, 2]:,.1f} us, and {us[64, 2048, 128, 0]:,.1f} without"
        in told
    )
    document = read("models/h200_more_models.json")
    (after,) = (medians(row, "plain_us") for row in document["rows"] if row["model"].startswith("t5,"))
    before = medians(document["before"][0], "plain_us")
    assert f"encoder took {before['predicted']:,.1f} us, by Inductor alone {before['inductor']:,.1f}:" in told
    assert f"the encoder takes {after['predicted']:,.1f} us" in told
    step = medians(read("models/h100_more_models.json")["rows"][0], "plain_us")
    assert f"takes {step['predicted']:,.1f} us on an H100, {step['inductor']:,.1f} by Inductor" in told


def test_the_readme_tells_the_same_of_models() -> None:
    rows = {row["model"]: row for file in FILES for row in read(f"models/{file}.json")["rows"]}

    def ratio(model: str, key: str = "plain_us", other: str = "inductor") -> str:
        own = medians(rows[model], key)
        return f"{own[other] / own['predicted']:.2f}"

    told = page("../README.md")
    long, longer, few = (ratio(f"llama:1x{tokens}") for tokens in (2048, 8192, 16))
    assert (
        f"{long} times as fast as with Inductor alone at 2048 tokens, {longer} times at 8192, {few} times at 16"
        in told
    )
    assert f"{ratio('llama:1x16', 'graph_us')} times in CUDA graphs" in told
    bert, vit = "bert:32x512", "vit:32"
    assert f"BERT-large and ViT-L {ratio(bert)} and {ratio(vit)} times" in told
    eager = " and ".join(ratio(name, other="eager") for name in (bert, vit))
    assert f"{eager} times as fast as without a compiler." in told
    more = [row for card in ("h200", "h100") for row in read(f"models/{card}_more_models.json")["rows"]]
    rows = {row["model"].partition(",")[0].partition("@")[0]: row for row in reversed(more)}
    t5, mistral, gpt2, qwen2, step = map(ratio, ("t5", "mistral", "gpt2", "qwen2", "llama:16x1"))
    assert (
        f"T5's encoder takes {t5} times as long with Inductor alone, layers of Mistral with a window {mistral} "
        f"times, GPT-2 {gpt2} times, Qwen2 {qwen2} times; on an H100 a token of a Llama for each of 16 sequences "
        f"behind a cache of 8,192 takes {step} times as long." in told
    )


def test_families() -> None:
    rows, told = read("models/families.json")["rows"], page("torch.md")
    whole = [row["family"] for row in rows if row["share"] == 1]
    assert f"models of {len(rows)} families" in told
    assert f"| {', '.join(whole)} | 100% |" in told
    assert all(f"| {r['family']} | {100 * r['share']:.1f}% |" in told for r in rows if r["share"] < 1)
    assert max(row["error"] / row["error_without"] for row in rows) < 1.25


def test_cuts() -> None:
    told = page("cuts.md")
    small_mlp, small_block, mlp, block = read("cuts/h200.json")["rows"]

    def ratio(row: dict[str, Any], key: str = "ratio") -> float:
        return float(next(one[key] for one in row["baselines"] if one["name"] == "inductor"))

    assert f"predicted {mlp['predicted_us']:,.1f} us, measured {mlp['kernel']['median_us']:,.1f} us" in told
    assert f"Inductor {ratio(mlp):.2f} times as long" in told
    assert f"{block['kernel']['median_us']:,.1f} us of {block['predicted_us']:,.1f} predicted" in told
    assert f"takes {ratio(block):.2f} times as long" in told
    assert f"{ratio(small_mlp, 'graph_ratio'):.2f} and {ratio(small_block, 'graph_ratio'):.2f}" in told


def test_shares() -> None:
    told = page("findings.md")
    shared, whole, _ = read("calibration/h200_shares.json")["rows"]
    times = (shared["kernel"]["median_us"], whole["kernel"]["median_us"])
    ratios = [row["baselines"][0]["ratio"] for row in (shared, whole)]
    assert f"takes {times[0]:.1f} us, without {times[1]:.1f} (" in told
    assert f"which is {ratios[0]:.3f} and {ratios[1]:.3f} of cuBLAS" in told
    assert f"predicted {shared['predicted_us']:.1f} and {whole['predicted_us']:.1f} us" in told
