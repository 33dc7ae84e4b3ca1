"""Builds of graphs that several kernels compute: the cut, its kernels' builds, what runs them one after the other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TypeVar

from wsopt.build import Build
from wsopt.cache import BuildCache, build_key, cache_folder
from wsopt.deadline import UNLIMITED, Deadline
from wsopt.entries import extended
from wsopt.errors import InfeasibleError, LoweringError, TimeOverError, UndecidedError
from wsopt.folder import KERNELS, machine_text
from wsopt.frontend.region import find_region
from wsopt.frontend.slices import with_sliced_inputs
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.symbolic import SymbolicGraph, bound, said
from wsopt.graph.types import Graph
from wsopt.lowering.phases import is_scores
from wsopt.machine.load import require_target
from wsopt.machine.types import Machine
from wsopt.partition.accept import first_program, refusal_of
from wsopt.partition.build import CutBuild, cut_build
from wsopt.partition.common import with_common_nodes
from wsopt.partition.cut import Cut, Cutter, check_cuttable, cutter_of, settled
from wsopt.partition.document import CutRecord, record_of, record_text
from wsopt.partition.exact_products import written_out
from wsopt.partition.few_rows import joins_few_long_rows, with_parts_of_rows
from wsopt.partition.longest_first import with_longest_first
from wsopt.partition.norms import with_norms
from wsopt.partition.prices import Prices
from wsopt.partition.sequence import sequence_text
from wsopt.partition.text import cut_text
from wsopt.pool.local import LOCAL
from wsopt.pool.workers import Workers
from wsopt.requirements import require_triton
from wsopt.solve.search import Search

Progress = Callable[[str, int, int], None]
_One = TypeVar("_One")
_Several = TypeVar("_Several")
_CUT = "cut"
"""What tells the cache's entry of a graph's cut from that of its one kernel."""


def build_cut(
    graph: Graph,
    machine: Machine,
    *,
    deadline: Deadline = UNLIMITED,
    use_cache: bool = True,
    workers: Workers = LOCAL,
    progress: Progress = lambda stage, done, total: None,
) -> CutBuild:
    """Compile a graph to the kernels that compute it in the least predicted time, one after the other; `workers`
    search them. The `deadline` limits all of it: what there was no time for, the summary says under `skipped`.

    Raises LoweringError where kernels do not compute all of it, with the nodes and reasons, and TimeOverError where
    the time is over before each has its checked kernel; nothing is written.
    """
    began = time.monotonic()
    require_target(machine)
    graph = with_common_nodes(written_out(graph))
    use_cache = use_cache and not extended()
    cache, key = BuildCache(cache_folder()), build_key(graph, machine_text(machine), under=_CUT)
    files = cache.get(key) if use_cache else None
    if files is not None:
        require_triton("compiling a kernel")
    else:
        show = deadline.bounded(graph.name, progress)
        cutter = cutter_of(graph, Prices(machine, use_cache, show, workers, deadline))
        cutter.check()  # what is wrong with a graph is told wherever this runs
        require_triton("compiling a kernel")
        record, files = _files(_best(graph, cutter), machine)
        if use_cache and not record.skipped:
            cache.put(key, files)
    return cut_build(files, time.monotonic() - began)


def _best(graph: Graph, cutter: Cutter) -> Cut:
    """The fastest cut: of the graph, and where kernels compute those, of the one with few long rows in parts, of the
    one with slices of inputs instead of what is computed, and of the one whose longest axes are reduced first.
    """
    prices = cutter.prices
    written = with_norms(graph, prices.machine)
    parts = with_parts_of_rows(written, prices.machine)
    others = (
        graph if parts is written else parts, with_sliced_inputs(graph), with_longest_first(graph),
    )  # fmt: skip
    return settled([cutter, *(cutter_of(other, prices) for other in others if other is not graph)])


def is_refused(graph: Graph, machine: Machine) -> bool:
    """Whether no single kernel computes a graph: the front end refuses it as a whole, or no tile of it is legal."""
    return bool(refusal_of(graph, machine))


def as_numbers(graph: SymbolicGraph, machine: Machine) -> str:
    """What to do with a graph of named extents that several kernels compute and no single one does, for a range has
    single ones: a sentence, empty where that is not why it is refused.
    """
    values = {dim.name: dim.most for dim in graph.dims}
    numbers = bound(graph, values)
    try:
        if not is_refused(numbers, machine):
            return ""
        check_cuttable(written_out(numbers), machine)
    except LoweringError:
        return ""
    return (
        f"graph {graph.name} is not cut into several kernels, for it has named extents; with numbers in their place "
        f"it is, such as {said(values)}"
    )


def is_weighed(graph: Graph, machine: Machine) -> bool:
    """Whether several kernels may well be faster than the one that computes a graph, which is not refused: its loop
    does with what streams what a kernel before it could do once. It has no scores to multiply, or widens keys and
    values. Or the graph has a few long rows.
    """
    if has_few_long_rows(graph, machine):
        return True
    region = first_program(graph, machine).region
    return region.chained and (bool(region.widened) or not any(map(is_scores, region.contractions)))


def has_few_long_rows(graph: Graph, machine: Machine) -> bool:
    """Whether a graph has a few long rows, of whose parts several SMs may have some, or a kernel would make them of
    several axes. One kernel leaves most SMs idle, and may take a hundred times as long.
    """
    return with_parts_of_rows(graph, machine) is not graph or joins_few_long_rows(graph, machine)


_CLEARLY = 0.9
"""Share of one kernel's predicted time that several kernels together take at most, where they are taken instead: by
less a sum of predictions says nothing, and launches and a workspace are saved.
"""


_CUT_SHARE = 0.5
"""Of a limited time, what a cut may take that is looked for beside one kernel."""


def one_or_several(
    graph: Graph,
    machine: Machine,
    one: Callable[[float | None], Build],
    several: Callable[[Deadline], CutBuild],
    *,
    seconds: float | None = None,
) -> Build | CutBuild:
    """The build of `one` kernel, or of `several` where one does not compute the graph, or where several are clearly
    faster by the model; one is asked with the seconds that it may take, None for as many as it wants. In a limited
    time the last is asked of few long rows alone.
    """
    deadline = UNLIMITED if seconds is None else Deadline(seconds)
    if is_refused(graph, machine):
        return several(deadline)
    if seconds is None and is_weighed(graph, machine):
        return if_several_are_faster(
            lambda: one(None), lambda: several(deadline), lambda: _least_us(graph, machine)
        )
    if seconds is not None and has_few_long_rows(graph, machine):
        return if_several_are_faster(
            lambda: one(deadline.share(1, 1)),
            lambda: several(Deadline(_CUT_SHARE * seconds)),
            lambda: _least_us(graph, machine),
        )
    return unless_infeasible(lambda: one(seconds), lambda: several(deadline))


def _least_us(graph: Graph, machine: Machine) -> float:
    """Microseconds that one kernel of a graph takes at least, found without a schedule."""
    return Search(find_region(graph), machine).least_bound_us()


def if_several_are_faster(
    one: Callable[[], Build], several: Callable[[], CutBuild], least_us: Callable[[], float]
) -> Build | CutBuild:
    """The build of `one` kernel, or of `several` where those are clearly faster by the model, or no structure of one
    fits. The one is not made where several are faster than the least that it takes, and is all where their time is
    over.
    """
    try:
        cut = several()
    except TimeOverError:
        return one()
    if len(cut.record.steps) == 1:
        return one()
    if cut.record.predicted_us < _CLEARLY * least_us():
        return cut
    try:
        alone = one()
    except UndecidedError:
        raise
    except InfeasibleError:
        return cut
    return cut if cut.record.predicted_us < _CLEARLY * float(alone.summary["predicted_us"]) else alone


def unless_infeasible(one: Callable[[], _One], several: Callable[[], _Several]) -> _One | _Several:
    """What `one` kernel's search gives, or `several` kernels' where it proves that no structure of one fits.

    Raises as `one` does where several do not compute the graph either.
    """
    try:
        return one()
    except UndecidedError:
        raise
    except InfeasibleError as error:
        try:
            return several()
        except LoweringError:
            raise error from None


def _files(found: Cut, machine: Machine) -> tuple[CutRecord, dict[str, str]]:
    """The record of a build, and its files: those of each kernel in its folder, and what is over them."""
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
    return record, {
        "graph.json": json.dumps(graph_to_json(found.graph), indent=1, ensure_ascii=False) + "\n",
        "cut.json": record_text(record),
        "kernel.py": sequence_text(found.graph, record),
        "report.txt": cut_text(record),
        **own,
    }
