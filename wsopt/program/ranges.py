"""Ranges of K-blocks that each tile looks at, by the loop's bounds, and loops over them that no extents can reach,
which are not written.

Interval arithmetic on bounds row * i + stream * j + constant >= 0 with stream = 1 or -1; others leave no
K-block out. A bound may also have run-time scalars, which the kernel alone knows: what the host counts, and the model
with it, is as if such bounds left nothing out, and any loop that they could ask for is live.

A tile's K-blocks are passed in order: K-blocks before a consumer's own, K-blocks in which a mask is at work, K-blocks
in which every element counts, again K-blocks with a mask, and the rest of the tile's. Bounds say where each begins
and ends; far from both ends of the streamed axis that repeats from tile to tile, and near them it is less.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wsopt.program.tile_order import k_block_counts
from wsopt.program.types import Structure
from wsopt.tensors.views import FAR, K_BLOCK, Bound, Role

_START = Bound(0, 1, 0)
"""The streamed axis begins at 0."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The elements of the streamed axis that count, of `rows` by `stream`: those within `every` bound.

    `end` is the bound, if any, that is the end of the axis, which a kernel knows when it is launched. Where `masked`
    the graph's own masks end every row before; with `full_rows` every row has an element, for a number was taken for
    minus infinity. The axis always has a multiple of `whole` elements, such as whole pages. Of axes that are `known`
    every call has as many elements.
    """

    every: tuple[Bound, ...]
    rows: int
    stream: int
    end: Bound | None = None
    masked: bool = False
    full_rows: bool = False
    whole: int = 1
    known: frozenset[Role] = frozenset()

    def end_cuts(self, depth: int) -> bool:
        """Whether the axis may end inside of a K-block of this depth."""
        return self.end is not None and self.whole % depth > 0

    @property
    def at_run_time(self) -> Bound | None:
        """The bound that is the end of the axis, where a call may have another one."""
        return None if Role.STREAM in self.known else self.end


def splits(bound: Bound) -> bool:
    """Whether a bound depends on the place along the streamed axis."""
    return abs(bound.stream) == 1


def narrowing(bounds: Bounds) -> tuple[tuple[int, int, int], ...]:
    """The bounds that leave K-blocks out and that the host knows, as triples: row, stream, constant."""
    found = (b for b in bounds.every if splits(b) and b != bounds.end and not b.terms)
    return tuple((bound.row, bound.stream, bound.constant) for bound in found)


def k_blocks_between(
    bounds: Iterable[tuple[Any, int, Any]],
    first: Any,
    last: Any,
    begin: Any,
    end: Any,
    depth: Any,
    least: Callable[[Any, Any], Any] = min,
    most: Callable[[Any, Any], Any] = max,
) -> tuple[Any, Any]:
    """Begin and end of the K-blocks, out of [begin, end), in which any element counts for rows `first` to `last`.

    The end is not above the begin where none counts. Arguments may also be expressions of run-time values, given with
    their minimum and maximum as `least` and `most`.
    """
    for row, stream, constant in bounds:
        furthest = row * (last if row >= 0 else first) + constant
        if stream < 0:
            end = least(end, most(furthest + depth, 0) // depth)
        else:
            begin = most(begin, most(-furthest, 0) // depth)
    return begin, end


def k_iteration_counts(bounds: Bounds, s: Structure, rows: int = 0) -> tuple[int, ...]:
    """K-blocks that each tile of rows looks at, or each so many `rows`."""
    narrowed, k_blocks = narrowing(bounds), -(-bounds.stream // s.depth)

    def between(row: int, last_row: int) -> tuple[int, int]:
        return k_blocks_between(narrowed, row, last_row, 0, k_blocks, s.depth)

    return tuple(k_block_counts(bounds.rows, rows or s.tile_rows, between))


def longest_last(counts: Sequence[int]) -> bool:
    """Whether tiles of later rows look at more K-blocks: then tile numbers begin at the last rows."""
    return counts[-1] > counts[0]


def own_k_iterations(bounds: Bounds, s: Structure) -> tuple[float, ...]:
    """K-blocks of each tile that its consumers look at for their own rows, on the average of the consumers.

    Without bounds there is nothing to leave out, and all look at all.
    """
    if not bounds.every:
        return tuple(map(float, k_iteration_counts(bounds, s)))
    counts, each = k_iteration_counts(bounds, s, s.rows), s.tile_rows // s.rows
    return tuple(sum(counts[first : first + each]) / s.at_once for first in range(0, len(counts), each))


# --- loops that can run ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LiveLoops:
    """`most_whole` is an upper bound of the K-blocks of one consumer's tile in which every element counts, without
    limit infinite; `least_whole` is a lower bound where there are any. The others say whether a mask can be at work
    in K-blocks where a tile `begins` and where it `ends`, whether a consumer ever `waits` for others' K-blocks
    before its own or `rests` behind it, and whether it may be `rowless`, beyond the end of the rows.
    """

    most_whole: float
    least_whole: int
    begins: bool
    ends: bool
    waits: bool
    rests: bool = True
    rowless: bool = True


def live_loops(bounds: Bounds, s: Structure, *, own: bool = True) -> LiveLoops:
    """The loops that can run for some tile, some extents of rows and of the streamed axis, where they are not known.

    Consumers look at K-blocks of their `own` rows, or else at those of their tile.
    """
    if bounds.known >= K_BLOCK and not (s.shares or any(bound.terms for bound in bounds.every)):
        return _known_loops(bounds, s, own and s.consumers > 1)
    waits = s.consumers > 1 and any(_comes_later(bound, s) for bound in bounds.every if bound.stream == 1)
    if not all(map(splits, bounds.every)):
        return LiveLoops(0, least_whole=0, begins=False, ends=True, waits=waits, **_behind(bounds, s))
    # Indices are not negative: other lower bounds never leave anything out.
    lower = [b for b in bounds.every if b.stream > 0 and (b.row < 0 or b.constant < 0 or b.terms)]
    upper = [b for b in bounds.every if b.stream < 0 and b != bounds.at_run_time]
    ends = bounds.at_run_time is not None and bounds.end_cuts(s.depth)
    none = s.consumers > 1 or ends or bool(lower) or _may_be_short(upper, s) or _short_parts(upper, s)
    return LiveLoops(
        most_whole=_most_whole_of_all(lower, upper, s),
        least_whole=0 if none else _least_whole(bounds, upper, s),
        begins=any(_cuts(b, -b.constant, s) for b in lower),
        ends=ends or any(_cuts(b, b.constant + 1, s) for b in upper),
        waits=waits,
        **_behind(bounds, s),
    )


def _may_be_short(upper: Iterable[Bound], s: Structure) -> bool:
    """Whether some bound ends before the first K-block does, for the first rows or for later ones."""
    return any(bound.row < 0 or bound.constant + 1 < s.depth or bound.terms for bound in upper)


def _most_whole_of_all(lower: Iterable[Bound], upper: Iterable[Bound], s: Structure) -> float:
    """Upper bound of a consumer's K-blocks of a tile, or of its part, that no bound cuts; infinite without limit."""
    pairs = [*itertools.product((_START, *lower), upper)]
    most = [_most_whole(*pair, s) for pair in pairs]
    if s.splits > 1:  # a part has its share of those that count for any row
        most += [-(-_most_of_tile(*pair, s) // s.splits) for pair in pairs]
    return min(most, default=math.inf)


def _behind(bounds: Bounds, s: Structure) -> dict[str, bool]:
    """Whether a consumer may be beyond the end of the rows, and whether it may have done before its tile ends."""
    first = range(bounds.rows)[:: s.tile_rows][-1]
    rowless = Role.ROW not in bounds.known or first + s.tile_rows - s.rows >= bounds.rows
    return {"rowless": rowless, "rests": rowless or any(b.row and b.stream < 0 for b in bounds.every)}


@functools.lru_cache(maxsize=1024)
def _known_loops(bounds: Bounds, s: Structure, own: bool) -> LiveLoops:
    """The loops that run for some tile at extents that are known: as the kernel finds them, tile by tile."""
    found, tiles = list[tuple[range, range, range]](), range(0, bounds.rows, s.tile_rows)
    k_blocks = range(-(-bounds.stream // s.depth))
    for tile in tiles:
        all_rows = s.splits > 1 and any(bound.row for bound in bounds.every)
        rows = range(tile, tile + s.tile_rows if all_rows else min(tile + s.tile_rows, bounds.rows))
        taken, whole = _k_blocks_of(bounds, rows, k_blocks, s.depth)
        for part in (_part_of(taken, number, s.splits) for number in range(s.splits)):
            found += [] if own else [(part, part, _within(whole, part))]
            for row in range(tile, tile + s.tile_rows, s.rows) if own else ():
                rows = range(row, min(row + s.rows, bounds.rows))
                found.append((part, *_k_blocks_of(bounds, rows, part, s.depth)))
    counts = [len(whole) for _, _, whole in found]
    return LiveLoops(
        most_whole=max(counts),
        least_whole=min(filter(None, counts), default=0),
        begins=any(taken.start < whole.start for _, taken, whole in found),
        ends=any(whole.stop < taken.stop for _, taken, whole in found),
        waits=any(part.start < taken.start for part, taken, _ in found),
        rests=any(taken.stop < part.stop for part, taken, _ in found),
        rowless=own and _behind(bounds, s)["rowless"],
    )


def _k_blocks_of(bounds: Bounds, rows: range, out_of: range, depth: int) -> tuple[range, range]:
    """The K-blocks that count for some rows, and those in which all elements do."""
    first, last, begin, end = rows.start, rows.stop - 1, out_of.start, out_of.stop
    splitting = [(bound.row, bound.stream, bound.constant) for bound in bounds.every if splits(bound)]
    start, stop = k_blocks_between(splitting, first, last, begin, end, depth)
    start = min(start, end)
    taken = range(start, max(min(stop, end), start) if rows else start)
    for row, stream, constant in splitting:
        nearest = row * (first if row >= 0 else last) + constant
        if stream < 0:
            end = min(end, max(nearest + 1, 0) // depth)
        else:
            begin = max(begin, (max(-nearest, 0) + depth - 1) // depth)
    return taken, _within(range(begin, end if all(map(splits, bounds.every)) else 0), taken)


def _part_of(taken: range, number: int, parts: int) -> range:
    """One of the parts that a tile's K-blocks are cut into."""
    first, last = (taken.start + place * len(taken) // parts for place in (number, number + 1))
    return range(first, last)


def _within(whole: range, taken: range) -> range:
    """K-blocks in which all elements count, out of those that are taken."""
    start = min(max(whole.start, taken.start), taken.stop)
    return range(start, max(min(whole.stop, taken.stop), start))


def _least_whole(bounds: Bounds, upper: Sequence[Bound], s: Structure) -> int:
    """Whole K-blocks of a tile, or a part of one, that has one at least: all that the axis is a multiple of, where
    nothing but its end, which cuts none, leaves any out.
    """
    return 1 if upper or s.parted or bounds.end is None else bounds.whole // s.depth


def _most_whole(lower: Bound, upper: Bound, s: Structure) -> float:
    """K-blocks between two bounds for a single row, which has the most. Without limit where the bounds diverge; for
    the first row where one of them moves towards the start of the axis. Scalars shift both alike, or without limit.
    """
    if lower.terms or upper.terms:
        together = not lower.row + upper.row and lower.terms == tuple((-k, name) for k, name in upper.terms)
        return max(0, (lower.constant + upper.constant + 1) // s.depth) if together else math.inf
    if lower == _START and upper.row < 0:
        return max(0, (upper.constant + 1) // s.depth)
    if lower.row + upper.row:
        return math.inf
    # The first rows of consumers, up to where K-blocks lie to them as at the first again.
    counts = (
        (upper.row * row + upper.constant + 1) // s.depth + (lower.row * row + lower.constant) // s.depth
        for row in range(0, math.lcm(s.rows, s.depth), s.rows)
    )
    return max(0, *counts)


def _short_parts(upper: Sequence[Bound], s: Structure) -> bool:
    """Whether a part of some tile may have no whole K-block, where masks alone end the axis: where its share of the
    first row's K-blocks may be no more than those that a bound cuts for the rows of a tile.
    """
    if s.shares:  # of one K-block, which a bound may cut
        return bool(upper)
    cut = max(((s.tile_rows - 2) // s.depth + 2 if bound.row else 1 for bound in upper), default=0)
    least = min(((bound.constant + s.depth) // s.depth // s.splits for bound in upper), default=0)
    return s.splits > 1 and least <= cut


def _most_of_tile(lower: Bound, upper: Bound, s: Structure) -> float:
    """K-blocks at most between two bounds for any row of a tile, without limit where one row's have none."""
    if math.isinf(_most_whole(lower, upper, s)):
        return math.inf
    if lower.terms or upper.terms:  # begins anywhere in a K-block
        elements = lower.constant + upper.constant + 1 + abs(upper.row) * (s.tile_rows - 1)
        return max(0, (elements + s.depth - 2) // s.depth + 1)
    both = [(one.row, one.stream, one.constant) for one in (lower, upper)]
    # So far down the rows that no bound ends before the axis begins, up to where K-blocks lie to tiles as before.
    again = math.lcm(s.tile_rows, s.depth)
    far = -(-(abs(lower.constant) + abs(upper.constant)) // again) * again if upper.row > 0 else 0
    spans = (
        k_blocks_between(both, row, row + s.tile_rows - 1, 0, 2 * FAR, s.depth)
        for row in range(far, far + again, s.tile_rows)
    )
    most: int = max(end - begin for begin, end in spans)
    return most


def _cuts(bound: Bound, place: int, s: Structure) -> bool:
    """Whether a bound ever cuts a K-block: one that moves with the rows or with a scalar does, another whose `place`
    is inside one.
    """
    return bool(bound.row or bound.terms) or (place > 0 and place % s.depth > 0)


def _comes_later(bound: Bound, s: Structure) -> bool:
    """Whether a bound begins for some consumer in a later K-block than for its tile.

    One that does not move with the rows begins in the same K-block for all. One that moves with them begins at its
    first row's, and repeats; one that moves against them begins at its last row's, and ends at the streamed axis'
    start. A scalar may shift it to any K-block.
    """
    if bound.row == 0 or bound.terms:
        return bool(bound.row)
    end = math.lcm(s.tile_rows, s.depth) if bound.row < 0 else -bound.constant
    own = range(0, s.tile_rows, s.rows) if bound.row < 0 else range(s.rows - 1, s.tile_rows, s.rows)
    whole = own[0] if bound.row < 0 else own[-1]
    return any(
        _begin(bound, tile + row, s) > _begin(bound, tile + whole, s)
        for tile in range(0, end, s.tile_rows)
        for row in own
    )


def _begin(bound: Bound, row: int, s: Structure) -> int:
    """The first K-block in which a row has an element; below 0 where the streamed axis begins later."""
    place = -(bound.row * row + bound.constant)
    return (place if bound.row < 0 else max(place, 0)) // s.depth
