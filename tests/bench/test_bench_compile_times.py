"""Cold compile times: of a graph that compiles and of one that does not, and the document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wsopt.bench.compile_times import main

ROWS = {
    "format": "wsopt.graph/1",
    "name": "rows",
    "inputs": [{"name": "x", "shape": [4096, 512], "dtype": "bf16"}],
    "nodes": [{"name": "y", "op": "softmax", "inputs": ["x"], "attrs": {"axis": 1}}],
    "outputs": ["y"],
}


@pytest.mark.solver
@pytest.mark.compiler
def test_a_graph_and_one_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    (tmp_path / "bad.json").write_text("{}")
    out = tmp_path / "times.json"
    assert main([str(tmp_path / "rows.json"), str(tmp_path / "bad.json"), "--json", str(out)]) == 1
    found = json.loads(out.read_text())
    good, bad = found["rows"]
    assert (found["kind"], found["compiled_for"], found["most_s"]) == (
        "compile_times",
        "h200",
        max(good["seconds"], bad["seconds"]),
    )
    assert (good["graph"], good["status"], good["gap"]) == ("rows", "optimal", 0)
    assert good["structures"]["solved"] >= 1
    assert good["seconds"] > 0.2
    assert good["core_seconds"] > 0.2
    assert (bad["graph"], bad["status"]) == ("bad", "failed")
    assert bad["message"]
    # Starting Python may be nearly all of a time, and longer beside other work; work on cores tells the two apart.
    low, high = sorted((good["seconds"], bad["seconds"]))
    assert low <= found["geometric_mean_s"] <= high
    assert bad["core_seconds"] < good["core_seconds"]
    told = capsys.readouterr()
    assert told.out == f"2 graphs: geometric mean {found['geometric_mean_s']} s, most {found['most_s']} s\n"
    assert [text.split()[0] for text in told.err.splitlines()] == ["rows", "bad"]
