"""Builds of pieces, from the cache on disk, or made in processes of their own, several at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from wsopt.build import Build
from wsopt.cache import BuildCache, build_key, cache_folder
from wsopt.entries import extended
from wsopt.errors import InputError, InternalError
from wsopt.folder import machine_text
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.machine.load import load_machine
from wsopt.program.conditions import FREE

Outcome = Build | str
"""A build, or why there is none."""


def build_all(graphs: Sequence[Graph], machine: str, workers: int) -> list[Outcome]:
    """The builds of graphs, in their order; what has no kernel, or none that passes its checks, has the reason.

    `workers` processes work at once, 0 are as many as there are cores. Raises InternalError if one of them fails.
    """
    found = [_cached(graph, machine) for graph in graphs]
    missing = [number for number, one in enumerate(found) if one is None]
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        made = pool.map(lambda number: _made(graphs[number], machine), missing)
        made_of = dict(zip(missing, made, strict=True))
    return [made_of[number] if one is None else one for number, one in enumerate(found)]


def _cached(graph: Graph, machine: str) -> Build | None:
    """A build that is in the cache. A table with more entries for a while has no builds there."""
    if extended():
        return None
    files = BuildCache(cache_folder()).get(
        build_key(graph, machine_text(load_machine(machine)), 1, FREE.text)
    )
    if files is None:
        return None
    own = {name.partition("/")[2]: text for name, text in files.items()}
    return Build(own, json.loads(own["schedule.json"])["summary"], 0.0)


def _made(graph: Graph, machine: str) -> Outcome:
    """A build from a process of its own, which no thread and no CUDA context of this one disturbs."""
    task = json.dumps({"graph": graph_to_json(graph), "machine": machine})
    done = subprocess.run(
        [sys.executable, "-m", "wsopt.torch.worker"],
        input=task, capture_output=True, text=True, check=False, env=_environment(),
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise InternalError(f"the process that builds a piece ended with: {last[0]}")
    outcome = json.loads(done.stdout)
    if "error" not in outcome:
        return Build(outcome["files"], outcome["summary"], outcome["seconds"])
    if outcome["status"] == InputError.exit_status:
        raise InternalError(f"a piece's graph or requirement is refused: {outcome['error']}")
    return str(outcome["error"])


def _environment() -> dict[str, str]:
    """The environment with this process's places to import from, which a test or a notebook may have added to."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
