"""Chooses the kernels of a range: samples are searched, near structures priced at all cells, a cover solved.

Structures that are not solved yet count with their bounds, which no schedule of them is faster than. A cover that
takes one has it solved, and is then asked again; the last cover has solved kernels alone. So its worst loss is the
least of all near structures, and `Cover.proved` says whether CP-SAT came to an end with it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from wsopt.deadline import UNLIMITED, Deadline
from wsopt.emit.source import emit
from wsopt.errors import InfeasibleError, LoweringError
from wsopt.graph.symbolic import said
from wsopt.perf.price import lower
from wsopt.pool.workers import Workers
from wsopt.program.types import Structure
from wsopt.ranges.alike import alike
from wsopt.ranges.find import (
    Found,
    Progress,
    Task,
    bound_all,
    kernel_of,
    search_at,
    solved_at,
)
from wsopt.ranges.forms import check_forms
from wsopt.ranges.kinds import kind_of
from wsopt.ranges.points import Grid, Point, grid_of, samples_of
from wsopt.ranges.price import Extents, Kernel, Key
from wsopt.report.layout import counted
from wsopt.schedule.verified import for_trial
from wsopt.solve.cover import Cover, Losses, cover, covering

SAMPLES = 24
"""Extents that are searched, about."""
_ROUNDS = 60
"""Covers at most; each but the last has structures solved."""

Columns = list[tuple[Kernel | Structure, list[float]]]
"""What may serve, with its times at all cells, in microseconds."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernels, the number of the one that serves each cell, and per cell the predicted time in microseconds, the
    least known one, and with `worst`, `mean`, `switches` and `proved` what the cover is worth; what there was no time
    for, in words.
    """

    grid: Grid
    samples: tuple[Point, ...]
    considered: int
    near: int
    solved: int
    kernels: tuple[Kernel, ...]
    serves: tuple[int, ...]
    times: tuple[float, ...]
    best: tuple[float, ...]
    worst: float
    mean: float
    switches: int
    proved: tuple[bool, bool, bool]
    skipped: tuple[str, ...] = ()

    def largest(self, kernel: int) -> Point:
        """The largest extents of the cells that a kernel serves, those of the first dimension first."""
        return max(
            cell for cell, number in zip(self.grid.cells, self.serves, strict=True) if number == kernel
        )


@dataclass(slots=True)
class Chooser:
    """The state of a choice: what was found at samples, bounds of structures not solved, solved kernels with their
    times, cell by cell. What the compiler rejected is `rejected`.
    """

    extents: Extents
    most: int
    progress: Progress
    workers: Workers
    grid: Grid
    deadline: Deadline = UNLIMITED
    found: dict[Point, Found] = field(default_factory=dict)
    bounds: dict[Structure, list[float]] = field(default_factory=dict)
    kernels: dict[Key, Kernel] = field(default_factory=dict)
    times: dict[Key, list[float]] = field(default_factory=dict)
    rejected: set[Structure] = field(default_factory=set)
    near: int = 0
    _kinds: dict[Structure, Hashable] = field(default_factory=dict)
    _seen: set[tuple[Key, Point]] = field(default_factory=set)

    def search(self) -> None:
        """Search the samples, and price what came near at all cells."""
        graph, machine = self.extents.symbolic, self.extents.machine
        points = samples_of(self.grid, SAMPLES)
        check_forms(self.extents, self.grid, points)
        seconds = self.deadline.share(len(points), self.workers.at_once, self.deadline.samples_end)
        tasks = [Task(graph, machine, one, seconds=seconds, deadline=self.deadline) for one in points]
        results = self.workers.results(
            search_at, tasks, lambda done, total: self.progress("search", done, total)
        )
        self.found = {one.point: one for one in results}
        for one in results:
            self._add(kernel_of(one, self.extents))
        self._check_cells()
        structures = list(dict.fromkeys(s for one in results for s, _ in one.near))
        self.near = len(structures)
        rows = bound_all(self.extents, structures, self.grid.cells, self.workers, self.progress)
        self.bounds = dict(zip(structures, rows, strict=True))

    def _check_cells(self) -> None:
        """Raise LoweringError where the kernels that are the best at samples leave some extents without any."""
        both = (point for cell in self.grid.cells for point in (self.grid.first(cell), cell))
        for point in dict.fromkeys(both):
            if any(self.extents.runs(kernel, point) for kernel in self.kernels.values()):
                continue
            graph, extents = self.extents.symbolic.name, said(self.extents.values(point))
            raise LoweringError(
                f"graph {graph}: no kernel of the range takes a call with {extents}: {self._complaint(point)}; "
                "give such an extent as a number, in a graph for each"
            )

    def _complaint(self, point: Point) -> str:
        """What the kernel whose own extents are the nearest to these has against them."""
        kernels = self.kernels.values()
        nearest = min(kernels, key=lambda one: [abs(a - b) for a, b in zip(one.home, point, strict=True)])
        why = self.extents.refusal(nearest, point)
        return f"that for {said(self.extents.values(nearest.home))} says that {why}"

    def _add(self, kernel: Kernel) -> None:
        """A solved kernel, with its times at all cells. Its structure may have others, with other rings."""
        if kernel.key not in self.kernels:
            self.kernels[kernel.key] = kernel
            self.times[kernel.key] = [self._microseconds(kernel, cell) for cell in self.grid.cells]

    def _microseconds(self, kernel: Kernel, cell: Point) -> float:
        """The time of a kernel at a cell; infinite where it does not take the least extents of it either."""
        first = self.grid.first(cell)
        taken = first in (cell, kernel.home) or self.extents.runs(kernel, first)
        return self.extents.microseconds(kernel, cell) if taken else math.inf

    def choose(self) -> Choice:
        """The best cover by kernels that are solved and that serve their cells with one text. Where there is no time
        to solve more, structures that are not solved say what the best is, and serve nowhere.
        """
        for number in range(_ROUNDS):
            self.progress("cover", number, 0)
            columns = self._columns()
            best = [min(times) for times in zip(*(times for _, times in columns), strict=True)]
            self._check_best(best)
            solved = self._solved_alone(best) if time.monotonic() > self.deadline.search_end else None
            columns = solved or columns
            losses = self._losses(columns, best)
            if not self._solved(self._covering(losses), columns):
                continue  # the worst loss first: most structures are solved for that
            found = cover(losses, self.most)
            if self._solved(found.chosen, columns) and not self._strange(found, [one for one, _ in columns]):
                return self._choice(found, columns, best, cut_short=solved is not None)
        raise InfeasibleError(
            f"graph {self.extents.symbolic.name}: no kernels settled on in {_ROUNDS} covers"
        )

    def _covering(self, losses: Losses) -> tuple[int, ...]:
        """As `covering`, with the graph's name where there are no such kernels."""
        try:
            return covering(losses, self.most)
        except InfeasibleError as error:
            raise InfeasibleError(f"graph {self.extents.symbolic.name}: {error}") from error

    def _check_best(self, best: list[float]) -> None:
        """Raise InfeasibleError where some extents have no kernel at all."""
        for cell, least in zip(self.grid.cells, best, strict=True):
            if least == math.inf:
                first, last = (said(self.extents.values(one)) for one in (self.grid.first(cell), cell))
                graph = self.extents.symbolic.name
                raise InfeasibleError(
                    f"graph {graph}: no kernel takes all of {first} to {last}, for each is written for some of them; "
                    "name more extents that are typical, or give such an extent as a number, in a graph for each"
                )

    def _solved_alone(self, best: list[float]) -> Columns | None:
        """The solved kernels, if so few of them as are allowed serve all cells."""
        solved: Columns = [
            (self.kernels[key], times)
            for key, times in self.times.items()
            if key.structure not in self.rejected
        ]
        with suppress(InfeasibleError):
            covering(self._losses(solved, best), self.most)
            return solved
        return None

    def _solved(self, chosen: Sequence[int], columns: Columns) -> bool:
        """Whether a choice has solved kernels alone; if not, its structures are solved."""
        open_ones = [one for k in chosen if isinstance(one := columns[k][0], Structure)]
        for s in open_ones:
            self._solve(s)
        return not open_ones

    def _columns(self) -> Columns:
        """Everything that may serve: solved kernels, then structures with their bounds; dominated ones left out."""
        every: Columns = [
            (self.kernels[key], times)
            for key, times in self.times.items()
            if key.structure not in self.rejected
        ]
        done = {one.schedule.structure for one in self.kernels.values()}
        every += [(s, row) for s, row in self.bounds.items() if s not in self.rejected | done]
        return _undominated(every, [self._kind(one) for one, _ in every])

    def _kind(self, one: Kernel | Structure) -> Hashable:
        """What has to be alike among kernels of the range: nothing, unless the graph is deterministic."""
        if not self.extents.symbolic.generic.deterministic:
            return None
        if isinstance(one, Kernel):
            return kind_of(one.verified.program)
        if one not in self._kinds:
            program = lower(self.extents.region(self._home(one)), one, self.extents.machine)
            self._kinds[one] = kind_of(program)
        return self._kinds[one]

    def _losses(self, columns: Columns, best: list[float]) -> Losses:
        loss = [tuple(t / least - 1 for t, least in zip(times, best, strict=True)) for _, times in columns]
        weights, kinds = self.grid.weights(), tuple(self._kind(one) for one, _ in columns)
        return Losses(tuple(loss), tuple(weights), self.grid.neighbours, kinds)

    def _home(self, s: Structure) -> Point:
        """The sample at which a structure comes nearest to the best."""
        places = {
            point: dict(one.near)[s] / one.schedule.prediction.microseconds
            for point, one in self.found.items()
            if s in dict(one.near)
        }
        return min(places, key=lambda point: (places[point], point))

    def _solve(self, s: Structure) -> None:
        home = self._home(s)
        kernel = solved_at(self.extents, s, home, self.found[home])
        del self.bounds[s]
        if kernel is not None:
            self._add(kernel)

    def _strange(self, found: Cover, columns: list[Kernel | Structure]) -> bool:
        """Whether a kernel would be written otherwise at a cell that it serves, or refuse a call there; it then no
        longer counts there.
        """
        strange = False
        for number, (cell, k) in enumerate(zip(self.grid.cells, found.serves, strict=True)):
            kernel = columns[k]
            assert isinstance(kernel, Kernel), "a cover that is looked at has solved kernels alone"
            if (kernel.key, cell) in self._seen:
                continue
            self._seen.add((kernel.key, cell))
            if not self._serves(kernel, cell):
                self.times[kernel.key][number] = math.inf
                strange = True
        return strange

    def _serves(self, kernel: Kernel, cell: Point) -> bool:
        """Whether a kernel takes calls of a cell's least and largest extents, and is written alike for both."""
        for point in dict.fromkeys((self.grid.first(cell), cell)):
            if point == kernel.home:
                continue
            program = self.extents.program(kernel, point)
            there = for_trial(kernel.verified, program=program)
            if not self.extents.runs(kernel, point) or not alike(emit(there), kernel.source):
                return False
        return True

    def _choice(self, found: Cover, columns: Columns, best: list[float], *, cut_short: bool) -> Choice:
        """The choice that a cover by solved kernels is, its kernels in the order of the cells that they serve; with
        near structures left unsolved, where it was `cut_short`, nothing is proved.
        """
        order = list(dict.fromkeys(found.serves))
        chosen = [columns[k][0] for k in order]
        return Choice(
            grid=self.grid,
            samples=tuple(self.found),
            considered=sum(one.certificate.considered for one in self.found.values()),
            near=self.near,
            solved=len(self.kernels),
            kernels=tuple(one for one in chosen if isinstance(one, Kernel)),
            serves=tuple(order.index(k) for k in found.serves),
            times=tuple(columns[k][1][c] for c, k in enumerate(found.serves)),
            best=tuple(best),
            worst=found.worst,
            mean=found.mean,
            switches=found.switches,
            proved=found.proved if not cut_short else (False, False, False),
            skipped=self._skipped(cut_short=cut_short),
        )

    def _skipped(self, *, cut_short: bool) -> tuple[str, ...]:
        """What there was no time for, in words: near structures, and such of the samples' searches."""
        near = counted(len(self.bounds), "near structure")
        open_ones = sum(one.certificate.unfinished for one in self.found.values())
        return (
            *([f"{near} not solved"] if cut_short else []),
            *([f"{counted(open_ones, 'structure')} left open at samples"] if open_ones else []),
        )


def _undominated(columns: Columns, kinds: list[Hashable]) -> Columns:
    """Those than which no other one of their kind is as fast at all cells; of equals the first."""
    times, kept = np.array([row for _, row in columns]), []
    for number, (one, row) in enumerate(columns):
        alike = np.array([kind == kinds[number] for kind in kinds])
        no_slower = alike & (times <= times[number]).all(axis=1)
        better = no_slower & (times < times[number]).any(axis=1)
        if np.isfinite(times[number]).any() and not better.any() and not no_slower[:number].any():
            kept.append((one, row))
    return kept


def chooser_of(
    extents: Extents, most: int, progress: Progress, workers: Workers, deadline: Deadline = UNLIMITED
) -> Chooser:
    """A chooser of at most so many kernels that has searched nothing yet."""
    return Chooser(extents, most, progress, workers, grid_of(extents.symbolic.dims), deadline)
