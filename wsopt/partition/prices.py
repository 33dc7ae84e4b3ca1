"""What the kernel of a piece takes, as exactly as anybody has asked so far: a roofline, a bound, or the kernel's own.

Most pieces are never the best of any cover, and a roofline is enough to show it. A piece that a cover takes is
priced by the best bound of its structures, and if it is taken still, its kernel is made.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wsopt.batch import BuildTask, Outcome, build_batch
from wsopt.build import Build
from wsopt.errors import InputError
from wsopt.frontend.region import find_region
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
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
    """Prices by piece, those of pieces that are alike found once."""

    machine: Machine
    use_cache: bool = True
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None
    workers: Workers = LOCAL
    known: dict[str, Price] = field(default_factory=dict)

    def __getitem__(self, piece: Piece) -> Price:
        return self.known[piece.key]

    def improve(self, pieces: Sequence[Piece]) -> bool:
        """Know the times of these one level better; whether there was any to be improved."""
        first: dict[str, Piece] = {}
        for piece in pieces:
            if self[piece].level is not Level.SOLVED:
                first.setdefault(piece.key, piece)
        rough = {key: piece for key, piece in first.items() if self.known[key].level is Level.ROOFLINE}
        # Kernels are made only once a cover is made of nothing but bounds: they take longest.
        if first:
            self.known |= self._bounded(rough) if rough else self._solved(first)
        return bool(first)

    def _bounded(self, pieces: dict[str, Piece]) -> dict[str, Price]:
        """Prices of pieces by bounds."""
        tasks = [_Task(piece.graph, self.machine) for piece in pieces.values()]
        found = self.workers.results(_bounded, tasks, functools.partial(self.progress, "bound"))
        return dict(zip(pieces, found, strict=True))

    def _solved(self, pieces: dict[str, Piece]) -> dict[str, Price]:
        """Prices of pieces by their kernels; those that are in the cache are taken at once."""
        tasks = [BuildTask(piece.graph, self.machine) for piece in pieces.values()]
        show = functools.partial(self.progress, "kernels")
        found = build_batch(tasks, self.workers, use_cache=self.use_cache, progress=show)
        prices = (_price(piece, outcome) for piece, outcome in zip(pieces.values(), found, strict=True))
        return dict(zip(pieces, prices, strict=True))


@dataclass(frozen=True, slots=True)
class _Task:
    graph: Graph
    machine: Machine


def _bounded(task: _Task) -> Price:
    """The price of a piece by bounds."""
    least = Search(find_region(task.graph), task.machine).least_bound_us()
    complaint = "" if least < math.inf else "no structure fits"
    return Price(least, Level.BOUND if least < math.inf else Level.SOLVED, complaint=complaint)


def _price(piece: Piece, outcome: Outcome) -> Price:
    """The price of a piece by its kernel. Raises what is wrong with its graph, which nobody has written."""
    if isinstance(outcome, InputError):
        raise outcome
    if not isinstance(outcome, tuple):
        return Price(math.inf, Level.SOLVED, complaint=str(outcome))
    return Price(outcome[0].summary["predicted_us"], Level.SOLVED, outcome[0], piece.graph)
