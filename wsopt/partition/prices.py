"""What the kernel of a piece takes, as exactly as anybody has asked so far: a roofline, a bound, or the kernel's own.

Most pieces are never the best of any cover, and a roofline is enough to show it. A piece that a cover takes is
priced by the best bound of its structures, and if it is taken still, its kernel is made.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wsopt.build import Build
from wsopt.driver import build
from wsopt.errors import CheckError, InfeasibleError, LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.pieces import Piece
from wsopt.ranges.parallel import in_processes
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
        tasks = [_Task(piece.graph, self.machine, self.use_cache) for piece in (rough or first).values()]
        stage, work = ("bound", _bounded) if rough else ("kernels", _solved)
        found = in_processes(work, tasks, lambda done, total: self.progress(stage, done, total))
        self.known |= dict(zip(rough or first, found, strict=True))
        return bool(first)


@dataclass(frozen=True, slots=True)
class _Task:
    graph: Graph
    machine: Machine
    use_cache: bool


def _bounded(task: _Task) -> Price:
    """The price of a piece by bounds; a build that is in the cache is taken at once."""
    least = Search(find_region(task.graph), task.machine).least_bound_us()
    complaint = "" if least < math.inf else "no structure fits"
    return Price(least, Level.BOUND if least < math.inf else Level.SOLVED, complaint=complaint)


def _solved(task: _Task) -> Price:
    """The price of a piece by its kernel."""
    try:
        found = build(task.graph, task.machine, use_cache=task.use_cache)
    except (InfeasibleError, LoweringError, CheckError) as error:
        return Price(math.inf, Level.SOLVED, complaint=str(error))
    return Price(found.summary["predicted_us"], Level.SOLVED, found, task.graph)
