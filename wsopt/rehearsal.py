"""Runs an emitted kernel on the CPU at reduced extents and compares it with what the graph means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wsopt.errors import CheckError
from wsopt.graph.reference import evaluate, random_inputs, relative_error
from wsopt.graph.types import DType, Graph
from wsopt.interpret import execute
from wsopt.interpret.strategy import STRATEGIES
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tile.reduced import reaching, reduced
from wsopt.tile.region import streams_rows

TOLERANCE = {DType.F32: 1e-4, DType.F16: 5e-3, DType.BF16: 1e-2, DType.F8E4M3: 1e-2, DType.F8E5M2: 1e-2}
"""Largest relative error of an output, by its type, in the norm. The reference rounds where the graph does, so
that but few elements of an f8 output are rounded to another side.
"""

_FAR_SEEDS = 1
"""Interleavings of the longer run, which is there for the masks' numbers."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How many interleavings a kernel passed, and the largest relative error among its outputs."""

    seeds: int
    max_relative_error: float


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
    worst = 0.0
    for cut, count in rehearsed(graph, verified, seeds):
        worst = max(worst, _executed(cut, source, range(count), progress if count == seeds else _quietly))
    return Rehearsal(seeds, worst)


def rehearsed(graph: Graph, verified: VerifiedSchedule, seeds: int) -> tuple[tuple[Graph, int], ...]:
    """The graphs at reduced extents that a kernel is executed on, each with its number of interleavings."""
    slots = max(slots for _, slots in verified.schedule.rings)
    slabs = (slots if streams_rows(graph) else min(slots, 4)) + 1
    structure = verified.program.structure
    far = reaching(graph, structure, slabs)
    longer = () if far is None else ((far, min(seeds, _FAR_SEEDS)),)
    return ((reduced(graph, structure, slabs), seeds), *longer)


def processors(seed: int) -> int:
    """How many blocks share the tiles under a seed: two, or one that has all, and so goes round a deep ring too.

    Each kind of interleaving comes with both.
    """
    return 2 - seed // len(STRATEGIES) % 2


def _quietly(_done: int, _total: int) -> None:
    """No progress: a run that is short beside the others."""


def _executed(graph: Graph, source: str, seeds: range, progress: Callable[[int, int], None]) -> float:
    """The worst error of a graph's outputs over these interleavings."""
    inputs = random_inputs(graph, 0)
    expected = evaluate(graph, inputs)
    worst = 0.0
    for seed in seeds:
        progress(seed, len(seeds))
        outputs = execute(source, inputs, seed=seed, processors=processors(seed)).outputs
        for name, value in expected.items():
            error = relative_error(outputs[name], value)
            allowed = TOLERANCE[graph.type_of(name).dtype]
            if not error <= allowed:
                raise CheckError(
                    f"graph {graph.name}, output {name}: relative error {error:.2e} on the CPU, "
                    f"{allowed:.0e} is allowed (seed {seed})"
                )
            worst = max(worst, error)
    return worst
