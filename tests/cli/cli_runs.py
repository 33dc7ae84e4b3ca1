"""The command as a person runs it, and the graphs that the tests give it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forked_command

ROOT = Path(__file__).parents[2]
FILES = {"graph.json", "schedule.json", "kernel.py", "report.txt", "search.json"}

Done = subprocess.CompletedProcess[str]


def environment(cwd: Path, **more: str) -> dict[str, str]:
    """The variables of a run in `cwd`, with a cache of its own there."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "WSOPT_CACHE_DIR": str(cwd / "cache")}
    return {**os.environ, **own, **more}


def wsopt(cwd: Path, *arguments: str, first: str = "", **variables: str) -> Done:
    """Run `wsopt` in `cwd` to its end, and the program `first` before it is loaded: in a process of its own from the
    start where `variables` are given, which Python may read as it starts.
    """
    if not variables:
        return forked_command.run(cwd, arguments, environment(cwd), first)
    command = [sys.executable, "-m", "wsopt", *arguments]
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment(cwd, **variables),
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=120,
        check=False,
    )


def product(name: str = "small", m: int = 128, n: int = 128, k: int = 128, **more: Any) -> dict[str, Any]:
    """x[m, k] times the transpose of w[n, k], in bf16."""
    return {
        "format": "wsopt.graph/1",
        "name": name,
        **more,
        "inputs": [
            {"name": "x", "shape": [m, k], "dtype": "bf16"},
            {"name": "w", "shape": [n, k], "dtype": "bf16", "constant": True},
        ],
        "nodes": [
            {"name": "p", "op": "matmul", "inputs": ["x", "w"], "attrs": {"transpose_b": True}},
            {"name": "y", "op": "cast", "inputs": ["p"], "attrs": {"dtype": "bf16"}},
        ],
        "outputs": ["y"],
    }


def residual(names: Mapping[str, str]) -> dict[str, Any]:
    """x w' + b and its sum with r, two outputs; `names` says what each of x w b r p h s y z is called."""
    x, w, b, r, p, h, s, y, z = (names[one] for one in "xwbrphsyz")
    return {
        "format": "wsopt.graph/1",
        "name": "renamed",
        "inputs": [
            {"name": x, "shape": [512, 256], "dtype": "bf16"},
            {"name": w, "shape": [512, 256], "dtype": "bf16", "constant": True},
            {"name": b, "shape": [512], "dtype": "f32"},
            {"name": r, "shape": [512, 512], "dtype": "bf16"},
        ],
        "nodes": [
            {"name": p, "op": "matmul", "inputs": [x, w], "attrs": {"transpose_b": True}},
            {"name": h, "op": "add", "inputs": [p, b]},
            {"name": s, "op": "add", "inputs": [h, r]},
            {"name": y, "op": "cast", "inputs": [s], "attrs": {"dtype": "bf16"}},
            {"name": z, "op": "cast", "inputs": [h], "attrs": {"dtype": "bf16"}},
        ],
        "outputs": [y, z],
    }


def write(folder: Path, graph: object, name: str = "graph.json") -> Path:
    """Write a graph as a file."""
    path = folder / name
    path.write_text(json.dumps(graph), encoding="utf-8")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_says(done: Done, status: int, *words: str) -> None:
    """A run ended with this status, with a short message of these words, no traceback and no output."""
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr


@dataclass(frozen=True)
class Compiled:
    """A folder in which `wsopt compile small.json --json` has run; its cache is warm."""

    folder: Path
    done: Done

    @property
    def build(self) -> Path:
        return self.folder / "small.wsopt"

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.done.stdout)
        return found
