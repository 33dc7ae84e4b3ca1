"""The rates that pieces are held against: each is the best of its kind in the committed measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from room_imports import ROOT

from wsopt.graph import GraphBuilder
from wsopt.machine import Machine, load_machine
from wsopt.torch.rates import inductor_us, measured

RATES = json.loads((ROOT / "wsopt" / "torch" / "rates.json").read_text(encoding="utf-8"))["rates"]


def rate(row: dict[str, Any], baseline: dict[str, Any], unit: str) -> float:
    times = [baseline[key]["median_us"] for key in ("time", "graph_time") if baseline[key] is not None]
    return float((row["flops"] if unit == "FLOP/s" else row["bytes"]) / min(times) * 1e6)


@pytest.mark.parametrize("one", RATES, ids=lambda one: one["kind"])
def test_a_rate_is_the_best_that_was_measured(one: dict[str, Any]) -> None:
    file = ROOT / one["file"]
    document = json.loads(file.read_text(encoding="utf-8"))
    found = {
        row["name"]: rate(row, baseline, one["unit"])
        for row in document["rows"]
        for baseline in row["baselines"]
        if baseline["name"] == one["baseline"] and baseline["time"] is not None
    }
    assert one["rate"] == pytest.approx(found[one["row"]], rel=1e-3)
    assert max(found.values()) == found[one["row"]]
    assert (one["date"], one["torch"]) == (document["date"][:10], document["versions"]["torch"])


def test_every_rate_names_a_committed_file() -> None:
    machine, rates = measured()
    assert set(rates) == {"products", "fused", "attention", "bytes"}
    assert all(Path(ROOT / one["file"]).is_file() for one in RATES)
    assert load_machine(machine).name


def product(columns: int, *, gelu: bool) -> GraphBuilder:
    g = GraphBuilder("piece")
    x, w = g.input("x", (4096, 4096), "bf16"), g.input("w", (columns, 4096), "bf16", constant=True)
    h = g.matmul(x, w, transpose_b=True)
    g.output(g.cast(g.gelu(h) if gelu else h, dtype="bf16", name="y"))
    return g


def test_time_follows_from_the_kind_of_piece(h200: Machine) -> None:
    rates = measured()[1]
    bare, fused = (inductor_us(product(8192, gelu=gelu).build(), h200) for gelu in (False, True))
    work = 2 * 4096 * 4096 * 8192
    assert bare == pytest.approx(work / rates["products"].per_second * 1e6)
    assert fused == pytest.approx(work / rates["fused"].per_second * 1e6)


def test_rows_take_the_time_of_their_bytes(h200: Machine) -> None:
    g = GraphBuilder("piece")
    x = g.input("x", (8192, 1024), "bf16")
    g.output(g.cast(g.softmax(x), dtype="bf16", name="y"))
    expected = 2 * 2 * 8192 * 1024 / measured()[1]["bytes"].per_second * 1e6
    assert inductor_us(g.build(), h200) == pytest.approx(expected)


def test_another_machine_has_rates_in_proportion(h200: Machine) -> None:
    graph, h100 = product(8192, gelu=False).build(), load_machine("h100_sxm")
    share = h100.sustained_tflops("bf16") / h200.sustained_tflops("bf16")
    assert inductor_us(graph, h100) == pytest.approx(inductor_us(graph, h200) / share)
