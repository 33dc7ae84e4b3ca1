"""Builds of graphs that several kernels compute: the cut, its kernels' builds, what runs them one after the other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from wsopt.cache import BuildCache, build_key, cache_folder
from wsopt.entries import extended
from wsopt.folder import KERNELS, machine_text
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.machine.load import require_target
from wsopt.machine.types import Machine
from wsopt.partition.accept import refusal_of
from wsopt.partition.build import CutBuild, cut_build
from wsopt.partition.cut import Cut, check_cuttable, cut
from wsopt.partition.document import record_of, record_text
from wsopt.partition.exact_products import written_out
from wsopt.partition.sequence import sequence_text
from wsopt.partition.text import cut_text
from wsopt.pool.local import LOCAL
from wsopt.pool.workers import Workers
from wsopt.requirements import require_triton

Progress = Callable[[str, int, int], None]
_CUT = "cut"
"""What tells the cache's entry of a graph's cut from that of its one kernel."""


def build_cut(
    graph: Graph,
    machine: Machine,
    *,
    use_cache: bool = True,
    workers: Workers = LOCAL,
    progress: Progress = lambda stage, done, total: None,
) -> CutBuild:
    """Compile a graph to the kernels that compute it in the least predicted time, one after the other; `workers`
    search them.

    Raises LoweringError where kernels do not compute all of it, with the nodes and reasons; nothing is written.
    """
    began = time.monotonic()
    require_target(machine)
    graph = written_out(graph)
    check_cuttable(graph, machine)  # what is wrong with a graph is told wherever this runs
    require_triton("compiling a kernel")
    use_cache = use_cache and not extended()
    cache, key = BuildCache(cache_folder()), build_key(graph, machine_text(machine), under=_CUT)
    files = cache.get(key) if use_cache else None
    if files is None:
        files = _files(cut(graph, machine, use_cache=use_cache, workers=workers, progress=progress), machine)
        if use_cache:
            cache.put(key, files)
    return cut_build(files, time.monotonic() - began)


def is_refused(graph: Graph, machine: Machine) -> bool:
    """Whether no single kernel computes a graph: the front end refuses it as a whole, or no tile of it is legal."""
    return bool(refusal_of(graph, machine))


def _files(found: Cut, machine: Machine) -> dict[str, str]:
    """The files of a build: those of each kernel in its folder, and what is over them."""
    folders: dict[str, str] = {}
    first: dict[str, Graph] = {}
    own: dict[str, str] = {}
    for piece, price in zip(found.pieces, found.prices, strict=True):
        if piece.key in folders:
            continue
        assert price.build is not None, "a cut that is chosen has its kernels"
        assert price.made_of is not None, "and each was made of a graph"
        folders[piece.key] = f"{KERNELS}/{len(folders)}"
        first[piece.key] = price.made_of
        own |= {f"{folders[piece.key]}/{name}": text for name, text in price.build.files.items()}
    record = record_of(found, machine.name, folders, first)
    return {
        "graph.json": json.dumps(graph_to_json(found.graph), indent=1, ensure_ascii=False) + "\n",
        "cut.json": record_text(record),
        "kernel.py": sequence_text(found.graph, record),
        "report.txt": cut_text(record),
        **own,
    }
