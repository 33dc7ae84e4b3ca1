"""Runs an emitted kernel on the CPU at reduced extents and compares it with what the graph means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wsopt.agreement.judge import NO_DIFFERENCE, Agreement
from wsopt.errors import CheckError
from wsopt.graph.agreement import Referee, expectations
from wsopt.graph.reference import random_inputs
from wsopt.graph.types import DType, Graph
from wsopt.interpret import execute
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tile.reduced import reaching, reduced

TOLERANCE = {DType.F32: 1e-4, DType.F16: 5e-3, DType.BF16: 1e-2, DType.F8E4M3: 1e-2, DType.F8E5M2: 1e-2}
"""Largest relative error of an output, by its type, in the norm. The reference rounds where the graph does, so
that but few elements of an f8 output are rounded to another side.
"""

_PROCESSORS = 2
_FAR_SEEDS = 1
"""Interleavings of the longer run, which is there for the masks' numbers."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How many interleavings a kernel passed, and how far its outputs were off at most.

    `worst` has the worst figures of all outputs: of a whole one, of a row, and of an element (`agreement/judge.py`).
    """

    seeds: int
    worst: Agreement

    @property
    def max_relative_error(self) -> float:
        """The largest relative error of an output."""
        return self.worst.error

    @property
    def figures(self) -> dict[str, Any]:
        """The figures as JSON data."""
        return {"seeds": self.seeds, **self.worst.figures}


def rehearse(
    graph: Graph,
    verified: VerifiedSchedule,
    source: str,
    seeds: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Rehearsal:
    """Execute `source` under `seeds` adversarial interleavings.

    The graph is cut to a few ragged tiles of the schedule's structure, with enough slabs to go round the ring; where
    a mask reaches further than those, once more as far as it reaches. Raises CheckError for a race, a deadlock, a
    barrier fault, or an error above TOLERANCE.
    """
    slabs = min(max(slots for _, slots in verified.schedule.rings), 4) + 1
    structure = verified.program.structure
    worst = _executed(reduced(graph, structure, slabs), source, range(seeds), progress)
    far = reaching(graph, structure, slabs)
    if far is not None:
        worst |= _executed(far, source, range(min(seeds, _FAR_SEEDS)), lambda _done, _total: None)
    return Rehearsal(seeds, worst)


def _executed(graph: Graph, source: str, seeds: range, progress: Callable[[int, int], None]) -> Agreement:
    """The worst agreement of a graph's outputs over these interleavings."""
    inputs = random_inputs(graph, 0)
    referee = Referee(
        expectations(graph, inputs), {name: TOLERANCE[graph.type_of(name).dtype] for name in graph.outputs}
    )
    worst = NO_DIFFERENCE
    for seed in seeds:
        progress(seed, len(seeds))
        outputs = execute(source, inputs, seed=seed, processors=_PROCESSORS).outputs
        for name in graph.outputs:
            found = referee.agreement(name, outputs[name])
            if not found.accepted:
                raise CheckError(f"graph {graph.name}, output {name} on the CPU, seed {seed}: {found.told}")
            worst |= found
    return worst
