"""Predicts schedules that have been measured once more, with the model as it is now: no GPU is needed to judge it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wsopt.errors import CheckError
from wsopt.graph.parse import parse_graph
from wsopt.machine.types import Machine
from wsopt.solve.optimum import solve
from wsopt.solve.overlap import Overlap
from wsopt.solve.search import DEFAULT_MARGIN
from wsopt.tile.lower import lower
from wsopt.tile.region import find_region
from wsopt.tile.types import Region, Sharing, Structure
from wsopt.truth.files import Candidate
from wsopt.truth.make import candidate
from wsopt.truth.select import held_to
from wsopt.truth.validation import GraphTruth, Validation

Progress = Callable[[str, int, int], None]


def predict_again(found: Validation, machine: Machine, progress: Progress) -> Validation:
    """The validation with the predictions that the present model makes for the same structures and rings.

    Raises CheckError for a schedule that the present model refuses.
    """
    total = sum(len(graph.made.candidates) for graph in found.graphs)
    done, graphs = 0, []
    for graph in found.graphs:
        region = find_region(parse_graph(dict(graph.made.graph), graph.name))
        renewed = []
        for one in graph.made.candidates:
            progress("predict", done, total)
            done += 1
            renewed.append(_predicted(region, one, machine, graph.name))
        graphs.append(GraphTruth(replace(graph.made, candidates=tuple(renewed)), graph.measured))
    return replace(found, machine=machine.name, graphs=tuple(graphs))


def _predicted(region: Region, one: Candidate, machine: Machine, graph: str) -> Candidate:
    fields = dict(one.structure)
    structure = Structure(**{**fields, "sharing": Sharing(fields["sharing"])})
    limited = held_to(lower(region, structure, machine), machine, one.slots)
    overlap = Overlap(one.overlap)
    solved = solve(lower(region, structure, limited), limited, DEFAULT_MARGIN, overlap=overlap)
    if solved.schedule is None:
        raise CheckError(
            f"graph {graph}, {one.name}: the present model has no schedule for it: {solved.reason}"
        )
    return candidate(one.name, one.why, solved.schedule, one.slots, overlap)
