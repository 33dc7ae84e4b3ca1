"""What a trace says of operations: medians of their starts and lengths in the steady state, beside the prediction."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from wsopt.trace.files import Partition, PredictedOp, Stamped
from wsopt.trace.readings import TileReadings, readings


@dataclass(frozen=True, slots=True)
class Cycles:
    """Median and quartiles of a number of measured times, in cycles of the SM."""

    median: float
    lower: float
    upper: float
    count: int


@dataclass(frozen=True, slots=True)
class TracedOp:
    """An operation as measured, in cycles; what was not seen is None.

    `start` counts from the partition's first operation of the same iteration, `issue` is until the thread comes to
    the next operation, `result` until the end of the wait that first waits for it, `waited` what the thread stood
    before it.
    """

    predicted: PredictedOp
    start: Cycles | None
    issue: Cycles | None
    result: Cycles | None
    waited: Cycles | None


@dataclass(frozen=True, slots=True)
class Traced:
    """A partition as measured: the cycles from iteration to iteration, its operations, and the `parts` of its tiles:
    what lies between each of a tile's events and the next, by the former's name.
    """

    partition: Partition
    interval: Cycles | None
    ops: tuple[TracedOp, ...]
    parts: tuple[tuple[str, Cycles], ...]


def analyse(launches: Sequence[Sequence[int]], stamped: Stamped) -> tuple[Traced, ...]:
    """Every partition, from the records of several launches. Raises CheckError for stamps out of order."""
    return tuple(_partition(launches, stamped, one) for one in stamped.partitions)


def median_difference(traced: Iterable[Traced], ii: int) -> float | None:
    """Median over the operations of consumers of how far measured starts are from predicted ones, in parts of II.

    Without each consumer's first operation, from which the others count; None if no other was seen.
    """
    found = [
        abs(one.start.median - one.predicted.start) / ii
        for partition in traced
        if partition.partition.role == "consumer"
        for one in partition.ops
        if one.start is not None and one.predicted != partition.partition.stamped[0]
    ]
    return statistics.median(found) if found else None


def summary(values: Iterable[float]) -> Cycles | None:
    """Median and quartiles; None of nothing."""
    found = sorted(values)
    if len(found) < 2:
        return Cycles(found[0], found[0], found[0], 1) if found else None
    lower, median, upper = statistics.quantiles(found, n=4, method="inclusive")
    return Cycles(median, lower, upper, len(found))


@dataclass(frozen=True, slots=True)
class _Iteration:
    """One iteration of the steady state: its number, in which tile, and when its first operation starts."""

    number: int
    tile: TileReadings
    copies: int
    begin: int

    def time(self, op: PredictedOp, stamp: int | None, later: int = 0) -> int | None:
        """When an operation's stamp was made, `later` iterations on; since the first operation of this one."""
        if stamp is None:
            return None
        row = (self.number + later + op.stage) * self.copies + op.k_block
        found = self.tile.passes.get((row, stamp))
        return None if found is None else found - self.begin

    def left(self, op: PredictedOp) -> int | None:
        """When the thread came to what follows an operation, since the first operation."""
        if op.started is None:
            return None
        row = (self.number + op.stage) * self.copies + op.k_block
        found = self.tile.after.get((row, op.started))
        return None if found is None else found - self.begin


def _partition(launches: Sequence[Sequence[int]], stamped: Stamped, partition: Partition) -> Traced:
    tiles = [one for words in launches for one in readings(words, stamped, partition)]
    steady = [one for tile in tiles for one in _steady(tile, stamped, partition)]
    by_name = {op.op: op for op in partition.ops}
    ops = tuple(_op(op, by_name, steady) for op in partition.ops)
    return Traced(partition, summary(_intervals(steady)), ops, tuple(_parts(tiles, partition)))


def _steady(tile: TileReadings, stamped: Stamped, partition: Partition) -> Iterator[_Iteration]:
    """The iterations of a tile of which every operation is in a pass that is whole: not peeled off at an end."""
    marks = [(op.k_block, op.started) for op in partition.ops if op.started is not None]
    if not marks:
        return
    last = max(op.stage for op in partition.ops)
    count = stamped.k_blocks // stamped.copies
    whole = [
        all((number * stamped.copies + k_block, started) in tile.passes for k_block, started in marks)
        for number in range(count)
    ]
    first, (k_block, started) = partition.stamped[0], marks[0]
    for number in range(count - last):
        if all(whole[number : number + last + 1]):
            row = (number + first.stage) * stamped.copies + k_block
            yield _Iteration(number, tile, stamped.copies, tile.passes[row, started])


def _intervals(steady: Sequence[_Iteration]) -> Iterator[int]:
    for one, after in itertools.pairwise(steady):
        if after.tile is one.tile and after.number == one.number + 1:
            yield after.begin - one.begin


def _op(op: PredictedOp, by_name: dict[str, PredictedOp], steady: Sequence[_Iteration]) -> TracedOp:
    def start(one: _Iteration) -> int | None:
        return one.time(op, op.started)

    def result(one: _Iteration) -> int | None:
        waits = by_name.get(op.awaited or "")
        return None if waits is None else one.time(waits, waits.started, op.later)

    return TracedOp(
        op,
        _between(steady, lambda one: 0, start),
        _between(steady, start, lambda one: one.left(op)),
        _between(steady, start, result),
        _between(steady, lambda one: one.time(op, op.reached), start),
    )


def _between(
    steady: Iterable[_Iteration],
    begin: Callable[[_Iteration], int | None],
    end: Callable[[_Iteration], int | None],
) -> Cycles | None:
    """Cycles from one moment of each iteration to another, where both were seen."""
    times = ((begin(one), end(one)) for one in steady)
    return summary(last - first for first, last in times if first is not None and last is not None)


def _parts(tiles: Sequence[TileReadings], partition: Partition) -> Iterator[tuple[str, Cycles]]:
    """Each event of a tile, with the cycles from it to the next event."""
    found: dict[str, list[int]] = {}
    for tile in tiles:
        events = [event for event in partition.tile if event in tile.events]
        for one, after in itertools.pairwise(events):
            found.setdefault(one, []).append(tile.events[after] - tile.events[one])
    for event, values in found.items():
        cycles = summary(values)
        assert cycles is not None, "an event has values"
        yield event, cycles
