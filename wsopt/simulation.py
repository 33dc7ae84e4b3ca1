"""Runs an emitted kernel on the CPU at reduced extents and compares it with what the graph means.

Every line of its device functions has to run: what the first extents leave out is run at others
(`lowering/reduced.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wsopt.agreement.judge import NO_DIFFERENCE, Agreement, Expected
from wsopt.emit.sliced import at_extents_of
from wsopt.emit.source import covering_k_blocks
from wsopt.errors import CheckError, NeverRunError
from wsopt.frontend.roles import graph_axes
from wsopt.graph.agreement import Referee, expectations
from wsopt.graph.grouped import OFFSET_KINDS, grouped_rows
from wsopt.graph.lengths import KINDS, compared_extents
from wsopt.graph.needed import needed
from wsopt.graph.reference import Array, evaluate, random_inputs
from wsopt.graph.types import DType, Graph
from wsopt.interpret import Coverage, execute, marked
from wsopt.interpret.strategy import STRATEGIES, processors, sharing_processors
from wsopt.lowering.reduced import beyond, further, reaching, reduced
from wsopt.program.over_rows import bundle_parts, carried
from wsopt.program.program import Iteration
from wsopt.program.scalars import aligned_scalars
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.views import Role

_NARROW = (DType.BF16, DType.F8E4M3, DType.F8E5M2, DType.I8, DType.BOOL)
TOLERANCE = {DType.F32: 1e-4, DType.I32: 1e-4, DType.F16: 5e-3, **dict.fromkeys(_NARROW, 1e-2)}
"""Largest relative error of an output, by its type, in the norm. The reference rounds where the graph does, so
that but few elements of an f8 output are rounded to another side.
"""

_FAR_SEEDS = 1
"""Interleavings of the longer run, which is there for the masks' numbers."""

_FURTHER_SEEDS = 3
"""Interleavings of a run for lines that no other has run."""

_MANY = 1 << 20
"""Processors enough for each tile to be a block's only one."""

_ENDS = 6
"""Of the first blocks and of the last so many run where a mask reaches too far for all: numbers are not compared."""

_COLUMN_TILES = 3
"""Tiles of columns that a kernel of rows is executed on, at most (`lowering/reduced.py`)."""

_SMALLER, _SHRINKS = 1 / 16, 2
"""Factor of inputs for which outputs overflow, and how often it is applied."""

_ELEMENTS = 1 << 25
"""Elements that blocks without barriers store in all interleavings together."""

_MOST_NAMED = 3
"""Lines that an error names."""


@dataclass(frozen=True, slots=True)
class Run:
    """A graph at reduced extents, and under how many interleavings a kernel is executed on it.

    Each of `given` is an input with a value for all of its elements, which takes the place of a draw of inputs.
    """

    graph: Graph
    seeds: int
    given: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Simulation:
    """How many interleavings a kernel passed, how far its outputs were off at most, how many lines ran, and on which
    graphs.

    With more time those would have been as many as were `asked`. `worst` has the worst figures of all outputs: of a
    whole one, of a row, and of an element (`agreement/judge.py`). `lines` are those of the kernel's device functions.
    """

    seeds: int
    asked: int
    worst: Agreement
    lines_run: int
    lines: int
    runs: tuple[Run, ...]

    @property
    def max_relative_error(self) -> float:
        """The largest relative error of an output."""
        return self.worst.error

    def summary(self) -> dict[str, Any]:
        """The simulation as `--json` prints it."""
        lines = {"run": self.lines_run, "of": self.lines}
        return {"seeds": self.seeds, **self.worst.figures, "lines": lines}


def simulate(
    graph: Graph,
    verified: VerifiedSchedule,
    source: str,
    seeds: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
    enough: Callable[[], bool] = lambda: False,
) -> Simulation:
    """Execute `source` under `seeds` adversarial interleavings, or fewer once there is `enough`: one of each strategy
    at least, and all where inputs say at run time how long rows are.

    The graph is cut to a few ragged tiles of the schedule's structure, with enough K-blocks to go round the ring;
    where a mask reaches further than those, once more as far as it reaches; and where lines have not run then, at
    other extents until they have; if a mask reaches too far for that, in some blocks alone; and uncompared where
    outputs are no numbers anyway. Raises CheckError for a race, a deadlock, a barrier fault, an error above
    TOLERANCE, or a line that has not run.
    """
    lines = marked(source).lines
    ran: set[int] = set()
    runs: list[Run] = []
    worst, asked = NO_DIFFERENCE, 0
    blocks = _blocks(verified)
    for run in _runs(graph, verified, seeds, lambda: len(ran) == len(lines)):
        text = at_extents_of(source, graph, run.graph)
        found, done = _executed(run, text, blocks, progress if not runs else _silent, ran, enough)
        worst, asked = worst | found, asked or run.seeds
        runs.append(replace(run, seeds=done))
    for other in _without_numbers(graph, verified) if len(ran) < len(lines) else ():
        ran |= execute(
            at_extents_of(source, graph, other),
            random_inputs(other, 0),
            seed=0,
            processors=blocks(0),
            constants=other.constants,
        ).ran
    longest = beyond(graph, verified.program.structure) if len(ran) < len(lines) else None
    if longest is not None:
        ran |= execute(
            at_extents_of(source, graph, longest),
            random_inputs(longest, 0),
            seed=0,
            processors=_MANY,
            ends=_ENDS,
            constants=longest.constants,
        ).ran
    covered = Coverage(lines, frozenset(ran))
    _check_covered(graph, source, covered)
    return Simulation(runs[0].seeds, asked, worst, covered.of - len(covered.missed), covered.of, tuple(runs))


def _runs(
    graph: Graph, verified: VerifiedSchedule, seeds: int, complete: Callable[[], bool]
) -> Iterator[Run]:
    """The runs of a simulation, those for lines that no other has run only until it is complete."""
    k_blocks, structure = first_k_blocks(verified), verified.program.structure
    first = reduced(graph, structure, k_blocks, longer=structure.parted)
    yield Run(first, seeds if verified.program.rings else min(seeds, _seeds_of_blocks(first)))
    far = reaching(graph, structure, k_blocks)
    draws = input_draws(graph)
    if far is not None:
        yield Run(far, min(seeds, max(_FAR_SEEDS, draws)))
    if not complete():
        for other in further(graph, structure, max(k_blocks, covering_k_blocks(verified))):
            if _has_numbers(other):
                yield Run(other, min(seeds, max(_FURTHER_SEEDS, draws)))
            if complete():
                return
        for other in (
            further(graph, structure, max(k_blocks, covering_k_blocks(verified))) if draws > 1 else ()
        ):
            given = _aligned_lengths(verified, other)
            if _has_numbers(other):
                yield Run(other, len(given), given)
            if complete():
                return


def _seeds_of_blocks(graph: Graph) -> int:
    """Interleavings of a kernel whose blocks wait for nothing, and differ in their order alone: one at least, and as
    many as a second or two has where the graph's own counting keeps an output long.
    """
    elements = max(math.prod(graph.type_of(name).shape) for name in graph.outputs)
    return max(1, _ELEMENTS // elements)


def _aligned_lengths(verified: VerifiedSchedule, graph: Graph) -> tuple[tuple[str, int], ...]:
    """Inputs with values at which masks begin or end with a K-block, where a graph's last row is."""
    program, rows = verified.program, graph_axes(needed(graph)).extent(Role.ROW)
    tensors = {vector.name: vector.view.tensor for vector in program.after.vectors}
    found = aligned_scalars(program.bounds, program.structure, rows)
    return tuple(dict.fromkeys((tensors[name], value) for name, value in found))


def _without_numbers(graph: Graph, verified: VerifiedSchedule) -> Iterator[Graph]:
    """Other extents of a graph whose outputs are no numbers at its own either: nothing is to be compared there."""
    k_blocks, structure = first_k_blocks(verified), verified.program.structure
    if not _has_numbers(reduced(graph, structure, k_blocks)):
        yield from further(graph, structure, max(k_blocks, covering_k_blocks(verified)))


def input_draws(graph: Graph) -> int:
    """How many draws of inputs the interleavings of a run go through: all kinds of lengths, and of offsets of groups,
    that come at run time.
    """
    return max(KINDS if compared_extents(graph) else 1, OFFSET_KINDS if grouped_rows(graph) else 1)


def first_k_blocks(verified: VerifiedSchedule) -> int:
    """K-blocks of the first run: enough to go round the ring. A block's only tile goes round it by two K-blocks: the
    slot of the first is handed back before the loop, that of the second within. Each part of split sums has so many,
    one of them an iteration's more.
    """
    slots = max((count for _, count in verified.schedule.rings), default=0)
    s = verified.program.structure
    if verified.program.iteration is Iteration.TILE:
        least = slots + 1
    else:
        least = min(slots, 4) + 1 if s.persistent else slots + 2
    least = max(least, math.ceil(_bundling_blocks(verified) / 2))  # the rows are of two blocks
    if s.shares:  # a block's only tile goes round the ring too, and a part of it has every pass
        least = max(least, covering_k_blocks(verified), slots + 1)
        return (2 * math.ceil(least / s.copies) + 1) * s.copies
    if s.splits == 1:
        return least
    least = max(least, math.ceil(covering_k_blocks(verified) / s.splits))
    return (math.ceil(least / s.copies) * s.splits + 1) * s.copies


def _has_numbers(graph: Graph) -> bool:
    """Whether a graph's outputs are numbers, of inputs that are small enough: at some extents a row may have nothing
    that it could be a mean of.
    """
    inputs = random_inputs(graph, 0)
    if not any(map(_has_nan, evaluate(graph, inputs).values())):
        return True
    return not any(_has_nan(one.value) for one in _expected(graph, inputs).values())


def _has_nan(value: Array) -> bool:
    return bool(np.isnan(value.astype(np.float32)).any())


def _blocks(verified: VerifiedSchedule) -> Callable[[int], int]:
    """How many multiprocessors there are under a seed: of pairs of blocks as many as elsewhere of blocks. Where
    blocks leave parts of sums over the rows, under some seeds so many that these come in bundles. Where tiles have
    parts, under some so many that several share a tile: a number of blocks that divides the tiles' deals all parts of
    a tile to one of them.
    """
    s, bundling = verified.program.structure, _bundling_blocks(verified)
    if bundling:
        columns = min(verified.program.grid.column_tiles, _COLUMN_TILES)
        return lambda seed: columns * (bundling, 1, 3)[seed // len(STRATEGIES) % 3]
    each = sharing_processors if s.parted else processors
    return lambda seed: each(seed) * s.blocks


def _bundling_blocks(verified: VerifiedSchedule) -> int:
    """Blocks whose parts of sums over the rows are one bundle and a part of another, of each tile of columns; 0 where
    none are left.
    """
    if not carried(verified.program):
        return 0
    parts = bundle_parts(verified.program, verified.machine) + 1
    return math.ceil(parts / verified.program.structure.consumers)


def _silent(done: int, total: int) -> None:
    del done, total


def _check_covered(graph: Graph, source: str, covered: Coverage) -> None:
    """Raise NeverRunError if a line of the kernel has not run."""
    if not covered.missed:
        return
    text = source.splitlines()
    named = [f"  kernel.py:{line}: {text[line - 1].strip()}" for line in covered.missed[:_MOST_NAMED]]
    more = len(covered.missed) - len(named)
    raise NeverRunError(
        f"graph {graph.name}: {len(covered.missed)} of the kernel's {covered.of} lines did not run at any extents "
        "it was executed at:\n" + "\n".join([*named, *([f"  and {more} more"] if more else [])])
    )


def _executed(
    run: Run,
    source: str,
    blocks: Callable[[int], int],
    progress: Callable[[int, int], None],
    ran: set[int],
    enough: Callable[[], bool],
) -> tuple[Agreement, int]:
    """The worst agreement of a run's outputs over its interleavings, each with so many `blocks` at once, and how many
    those were; notes in `ran` which statements do.
    """
    graph, draws = run.graph, len(run.given) or input_draws(run.graph)
    tolerance = {name: TOLERANCE[graph.type_of(name).dtype] for name in graph.outputs}
    worst = NO_DIFFERENCE
    for done, seed in enumerate(sorted(range(run.seeds), key=lambda seed: seed % draws)):
        if draws == 1 and done >= len(STRATEGIES) and enough():
            return worst, done
        progress(done, run.seeds)
        if seed < draws:
            inputs = random_inputs(graph, seed)
            for name, value in run.given[seed : seed + 1]:
                inputs[name][...] = value
            referee = Referee(_expected(graph, inputs), tolerance)
        execution = execute(source, inputs, seed=seed, processors=blocks(seed), constants=graph.constants)
        ran |= execution.ran
        for name in graph.outputs:
            found = referee.agreement(name, execution.outputs[name])
            if not found.accepted:
                raise CheckError(f"graph {graph.name}, output {name} on the CPU, seed {seed}: {found.told}")
            worst |= found
    return worst, run.seeds


def _expected(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Expected]:
    """What outputs are meant to be. Where some overflow, as an exponential that grows with the distance of two rows
    does, `inputs` are made smaller in place as long as fewer do: whether a sum of infinities is a number depends on
    the order of its terms, which is the kernel's own.
    """
    expected = expectations(graph, inputs)
    for _ in range(_SHRINKS):
        infinite = _infinite(expected)
        if not infinite:
            break
        kept = {item.name: inputs[item.name].copy() for item in graph.inputs if item.type.dtype.is_float}
        for name, value in kept.items():
            inputs[name][...] = (value.astype(np.float32) * _SMALLER).astype(value.dtype)
        smaller = expectations(graph, inputs)
        if _infinite(smaller) >= infinite:
            for name, value in kept.items():
                inputs[name][...] = value
            break
        expected = smaller
    return expected


def _infinite(expected: Mapping[str, Expected]) -> int:
    """How many elements of outputs are infinite, or no numbers."""
    values = (one.value.astype(np.float32) for one in expected.values())
    return sum(int(value.size - np.isfinite(value).sum()) for value in values)
