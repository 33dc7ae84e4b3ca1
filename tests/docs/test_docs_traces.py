"""The committed traces: what the page says of them, and their predictions, which are today's."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import replay

from wsopt.perf.steady_state import steady_state

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8")
TRACES = sorted((ROOT / "docs" / "traces").glob("*.json"))


def trace(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def consumers_ops(found: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [one["ops"] for one in found["partitions"] if one["name"].startswith("consumer")]


def difference(found: dict[str, Any], kind: str) -> float:
    """Median over the consumers' operations of how far measured starts are from predicted ones, in parts of II."""
    return statistics.median(
        abs(op["measured"]["start"]["median"] - op["predicted"][kind]) / found["schedule"]["ii_cycles"]
        for ops in consumers_ops(found)
        for op in [one for one in ops if one["measured"]["start"] is not None][1:]
    )


def test_a_product_and_attention_are_traced() -> None:
    assert [path.stem for path in TRACES] == ["attention_causal", "gemm_bf16"]


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_the_page_says_what_was_measured(path: Path) -> None:
    found = trace(path)
    scheduled, runs = difference(found, "scheduled"), difference(found, "start")
    assert runs == pytest.approx(found["start_difference"])
    row = f"| `{path.stem}` | {scheduled:.1%} | {runs:.1%} | {found['cost']:+.1%} |"
    assert row in PAGE
    assert runs <= 0.10
    date, card = found["date"][:10], found["card"]["device"]
    assert f"{card}, {date}" in PAGE


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_the_prediction_is_that_of_today(path: Path) -> None:
    found, verified = trace(path), replay.verified_of(path.stem)
    assert found["schedule"]["structure"] == verified.program.structure.describe()
    runs = steady_state(verified)
    assert found["schedule"]["as_it_runs_cycles"] == round(runs.interval)
    for ops in consumers_ops(found):
        first, *others = (one for one in ops if one["measured"]["start"] is not None)
        for op in others:
            assert op["predicted"]["start"] == runs.starts[op["op"]] - runs.starts[first["op"]]
