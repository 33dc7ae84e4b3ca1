"""A block's time line: from its start through the loop of its first tile, as it runs, to its last store.

The events of the loop are those of the threads of a block (`perf/threads.py`), who go on as soon as they can. Of a
long loop the middle is left out, which repeats; it keeps its place. What follows the loop is from the prediction.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from wsopt.pages.drawn import Arrow, Band, Bar, Picture, Row
from wsopt.pages.interval import channels, rows_of
from wsopt.pages.source import EPILOGUE
from wsopt.perf.steady_state import steady_state
from wsopt.perf.stores import kind_bytes, tile_stores
from wsopt.perf.threads import Block, Run, Span
from wsopt.program.program import Iteration
from wsopt.report.facts import tile_epilogue
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule

_FIRST, _LAST = 40, 8
"""Iterations that are drawn one by one at the loop's beginning and at its end."""

_NEAR = 0.02
"""Share of the interval by which the steady state may be off on the average."""

_VIEWED = 4
"""Iterations of the steady state that are in view at first."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The loop of a tile as it ran: its spans and results, `left_out` iterations of its middle, which take `gap`
    cycles, and the iteration with which the steady state begins.
    """

    run: Run
    iterations: int
    left_out: int
    interval: float
    settled: int

    @property
    def gap(self) -> float:
        """Cycles of the iterations that are left out."""
        return self.left_out * self.interval

    def number(self, iteration: int) -> int:
        """The number in the whole loop of an iteration of the run."""
        return iteration + (self.left_out if self.left_out and iteration >= _FIRST else 0)

    def at(self, time: float, iteration: int) -> float:
        """The time in the whole loop of a moment of the run's iteration."""
        return time + (self.gap if self.left_out and iteration >= _FIRST else 0.0)


def loop_iterations(verified: VerifiedSchedule) -> int:
    """Iterations of the busiest block's first loop: the K-blocks of its tile, or all of its tiles of rows."""
    if verified.program.iteration is Iteration.TILE:
        return max(1, verified.schedule.prediction.waves)
    shares = verified.program.shares
    most, work = verified.program.k_iterations, verified.program.work
    if shares is None:
        return most
    return min(most, math.ceil(shares.k_iterations if work is None else work.k_iterations))


def loop_of(verified: VerifiedSchedule) -> Loop:
    """The loop of a block's first tile as it runs."""
    iterations = loop_iterations(verified)
    left_out = max(0, iterations - _FIRST - _LAST)
    run = Run(Block(verified), iterations - left_out)
    run.go()
    interval = steady_state(verified).interval
    return Loop(run, iterations, left_out, interval, _settled(verified, run, interval))


def _settled(verified: VerifiedSchedule, run: Run, interval: float) -> int:
    """The first iteration from which on the consumers' operations keep the interval, of iterations that are drawn;
    the last one if none does.
    """
    last = min(run.iterations, _FIRST) - 1
    consumed = [times for op, times in run.started.items() if verified.program.named(op).consumer is not None]
    for first in range(last - 1):
        apart = ((times[last - 1] - times[first]) / (last - 1 - first) for times in consumed)
        if all(abs(one - interval) < _NEAR * interval for one in apart):
            return first
    return last


def timeline_picture(verified: VerifiedSchedule) -> Picture:
    """The time line of a block's first tile, and what of its time comes after it."""
    rows = rows_of(verified)
    if not consumers(verified, rows):  # others issue the products, and consumers come with the epilogue
        own = (one for one in verified.schedule.partitions if one.role is PartitionRole.CONSUMER)
        rows |= {one.name: Row(one.name, "role") for one in own}
    if _subtiles(verified):
        rows |= {stores_of(name): Row(stores_of(name), "unit") for name in consumers(verified, rows)}
    numbers = {name: number for number, name in enumerate(rows)}
    loop, begin = loop_of(verified), verified.schedule.prediction.start
    bars = [*_merged(_bars(loop, numbers, begin))]
    bars += _left_out(loop, bars, begin)
    ended = max(bar.end for bar in bars)
    bars += _epilogue(verified, bars, numbers)
    last = max(bar.end for bar in bars)
    bands = tuple(_bands(verified, loop, begin, ended, last))
    total, shown = bands[-1].end, begin + loop.settled * loop.interval + _VIEWED * loop.interval
    return Picture(
        tuple(rows.values()), tuple(sorted(bars, key=lambda bar: (bar.row, bar.begin))),
        tuple(_arrows(verified, loop, numbers, begin)), bands, total, (0.0, min(total, max(shown, begin * 2))),
    )  # fmt: skip


def _bars(loop: Loop, numbers: dict[str, int], begin: float) -> Iterator[Bar]:
    for one in loop.run.spans:
        start, end = (begin + loop.at(time, one.iteration) for time in (one.begin, one.end))
        if one.waits and _over_the_gap(loop, one):
            continue
        yield Bar(
            numbers[one.row], round(start, 1), round(end, 1), one.op, loop.number(one.iteration), waits=one.waits
        )  # fmt: skip


def _over_the_gap(loop: Loop, span: Span) -> bool:
    """Whether a thread begins to wait before what is left out and ends behind it."""
    return bool(loop.left_out) and span.iteration == _FIRST


def _merged(bars: Iterator[Bar]) -> Iterator[Bar]:
    """The bars, with one in place of several that follow each other with the same operation."""
    last: dict[int, Bar] = {}
    for bar in sorted(bars, key=lambda one: (one.row, one.begin)):
        before = last.get(bar.row)
        same = before is not None and replace(before, begin=bar.begin, end=bar.end) == bar
        if before is not None and same and bar.begin - before.end < 0.2:
            last[bar.row] = replace(before, end=bar.end)
            continue
        if before is not None:
            yield before
        last[bar.row] = bar
    yield from last.values()


def _left_out(loop: Loop, bars: Sequence[Bar], begin: float) -> list[Bar]:
    """For each row a bar for the iterations that are not drawn one by one."""
    if not loop.left_out:
        return []
    found = []
    for row in {bar.row for bar in bars}:
        before = max(bar.end for bar in bars if bar.row == row and bar.iteration < _FIRST)
        after = [bar.begin for bar in bars if bar.row == row and bar.iteration >= _FIRST + loop.left_out]
        label = f"{loop.left_out:,} more iterations, {loop.interval:,.0f} cycles each"
        found.append(Bar(row, before, max(before, min(after)), label=label))
    return found


def _subtiles(verified: VerifiedSchedule) -> int:
    """Epilogue subtiles of a tile; none where tiles of rows are stored in the loop."""
    return 0 if verified.program.iteration is Iteration.TILE else verified.program.structure.subtiles


def _epilogue(verified: VerifiedSchedule, bars: Sequence[Bar], numbers: dict[str, int]) -> Iterator[Bar]:
    """Each consumer's epilogue behind its loop, subtile by subtile, and how long each store reads its buffer."""
    subtiles, program, machine = _subtiles(verified), verified.program, verified.machine
    if not subtiles:
        return
    each = tile_epilogue(verified) / subtiles
    stores = tile_stores(program, verified.schedule.buffers).stores
    per = len(stores) // subtiles
    for consumer in consumers(verified, numbers):
        row = numbers[consumer]
        own = [bar.end for bar in bars if bar.row == row]
        begin = max(own or [bar.end for bar in bars])
        for number in range(subtiles):
            now = begin + (number + 1) * each
            yield Bar(
                row, round(now - each, 1), round(now, 1), EPILOGUE, number, f"epilogue subtile {number}"
            )
            for store in stores[number * per : (number + 1) * per]:
                read = kind_bytes(store.buffer.kind, program.structure) / machine.tma_store_bytes_per_cycle
                label = f"{store.output}, subtile {number}"
                yield Bar(
                    numbers[stores_of(consumer)], round(now, 1), round(now + read, 1), EPILOGUE, number, label
                )
                now += read


def consumers(verified: VerifiedSchedule, rows: Container[str]) -> list[str]:
    """The consumers that have operations of the loop, by name: of those in ping-pong the one whose turn it is."""
    every = (one for one in verified.schedule.partitions if one.role is PartitionRole.CONSUMER)
    return [one.name for one in every if one.name in rows]


def stores_of(consumer: str) -> str:
    """The name of the row of a consumer's stores."""
    return f"{consumer} stores"


def _arrows(verified: VerifiedSchedule, loop: Loop, numbers: dict[str, int], begin: float) -> Iterator[Arrow]:
    """Arrows from operations that arrive at a barrier to those that wait there, in the iterations that are drawn."""
    happened, rows = loop.run.events.happened, {one.op: one.partition for one in verified.schedule.placed}
    for source, target, later in channels(verified):
        starts = loop.run.started[str(target)]
        for before in range(len(starts) - later):
            iteration = before + later
            if (loop.left_out and before < _FIRST <= iteration) or iteration >= len(starts):
                continue
            told, start = happened[source, before], starts[iteration]
            yield Arrow(
                str(source), str(target), numbers[rows[str(source)]], round(begin + loop.at(told, before), 1),
                numbers[rows[str(target)]], round(begin + loop.at(start, iteration), 1), loop.number(before),
                round(start - told, 1),
            )  # fmt: skip


def _bands(verified: VerifiedSchedule, loop: Loop, begin: float, ended: float, last: float) -> Iterator[Band]:
    """The parts of the block's time: start, prologue, steady state, last iteration, epilogue, what follows the first
    tile, and the last stores.
    """
    p = verified.schedule.prediction
    consumed = [
        times for op, times in loop.run.started.items() if verified.program.named(op).consumer is not None
    ]
    drained = begin + min(loop.at(times[-1], len(times) - 1) for times in consumed)
    settled = min(drained, begin + min(times[loop.settled] for times in consumed))
    yield Band("start of the block", "start", 0.0, begin)
    yield Band("prologue", "prologue", begin, settled)
    if drained > settled:
        yield Band("steady state", "steady", settled, drained)
    yield Band("last iteration", "drain", drained, ended)
    if last > ended:
        yield Band("epilogue", "epilogue", ended, last)
    after = max(last, p.cycles - p.power - p.tail)
    if after > last:
        further = p.waves > 1 and verified.program.iteration is Iteration.K_BLOCKS
        yield Band(
            "further tiles" if further else "waits that the events do not have", "further", last, after
        )
    yield Band("last stores", "tail", after, after + p.tail)
