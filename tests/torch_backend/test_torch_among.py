"""What kernels take among others: what they gain on their predictions, held against what was measured in turns."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from room_imports import ROOT  # noqa: E402
from test_torch_rates import attention, product  # noqa: E402

from wsopt.machine import Machine, load_machine  # noqa: E402
from wsopt.torch.among import FASTER, Among, among_others  # noqa: E402

SUSTAINED = load_machine("h200").sustained_tflops("bf16") * 1e6


def measured_times() -> Iterator[tuple[float, float]]:
    """Of products without attention: the share of the sustained rate that is predicted, and predicted by measured."""
    for path in (ROOT / "docs").rglob("*.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        known = isinstance(document, dict) and str(document.get("format", "")).startswith("wsopt.bench")
        if not known or document["machine"]["device"] != "NVIDIA H200":
            continue
        for row in document["rows"]:
            products = any(one["name"] == "cublas" and one["status"] == "ok" for one in row["baselines"])
            if row.get("predicted_us") and row.get("kernel") and products and row["flops"]:
                time = (row["kernel_graph"] or row["kernel"])["median_us"]
                yield row["flops"] / row["predicted_us"] / SUSTAINED, row["predicted_us"] / time


def test_the_gain_is_what_was_measured_in_turns() -> None:
    (low, least), (high, most) = FASTER
    rows = [*measured_times()]
    fast = [times for share, times in rows if share > high]
    slow = [times for share, times in rows if low / 2 < share < low]
    assert min(len(fast), len(slow)) > 15
    assert statistics.median(fast) == pytest.approx(most, abs=0.01)
    assert statistics.median(slow) <= least + 0.01  # none is claimed that was not measured


def test_fast_products_gain_more_than_slow_ones_and_attention(h200: Machine) -> None:
    (_, _), (_, most) = FASTER
    graph, us = product(2048, 4096, 4096), 2.0 * 2048 * 4096 * 4096 / SUSTAINED
    times = [among_others(graph, us * slower, h200).times for slower in (1.0, 1.6, 2.5)]
    assert times == pytest.approx([most, 1 + (most - 1) * (1 / 1.6 - 0.5) / 0.2, 1.0])
    assert among_others(attention(64, 2048, 128, False), 200.0, h200).times == 1.0


def test_a_launch_passes_while_the_kernel_before_ends(h200: Machine) -> None:
    among = among_others(product(16, 4096, 4096), 12.0, h200)
    assert among == Among(1.0, h200.kernel_launch_us)
    assert among.expected_us(10.0) == pytest.approx(10.0 - h200.kernel_launch_us)
    both = Among(1.05, 0.7)
    assert both.expected_us(both.predicted_us(30.0)) == pytest.approx(30.0)
