"""What running a kernel's mutants takes: its source, and the graphs at reduced extents that its simulation runs.

It goes into files, so that mutants can be run where kernels cannot be made: NumPy, ml_dtypes and greenlet are enough.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from wsopt.graph.parse import parse_graph
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph


@dataclass(frozen=True, slots=True)
class Run:
    """A graph, under how many interleavings the kernel is executed on it, and the error that outputs may have."""

    graph: Graph
    seeds: int
    tolerance: dict[str, float]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A kernel by its name, with the runs of its simulation."""

    name: str
    source: str
    runs: tuple[Run, ...]


def save(prepared: Prepared, folder: Path) -> None:
    """Write a kernel into `folder`/NAME."""
    place = folder / prepared.name
    place.mkdir(parents=True, exist_ok=True)
    runs = [
        {"seeds": run.seeds, "tolerance": run.tolerance, "graph": graph_to_json(run.graph)}
        for run in prepared.runs
    ]
    (place / "kernel.py").write_text(prepared.source, encoding="utf-8")
    (place / "runs.json").write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")


def load(folder: Path, name: str) -> Prepared:
    """Read a kernel that `save` wrote."""
    place = folder / name
    data = json.loads((place / "runs.json").read_text(encoding="utf-8"))
    runs = tuple(
        Run(parse_graph(item["graph"], f"{name}/runs.json"), item["seeds"], item["tolerance"])
        for item in data
    )
    return Prepared(name, (place / "kernel.py").read_text(encoding="utf-8"), runs)


def names(folder: Path) -> list[str]:
    """The kernels in a folder, sorted."""
    return sorted(path.parent.name for path in folder.glob("*/kernel.py"))
