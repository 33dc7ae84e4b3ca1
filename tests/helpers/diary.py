"""What the diary's figures are held against: its text, the files that it names, and rows of surveys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from wsopt.bench import docs as bench_docs

ROOT = Path(__file__).parents[2]
DIARY = " ".join((ROOT / "docs" / "findings.md").read_text(encoding="utf-8").split())


def measured(name: str) -> Any:
    """A file of measurements in docs/."""
    return json.loads((ROOT / "docs" / f"{name}.json").read_text(encoding="utf-8"))


def rows(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The kernels of bench's files, in their order."""
    return [row for path in paths for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def ratio(baseline: dict[str, Any]) -> float:
    """How many times a kernel's time a baseline takes, replayed where both were."""
    return float(baseline["graph_ratio"] or baseline["ratio"])


def ratios(paths: Iterable[Path]) -> dict[str, dict[str, float]]:
    """The ratios to each baseline, of each kernel's last measurement."""
    found: dict[str, dict[str, float]] = {}
    for row in rows(paths):
        for one in row["baselines"]:
            if one["status"] == "ok":
                found.setdefault(one["name"], {})[row["name"]] = ratio(one)
    return found


def page_of(paths: Sequence[Path], folder: Path) -> str:
    """The page that bench's files make."""
    page = folder / "page.md"
    assert bench_docs.main([*map(str, paths), "-o", str(page)]) == 0
    return page.read_text(encoding="utf-8")
