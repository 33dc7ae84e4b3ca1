"""Figures of the page on groups are those of the file that it names, and its graphs are those that it is about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wsopt.frontend.region import find_region
from wsopt.graph.parse import parse_graph

DOCS = Path(__file__).parents[2] / "docs"
ROWS = json.loads((DOCS / "groups" / "predicted_h200.json").read_text(encoding="utf-8"))["rows"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_the_page_has_the_files_figures(row: dict[str, object]) -> None:
    page = (DOCS / "groups.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith(f"| [{row['name']}]")]
    us, roofline, flops = (float(str(row[key])) for key in ("predicted_us", "roofline_us", "flops"))
    assert line.endswith(f"| {us:,.1f} | {flops / us / 1e6:.0f} | {100 * roofline / us:.0f} % |")
    assert f"| {row['groups']} | {row['rows']} x {row['columns']} x {row['depth']} |" in line


MEASURED = json.loads((DOCS / "groups" / "h100.json").read_text(encoding="utf-8"))["rows"]


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row["name"])
def test_the_page_has_what_was_measured(row: dict[str, Any]) -> None:
    page = (DOCS / "groups.md").read_text(encoding="utf-8")
    us, ratio = row["kernel"]["median_us"], row["baselines"][0]["ratio"]
    assert row["baselines"][0]["name"] == "grouped_mm"
    assert f"| {row['name']} | {us:,.1f} | {row['flops'] / us / 1e6:.0f} | {ratio:.2f} |" in page


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_its_graphs_are_regions_of_so_much_work(row: dict[str, object]) -> None:
    path = DOCS / "groups" / "graphs" / f"{row['name']}.json"
    region = find_region(parse_graph(json.loads(path.read_text(encoding="utf-8")), path.name))
    assert region.offsets is not None
    assert region.flops == row["flops"]
