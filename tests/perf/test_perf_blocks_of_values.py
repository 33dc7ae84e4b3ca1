"""Several blocks an SM that compute values, and consumers that begin a tile together: predicted as measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from typing import Any

from room_imports import ROOT
from tile_graphs import chained

from wsopt.frontend.region import find_region
from wsopt.graph.parse import load_graph
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.paths import chain_of
from wsopt.perf.price import lower
from wsopt.perf.tile_ends import first_iteration
from wsopt.program.ids import OpKind
from wsopt.program.types import Sharing, Structure
from wsopt.solve.bound import lower_bound_us

MEASURED = json.loads((ROOT / "docs/calibration/h200_blocks_of_values.json").read_text())
PLACES = ("docs/survey/graphs", "docs/survey/second/graphs", "problems")


def matches(s: Structure, one: dict[str, Any]) -> bool:
    taken = (s.blocks_an_sm, s.consumers, s.consumer_warps, s.rows, s.depth)
    return taken == tuple(one[key] for key in ("blocks", "consumers", "warps", "rows", "depth")) and (
        s.persistent and s.subtiles == 1 and not s.parted
    )


def errors(machine: Machine, graph: str, kernels: list[dict[str, Any]]) -> Iterator[float]:
    path = next(path for place in PLACES if (path := ROOT / place / f"{graph}.json").exists())
    region = find_region(load_graph(path))
    every = [*structures(region, machine)]
    for one in kernels:
        s = next(s for s in every if matches(s, one))
        yield lower_bound_us(lower(region, s, machine), machine) / one["us"] - 1


def test_blocks_of_values_take_what_was_measured(h200: Machine) -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in MEASURED["variants"]:
        if one["blocks"] > 1 and not one["spilled"]:
            found.setdefault(one["graph"], []).append(one)
    each = [error for graph, kernels in found.items() for error in errors(h200, graph, kernels)]
    assert len(each) > 20
    assert statistics.fmean(map(abs, each)) < 0.07
    assert abs(statistics.fmean(each)) < 0.04


def test_consumers_that_begin_together_hold_one_another_up(h200: Machine) -> None:
    region = chained(4096, 77, 64)
    alone, two, three = (
        lower(region, Structure(64, 64, 128, n, 4, Sharing.COOPERATIVE, True, False, 1, 1), h200)
        for n in (1, 2, 3)
    )
    first, second, third = map(first_iteration, (alone, two, three))
    assert first == chain_of(alone)
    assert second - first == third - second > 0
    assert third > 3 * sum(op.busy for op in alone.of(OpKind.MMA))
