"""What comes of building a piece, and what earlier processes have found out: kept in the cache of builds.

Not only builds are kept, but also that there is none, the time that no schedule beats, and what bounds alone say of
it. So a process that compiles a model a second time builds nothing, whatever became of its pieces.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from wsopt.build import Build
from wsopt.cache import BuildCache, build_key, cache_folder
from wsopt.entries import extended
from wsopt.folder import machine_text
from wsopt.graph.symbolic import AnyGraph, SymbolicGraph
from wsopt.machine.load import load_machine
from wsopt.program.conditions import FREE
from wsopt.ranges.build import RangeBuild
from wsopt.ranges.make import kept_range

_NO_BUILD, _BOUND, _BY_BOUNDS = "no build", "least bound", "by bounds alone"
"""In the place of conditions in a key: what is kept under it is no build."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A graph that a build is wanted of, if its kernel may take less than so many microseconds."""

    graph: AnyGraph
    below_us: float = math.inf


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no build. `bound_us` are the microseconds that no schedule beats, where those are too many."""

    text: str
    bound_us: float | None = None


Outcome = Build | RangeBuild | Refusal


def too_slow(bound_us: float, below_us: float) -> Refusal:
    """The refusal of a piece for which no schedule beats the time that it has to."""
    return Refusal(
        f"no schedule is faster than {bound_us:.1f} us; it takes {below_us:.1f} us as it is", bound_us
    )


def known(wanted: Wanted, machine: str) -> Outcome | None:
    """What is in the cache. A table with more entries for a while has nothing there."""
    if extended():
        return None
    if isinstance(wanted.graph, SymbolicGraph):
        kept = kept_range(wanted.graph, load_machine(machine))
        if kept is not None:
            return kept
    found = _kept(wanted.graph, machine, FREE.text)
    if found is not None:
        own = {name.partition("/")[2]: text for name, text in found.items()}
        return Build(own, json.loads(own["schedule.json"])["summary"], 0.0)
    if wanted.below_us < math.inf and (noted := _kept(wanted.graph, machine, _BOUND)) is not None:
        bound_us = float(noted["microseconds"])
        if bound_us >= wanted.below_us:
            return too_slow(bound_us, wanted.below_us)
    refused = _kept(wanted.graph, machine, _NO_BUILD)
    return None if refused is None else Refusal(refused["reason"])


def keep_bound(graph: AnyGraph, machine: str, bound_us: float) -> None:
    """Keep the time that no schedule beats."""
    _keep(graph, machine, _BOUND, {"microseconds": repr(bound_us)})


def known_by_bounds(graph: AnyGraph, machine: str) -> float | None:
    """What was kept of the time that bounds alone say no schedule beats.

    It is not the one that a search has found: a piece is turned down before its build, or by it, alike in every
    process.
    """
    noted = None if extended() else _kept(graph, machine, _BY_BOUNDS)
    return None if noted is None else float(noted["microseconds"])


def keep_by_bounds(graph: AnyGraph, machine: str, bound_us: float) -> None:
    """Keep the time that bounds alone say no schedule beats."""
    if not extended():
        _keep(graph, machine, _BY_BOUNDS, {"microseconds": repr(bound_us)})


def keep_refusal(graph: AnyGraph, machine: str, reason: str) -> None:
    """Keep that there is no build."""
    _keep(graph, machine, _NO_BUILD, {"reason": reason})


def _key(graph: AnyGraph, machine: str, under: str) -> str:
    return build_key(graph, machine_text(load_machine(machine)), 1, under)


def _kept(graph: AnyGraph, machine: str, under: str) -> dict[str, str] | None:
    return BuildCache(cache_folder()).get(_key(graph, machine, under))


def _keep(graph: AnyGraph, machine: str, under: str, what: Mapping[str, str]) -> None:
    BuildCache(cache_folder()).put(_key(graph, machine, under), what)
