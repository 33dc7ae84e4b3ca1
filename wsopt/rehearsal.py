"""Runs an emitted kernel on the CPU at reduced extents and compares it with what the graph means.

Every line of its device functions has to run: what the first extents leave out is run at others (`tile/reduced.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wsopt.emit.product_body import covering_slabs
from wsopt.errors import CheckError
from wsopt.graph.reference import evaluate, random_inputs, relative_error
from wsopt.graph.types import DType, Graph
from wsopt.interpret import Coverage, execute, marked
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tile.reduced import beyond, further, reaching, reduced

TOLERANCE = {DType.F32: 1e-4, DType.F16: 5e-3, DType.BF16: 1e-2, DType.F8E4M3: 1e-2, DType.F8E5M2: 1e-2}
"""Largest relative error of an output, by its type, in the norm. The reference rounds where the graph does, so
that but few elements of an f8 output are rounded to another side.
"""

_PROCESSORS = 2
_FAR_SEEDS = 1
"""Interleavings of the longer run, which is there for the masks' numbers."""

_FURTHER_SEEDS = 3
"""Interleavings of a run for lines that no other has run."""

_MANY = 1 << 20
"""Processors enough for each tile to be a block's only one."""

_ENDS = 6
"""Of the first blocks and of the last so many run where a mask reaches too far for all: numbers are not compared."""

_MOST_NAMED = 3
"""Lines that an error names."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How many interleavings a kernel passed, the largest relative error among its outputs, and how many lines of its
    device functions ran, of how many.
    """

    seeds: int
    max_relative_error: float
    lines_run: int
    lines: int

    def summary(self) -> dict[str, Any]:
        """The same as `--json` prints it."""
        return {
            "seeds": self.seeds,
            "max_relative_error": self.max_relative_error,
            "lines": {"run": self.lines_run, "of": self.lines},
        }


def rehearse(
    graph: Graph,
    verified: VerifiedSchedule,
    source: str,
    seeds: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Rehearsal:
    """Execute `source` under `seeds` adversarial interleavings.

    The graph is cut to a few ragged tiles of the schedule's structure, with enough slabs to go round the ring; where
    a mask reaches further than those, once more as far as it reaches; and where lines have not run then, at other
    extents until they have; if a mask reaches too far for that, in some blocks alone. Raises CheckError for a race,
    a deadlock, a barrier fault, an error above TOLERANCE, or a line that has not run.
    """
    slabs = min(max(slots for _, slots in verified.schedule.rings), 4) + 1
    structure = verified.program.structure
    ran: set[int] = set()
    worst = _executed(reduced(graph, structure, slabs), source, range(seeds), progress, ran)
    far = reaching(graph, structure, slabs)
    if far is not None:
        worst = max(worst, _executed(far, source, range(min(seeds, _FAR_SEEDS)), _silent, ran))
    lines = marked(source).lines
    for other in further(graph, structure, max(slabs, covering_slabs(verified))):
        if len(ran) == len(lines):
            break
        if _has_numbers(other):
            worst = max(worst, _executed(other, source, range(min(seeds, _FURTHER_SEEDS)), _silent, ran))
    longest = beyond(graph, structure) if len(ran) < len(lines) else None
    if longest is not None:
        ran |= execute(source, random_inputs(longest, 0), seed=0, processors=_MANY, ends=_ENDS).ran
    covered = Coverage(lines, frozenset(ran))
    _check_covered(graph, source, covered)
    return Rehearsal(seeds, worst, covered.of - len(covered.missed), covered.of)


def _has_numbers(graph: Graph) -> bool:
    """Whether a graph's outputs are numbers: at some extents a row may have nothing that it could be a mean of."""
    return not any(
        np.isnan(value.astype(np.float32)).any()
        for value in evaluate(graph, random_inputs(graph, 0)).values()
    )


def _silent(done: int, total: int) -> None:
    del done, total


def _check_covered(graph: Graph, source: str, covered: Coverage) -> None:
    """Raise CheckError if a line of the kernel has not run."""
    if not covered.missed:
        return
    text = source.splitlines()
    named = [f"  kernel.py:{line}: {text[line - 1].strip()}" for line in covered.missed[:_MOST_NAMED]]
    more = len(covered.missed) - len(named)
    raise CheckError(
        f"graph {graph.name}: {len(covered.missed)} of the kernel's {covered.of} lines did not run at any extents "
        "it was executed at:\n" + "\n".join([*named, *([f"  and {more} more"] if more else [])])
    )


def _executed(
    graph: Graph, source: str, seeds: range, progress: Callable[[int, int], None], ran: set[int]
) -> float:
    """The worst error of a graph's outputs over these interleavings; notes in `ran` which statements do."""
    inputs = random_inputs(graph, 0)
    expected = evaluate(graph, inputs)
    worst = 0.0
    for seed in seeds:
        progress(seed, len(seeds))
        execution = execute(source, inputs, seed=seed, processors=_PROCESSORS)
        ran |= execution.ran
        outputs = execution.outputs
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
