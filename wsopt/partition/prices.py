"""What the kernel of a piece takes, as exactly as anybody has asked so far: a roofline, a bound, or the kernel's own.

Most pieces are never the best of any cover, and a roofline is enough to show it. A piece that a cover takes is
priced by the best bound of its structures, and if it is taken still, its kernel is made.
"""

from __future__ import annotations

import enum
import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wsopt.batch import BuildTask, Outcome, build_batch
from wsopt.build import Build
from wsopt.deadline import UNLIMITED, Deadline
from wsopt.errors import InputError, TimeOverError
from wsopt.frontend.region import find_region
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.accept import Answer
from wsopt.partition.pieces import Piece
from wsopt.pool.local import LOCAL
from wsopt.pool.workers import Workers
from wsopt.solve.search import Search


class Level(enum.IntEnum):
    """How well a time is known."""

    ROOFLINE = 0
    BOUND = 1
    SOLVED = 2


@dataclass(frozen=True, slots=True)
class Price:
    """Microseconds that a piece's kernel takes, at least where it is not `SOLVED`; infinite, with the reason in
    `complaint`, where there is none. A `build` was `made_of` the graph of one of the pieces that are alike.
    """

    microseconds: float
    level: Level
    build: Build | None = None
    made_of: Graph | None = None
    complaint: str = ""


@dataclass(slots=True)
class Prices:
    """Prices by piece, those of pieces that are alike found once, and the front end's `answers`: of a graph written
    in several ways most pieces are in all. `late` names pieces, by their last outputs, whose kernels were not
    finished in their share of the time before the `deadline`.
    """

    machine: Machine
    use_cache: bool = True
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None
    workers: Workers = LOCAL
    deadline: Deadline = UNLIMITED
    known: dict[str, Price] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)

    def __getitem__(self, piece: Piece) -> Price:
        return self.known[piece.key]

    @property
    def is_late(self) -> bool:
        """Whether what is made has to do, if it does."""
        return bool(self.late) or time.monotonic() > self.deadline.search_end

    def improve(self, pieces: Sequence[Piece]) -> bool:
        """Know the times of these one level better; whether there was any to be improved."""
        first: dict[str, Piece] = {}
        for piece in pieces:
            if self[piece].level is not Level.SOLVED:
                first.setdefault(piece.key, piece)
        rough = {key: piece for key, piece in first.items() if self.known[key].level is Level.ROOFLINE}
        # Kernels are made only once a cover is made of nothing but bounds, for they take longest, or late.
        if first:
            bounding = rough and time.monotonic() < self.deadline.bounding_end
            self.known |= self._bounded(rough) if bounding else self._solved(first)
        return bool(first)

    def bound(self, pieces: Sequence[Piece]) -> None:
        """Know at least a bound of the times of these, unless it is late for bounds."""
        rough = {piece.key: piece for piece in pieces if self[piece].level is Level.ROOFLINE}
        if rough and time.monotonic() < self.deadline.bounding_end:
            self.known |= self._bounded(rough)

    def _bounded(self, pieces: dict[str, Piece]) -> dict[str, Price]:
        """Prices of pieces by bounds; those that are late keep the prices that they have."""
        tasks = [
            _Task(piece.graph, self.machine, self.deadline, self.known[key]) for key, piece in pieces.items()
        ]
        found = self.workers.results(_bounded, tasks, functools.partial(self.progress, "bound"))
        return dict(zip(pieces, found, strict=True))

    def _solved(self, pieces: dict[str, Piece]) -> dict[str, Price]:
        """Prices of pieces by their kernels; those that are in the cache are taken at once, those that are late keep
        the prices that they have.
        """
        seconds = self.deadline.share(len(pieces), self.workers.at_once, self.deadline.simulation_end)
        tasks = [BuildTask(piece.graph, self.machine, seconds=seconds) for piece in pieces.values()]
        show = functools.partial(self.progress, "kernels")
        found = build_batch(tasks, self.workers, use_cache=self.use_cache, progress=show)
        outcomes = dict(zip(pieces, found, strict=True))
        late = [key for key, outcome in outcomes.items() if isinstance(outcome, TimeOverError)]
        self.late += [pieces[key].graph.outputs[-1] for key in late]
        return {key: _price(pieces[key], outcomes[key]) for key in pieces if key not in late}


@dataclass(frozen=True, slots=True)
class _Task:
    graph: Graph
    machine: Machine
    deadline: Deadline
    price: Price


class _LateError(Exception):
    """Kernels are to be made now, with or without a bound of their time."""


def _bounded(task: _Task) -> Price:
    """The price of a piece by bounds; the one it has where the time for them is over."""

    def check(_done: int, _total: int) -> None:
        if time.monotonic() > task.deadline.bounding_end:
            raise _LateError

    try:
        least = Search(find_region(task.graph), task.machine, bounding=check).least_bound_us()
    except _LateError:
        return task.price
    complaint = "" if least < math.inf else "no structure fits"
    return Price(least, Level.BOUND if least < math.inf else Level.SOLVED, complaint=complaint)


def _price(piece: Piece, outcome: Outcome) -> Price:
    """The price of a piece by its kernel. Raises what is wrong with its graph, which nobody has written."""
    if isinstance(outcome, InputError):
        raise outcome
    if not isinstance(outcome, tuple):
        return Price(math.inf, Level.SOLVED, complaint=str(outcome))
    return Price(outcome[0].summary["predicted_us"], Level.SOLVED, outcome[0], piece.graph)
