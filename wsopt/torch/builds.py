"""Builds of pieces, from the cache on disk, or made by processes of their own, several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from wsopt.batch import BuildTask, build_batch
from wsopt.batch import Outcome as Batch
from wsopt.build import Build
from wsopt.errors import InputError, InternalError
from wsopt.graph.parse import parse_graph
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.machine.load import load_machine
from wsopt.pool.cluster import workers_at
from wsopt.pool.local import Interpreters

Outcome = Build | str
"""A build, or why there is none."""


def build_all(graphs: Sequence[Graph], machine: str, workers: int | str) -> list[Outcome]:
    """The builds of graphs, in their order; what has no kernel, or none that passes its checks, has the reason.

    `workers` are how many processes work at once, 0 for as many as there are cores, or the address of a Dask
    scheduler that has some. Each is an interpreter of its own, which no thread and no CUDA context of this one
    disturbs. Raises InternalError if one of them fails, RequirementError as `workers_at`.
    """
    record = load_machine(machine)
    tasks = [BuildTask(_checked(graph), record) for graph in graphs]
    with workers_at(workers) if isinstance(workers, str) else nullcontext(Interpreters(workers)) as those:
        return [_outcome(found) for found in build_batch(tasks, those)]


def _checked(graph: Graph) -> Graph:
    """A piece's graph, read as one from a file is. Raises InternalError for one that is none."""
    try:
        return parse_graph(graph_to_json(graph), "piece")
    except InputError as error:
        raise InternalError(f"a piece's graph is refused: {error}") from error


def _outcome(found: Batch) -> Outcome:
    if isinstance(found, InputError):
        raise InternalError(f"a piece's graph or requirement is refused: {found}")
    return found[0] if isinstance(found, tuple) else str(found)
