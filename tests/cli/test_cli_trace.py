"""`wsopt trace` from the command line, without a GPU: the traced kernel beside a build, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path

from cli_runs import FILES, assert_says, wsopt


def test_prepare_writes_beside_the_build_and_compile_replaces_both(warm: Path) -> None:
    done = wsopt(warm, "trace", "small.wsopt", "--prepare", "--blocks", "3", "--iterations", "5")
    assert done.returncode == 0, done.stderr
    assert "python3 -m wsopt.trace.measure small.wsopt" in done.stdout
    folder = warm / "small.wsopt"
    assert {path.name for path in folder.iterdir()} == {*FILES, "trace"}
    stamps = json.loads((folder / "trace" / "stamps.json").read_text())
    assert (stamps["blocks"], stamps["tiles"], stamps["k_blocks"] // stamps["copies"]) == (3, 4, 5)
    assert "stamp(" in (folder / "trace" / "kernel.py").read_text()
    assert "stamp(" not in (folder / "kernel.py").read_text()
    assert wsopt(warm, "inspect", "small.wsopt").returncode == 0
    again = wsopt(warm, "compile", "small.json")
    assert again.returncode == 0, again.stderr
    assert {path.name for path in folder.iterdir()} == FILES


def test_what_is_missing_is_said_in_one_sentence(warm: Path) -> None:
    hidden = warm / "site"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    done = wsopt(warm, "trace", "small.wsopt", PYTHONPATH=f"{hidden}:{Path(__file__).parents[2]}")
    assert_says(done, 2, "torch is not installed, and trace needs it", "--prepare` writes the traced kernel")
    assert_says(wsopt(warm, "trace", "nowhere", "--prepare"), 2, "nowhere: is no folder")
    assert not (warm / "small.wsopt" / "trace").exists()
