"""Compiles small graphs of whole layers to kernels, and runs them in the simulation against the reference.

    python tests/partition/whole_graphs.py              all of them, as `make whole-graphs` does
    python tests/partition/whole_graphs.py NAME ...     some, by name

A graph is compiled as `wsopt compile` does it: each kernel is checked, compiled by Triton, and executed under many
interleavings. What was written is then read back, checked again and executed once more. Status 1: one was refused, or
failed a check.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from whole_graphs_listed import GRAPHS, whole_graph

import wsopt
from wsopt.errors import WsoptError
from wsopt.folder import read_folder
from wsopt.partition.build import CutBuild
from wsopt.partition.command import simulated
from wsopt.simulation import simulate

SEEDS = 20
"""Interleavings of the run of what was read back, as `wsopt run` has them: fewer may leave out lines of a kernel."""


def main(names: list[str]) -> int:
    """Compile and run the graphs of these names, all if there are none; return the status."""
    failed = [name for name in names or [*GRAPHS] if not _works(name)]
    print(f"failed: {', '.join(failed)}" if failed else "all of them work")
    return 1 if failed else 0


def _works(name: str) -> bool:
    """Whether a graph compiles and runs; prints a line on it."""
    began = time.monotonic()
    try:
        told = _told(name)
    except WsoptError as error:
        print(f"{name:24} FAILED: {str(error).splitlines()[0]}", flush=True)
        return False
    print(f"{name:24} {told}, {time.monotonic() - began:.0f} s", flush=True)
    return True


def _told(name: str) -> str:
    """How a graph was compiled, and how far the outputs of its kernels were off at most."""
    build = wsopt.compile(whole_graph(name))
    with tempfile.TemporaryDirectory() as parent:
        folder = build.save(Path(parent) / "build")
        if isinstance(build, CutBuild):
            launches = len(build.summary["steps"])
            error = simulated(folder, SEEDS, lambda stage, done, total: None)["max_relative_error"]
        else:
            launches, read = 1, read_folder(folder)
            error = simulate(read.graph, read.verified, read.kernel, SEEDS).max_relative_error
    return (
        f"{launches} launches, {build.summary['predicted_us']:.1f} us predicted, off by {error:.1e} at most"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
