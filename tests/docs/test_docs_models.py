"""Figures of the pages on cuts and on torch.compile are those of the files that they name."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    return " ".join((DOCS / name).read_text(encoding="utf-8").split())


def read(name: str) -> Any:
    return json.loads((DOCS / name).read_text(encoding="utf-8"))


def median(rounds: list[float]) -> float:
    """Without the first round, which warms up."""
    return statistics.median(rounds[1:])


def test_models() -> None:
    told, rows = page("torch.md"), 0
    for row in read("models/h200.json")["rows"]:
        plain, graph = row["plain_us"], row["graph_us"]
        theirs = median(plain["inductor"])
        for taken in plain.keys() - {"inductor"}:
            ours = median(plain[taken])
            in_graphs = median(graph["inductor"]) / median(graph[taken])
            line = (
                f"| {row['batch']}, {row['tokens']} | {taken} | {ours:,.1f} | {theirs:,.1f} | "
                f"{theirs / ours:.2f} | {in_graphs:.2f} |"
            )
            assert line in told
            rows += 1
    assert rows == told.count("| predicted | ") + told.count("| all | ")


def test_models_in_a_second_process() -> None:
    told = page("torch.md")
    for row in read("models/h200_second_process.json")["rows"]:
        plain, graph = (
            {name: statistics.median(one) for name, one in row[key].items()}
            for key in ("plain_us", "graph_us")
        )
        ours, theirs = plain["predicted"], plain["inductor"]
        in_graphs = graph["inductor"] / graph["predicted"]
        first = row["first_s"]["predicted"]
        assert f"| {ours:,.1f} | {theirs:,.1f} | {theirs / ours:.2f} | {in_graphs:.2f} | {first} |" in told
        assert max(row["error"].values()) < 0.03


def test_the_readme_tells_the_same_of_models() -> None:
    rows = {row["model"]: row for row in read("models/h200_second_process.json")["rows"]}

    def ratio(model: str, key: str = "plain_us") -> str:
        own = {name: statistics.median(one) for name, one in rows[model][key].items()}
        return f"{own['inductor'] / own['predicted']:.2f}"

    told = page("../README.md")
    long, longer, few = ratio("llama:1x2048"), ratio("llama:1x8192"), ratio("llama:1x16", "graph_us")
    assert f"{long} times as fast as with Inductor alone at 2048 tokens, {longer} times at 8192" in told
    assert f"in CUDA graphs {few} times at 16" in told
    assert f"gain nothing yet, {ratio('bert:32x512')} and {ratio('vit:32')}." in told


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
