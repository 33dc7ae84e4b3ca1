"""The kernels whose mutants are run: those of problems/ and the goldens of the emit tests."""

from __future__ import annotations

import tempfile
from pathlib import Path

import golden_kernels
from mutants_prepared import Prepared, Run

from wsopt.driver import SEEDS, build
from wsopt.folder import read_folder
from wsopt.graph.parse import load_graph
from wsopt.graph.types import Graph
from wsopt.machine import load_machine
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.simulation import TOLERANCE, simulate

GOLDENS = tuple(golden_kernels.KERNELS)
MACHINE = "h200"
_SEEDS_FOR_GRAPHS = 3
"""Interleavings after which no more graphs are needed for lines that have not run."""
PROBLEMS = Path(__file__).parents[2] / "problems"


def kernels() -> list[str]:
    """The names of all kernels."""
    problems = sorted(path.stem for path in PROBLEMS.glob("*.json"))
    return [*problems, *(f"golden-{name}" for name in sorted(GOLDENS))]


def prepare(name: str) -> Prepared:
    """Make a kernel: a problem's by the whole of `wsopt compile`, with its cache."""
    if name.startswith("golden-"):
        golden = golden_kernels.emitted(name.removeprefix("golden-"))
        return prepared_from(name, golden.graph, golden.verified, golden.source)
    with tempfile.TemporaryDirectory() as scratch:
        built = build(load_graph(PROBLEMS / f"{name}.json"), load_machine(MACHINE))
        made = read_folder(built.save(Path(scratch) / "build"))
    return prepared_from(name, made.graph, made.verified, made.kernel)


def prepared_from(name: str, graph: Graph, verified: VerifiedSchedule, source: str) -> Prepared:
    """A kernel with the graphs of its simulation: found with few interleavings, of which the first graph has more."""
    first, *others = simulate(graph, verified, source, _SEEDS_FOR_GRAPHS).runs
    runs = [(first.graph, SEEDS), *((run.graph, run.seeds) for run in others)]
    return Prepared(name, source, tuple(Run(one, seeds, _tolerance(one)) for one, seeds in runs))


def _tolerance(graph: Graph) -> dict[str, float]:
    return {name: TOLERANCE[graph.type_of(name).dtype] for name in graph.outputs}
