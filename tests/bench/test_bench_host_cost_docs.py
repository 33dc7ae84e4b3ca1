"""The page on calls says what its files say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wsopt.bench.host_cost_docs import main
from wsopt.errors import InputError

DOCS = Path(__file__).parents[2] / "docs"


def test_the_committed_page_is_made_from_the_committed_files(tmp_path: Path) -> None:
    files = sorted((DOCS / "host_cost").glob("*.json"))
    assert files
    main([*map(str, files), "-o", str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text() == (DOCS / "host_cost.md").read_text()


def test_a_row_has_every_figure(tmp_path: Path) -> None:
    document = json.loads(next((DOCS / "host_cost").glob("*.json")).read_text())
    document["rows"] = [{"build": "b", "us": {"run": 1.26, "torch_mm": 4}, "ratios": {"run/torch_mm": 0.315}}]
    (tmp_path / "one.json").write_text(json.dumps(document))
    main([str(tmp_path / "one.json"), "-o", str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text().endswith("\n| b | 1.3 |  | 4.0 |  | 0.32 |  |  |\n")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"kind": "bench"}')
    with pytest.raises(InputError, match="not a measurement of calls"):
        main([str(tmp_path / "other.json"), "-o", str(tmp_path / "page.md")])
    assert not (tmp_path / "page.md").exists()
