"""Searches at sample extents: the best schedule of each, and structures that come near it, as candidates for all.

A kernel that is the best nowhere may be good in many places. So structures whose bound is near the best of a sample
are priced at every cell by their bounds, and those that a cover takes are then solved.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from wsopt.checker import verify
from wsopt.deadline import UNLIMITED, Deadline
from wsopt.errors import CheckError, InfeasibleError, LoweringError
from wsopt.graph.symbolic import SymbolicGraph, said
from wsopt.machine.types import Machine
from wsopt.perf.price import lower
from wsopt.pool.workers import Workers
from wsopt.program.types import Structure
from wsopt.ranges.points import Point
from wsopt.ranges.price import Extents, Kernel
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.types import Schedule
from wsopt.solve.bound import infeasible, lower_bound_us
from wsopt.solve.optimum import solve
from wsopt.solve.search import DEFAULT_MARGIN, Search
from wsopt.solve.worker import limited

NEAR = 1.25
"""How far above the best of a sample a structure's bound may be to be priced elsewhere. What is the best between two
samples, for it fills the last wave there, is so near at one of them.
"""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Task:
    """A search at some extents, without structures that the compiler rejected there. With a schedule found it leaves
    the rest open after so many `seconds`, and it fails where the whole command's time is over before it has one.
    """

    graph: SymbolicGraph
    machine: Machine
    point: Point
    rejected: frozenset[Structure] = frozenset()
    seconds: float = math.inf
    deadline: Deadline = UNLIMITED


@dataclass(frozen=True, slots=True)
class Found:
    """The best schedule at some extents, its certificate, and the bounds of structures near it in microseconds."""

    point: Point
    schedule: Schedule
    certificate: Certificate
    near: tuple[tuple[Structure, float], ...]


def search_at(task: Task) -> Found:
    """Search all structures at a task's extents. Raises LoweringError or InfeasibleError, with the extents."""
    extents = Extents(task.graph, task.machine)
    search = Search(extents.region(task.point), task.machine, rejected=task.rejected)
    search.deadline = time.monotonic() + task.seconds
    show = task.deadline.bounded(task.graph.name, lambda stage, done, total: None)
    search.progress = search.bounding = functools.partial(show, "search")
    try:
        with limited(task.deadline.end):
            verified, certificate = search.run()
    except (LoweringError, InfeasibleError) as error:
        raise type(error)(f"with {said(extents.values(task.point))}: {error}") from error
    most = NEAR * verified.schedule.prediction.microseconds
    near = {s: bound for s, bound in search.first_bounds.items() if bound <= most}
    return Found(
        task.point,
        verified.schedule,
        certificate,
        tuple(_fewer(near, alike=task.graph.generic.deterministic).items()),
    )


def _fewer(near: dict[Structure, float], *, alike: bool) -> dict[Structure, float]:
    """Of structures that cut into the same tiles that with the best bound; where kernels are to be `alike` in the
    order of sums, of those with the same K-blocks too.
    """
    best: dict[tuple[int, ...], Structure] = {}
    for s in sorted(near, key=lambda one: (near[one], one)):
        tile = (
            s.tile_rows,
            s.columns,
            s.splits,
            s.shares,
            s.swap,
            s.copies,
            s.tail,
            s.transforms,
            s.exp2_eighths,
        )
        best.setdefault((*tile, s.depth if alike else 0), s)
    return {s: near[s] for s in best.values()}


def kernel_of(found: Found, extents: Extents) -> Kernel:
    """The kernel of a search's best schedule, checked again here."""
    program = lower(extents.region(found.point), found.schedule.structure, extents.machine)
    verified = verify(found.schedule, program, extents.machine, found.certificate.margin)
    return Kernel(found.point, verified, found.certificate)


@dataclass(frozen=True, slots=True)
class Bounding:
    """Structures to be bounded at cells."""

    graph: SymbolicGraph
    machine: Machine
    structures: tuple[Structure, ...]
    cells: tuple[Point, ...]


def bounds_at(task: Bounding) -> list[list[float]]:
    """Lower bounds of the times in microseconds, structure by structure; infinite where a budget rules one out."""
    extents = Extents(task.graph, task.machine)
    return [[_bound(extents, s, cell) for cell in task.cells] for s in task.structures]


def _bound(extents: Extents, s: Structure, cell: Point) -> float:
    try:
        program = lower(extents.region(cell), s, extents.machine)
    except LoweringError:
        return math.inf
    ruled_out = infeasible(program, extents.machine, DEFAULT_MARGIN)
    return math.inf if ruled_out else lower_bound_us(program, extents.machine)


_CHUNK = 16
"""Structures that a process bounds at a time."""


def bound_all(
    extents: Extents,
    structures: Sequence[Structure],
    cells: tuple[Point, ...],
    workers: Workers,
    progress: Progress,
) -> list[list[float]]:
    """Lower bounds of the times of all structures at all cells, in microseconds."""
    tasks = [
        Bounding(extents.symbolic, extents.machine, tuple(structures[first : first + _CHUNK]), cells)
        for first in range(0, len(structures), _CHUNK)
    ]
    rows = workers.results(bounds_at, tasks, lambda done, total: progress("price", done, total))
    return [row for chunk in rows for row in chunk]


def solved_at(extents: Extents, s: Structure, point: Point, best: Found) -> Kernel | None:
    """The kernel of a structure, solved at a sample where another one may be the best; None if it has no schedule."""
    program = lower(extents.region(point), s, extents.machine)
    found = solve(program, extents.machine, DEFAULT_MARGIN)
    if found.schedule is None:
        return None
    try:
        verified = verify(found.schedule, program, extents.machine, DEFAULT_MARGIN)
    except CheckError:
        return None
    time_us, bound_us = verified.schedule.prediction.microseconds, best.certificate.bound_us
    gap = max(0.0, (time_us - bound_us) / time_us)
    return Kernel(point, verified, replace(best.certificate, gap=gap))
