"""Which slabs of the streamed axis a tile has to look at, and in which of them every element counts.

Interval arithmetic on bounds row * i + stream * j + constant >= 0 with stream = 1 or -1 (others leave every
slab to be looked at, masked): over a tile's rows each gives where slabs begin or end to count at all, and where
all of their elements do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from wsopt.frontend.types import Bound, Region, Role
from wsopt.program.types import Structure

ROUNDS_TOGETHER = 3
"""Of the last batch elements, so many rounds of blocks are dealt out together, the longest tile first."""


def splits(bound: Bound) -> bool:
    """Whether a bound says where along the streamed axis elements count."""
    return abs(bound.stream) == 1


def _rows(bound: Bound, first: int, last: int) -> tuple[int, int]:
    """The least and the greatest of row * i + constant over rows `first` to `last`."""
    ends = (bound.row * first + bound.constant, bound.row * last + bound.constant)
    return min(ends), max(ends)


def slab_range(region: Region, s: Structure, first: int, height: int) -> tuple[int, int]:
    """The slabs [begin, end) in which any element counts for `height` rows that begin at `first`."""
    last = min(first + height, region.extent(Role.ROW)) - 1
    begin, end = 0, math.ceil(region.extent(Role.STREAM) / s.depth)
    for bound in filter(splits, region.bounds):
        _, most = _rows(bound, first, last)
        if bound.stream < 0:
            end = min(end, most // s.depth + 1)
        else:
            begin = max(begin, -most // s.depth)
    return begin, max(begin, end)


def trip_counts(region: Region, s: Structure) -> tuple[int, ...]:
    """Slabs that each tile of rows looks at."""
    firsts = range(0, region.extent(Role.ROW), s.tile_rows)
    ranges = (slab_range(region, s, first, s.tile_rows) for first in firsts)
    return tuple(end - begin for begin, end in ranges)


def longest_last(counts: Sequence[int]) -> bool:
    """Whether tiles of later rows look at more slabs: then they are walked from the last."""
    return counts[-1] > counts[0]


def walk(counts: Sequence[int], tiles: int, together: int) -> tuple[int, ...]:
    """Which tile of rows each of a grid's `tiles` is, in the order in which they are dealt out.

    `counts` are the slabs of each tile of rows. Batch elements follow each other, for they share operands in L2,
    their longest tile first. The last `together` tiles, of whole batch elements, go by their length alone, so that
    SMs end at about one time: else the longest of the last element's are still to come when most have ended.
    """
    order = range(len(counts))[::-1] if longest_last(counts) else range(len(counts))
    numbers = [order[number % len(counts)] for number in range(tiles)]
    apart = tiles - together
    return (*numbers[:apart], *sorted(numbers[apart:], key=lambda tile: -counts[tile]))


def dealt_together(counts: Sequence[int], tiles: int, blocks: int) -> int:
    """The tiles of the last rounds of persistent blocks, up to whole batch elements."""
    return min(math.ceil(ROUNDS_TOGETHER * blocks / len(counts)) * len(counts), tiles)


def own_trips(region: Region, s: Structure) -> tuple[float, ...]:
    """Slabs of each tile that its consumers look at for their own rows, on the average of the consumers.

    Without bounds there is nothing to leave out, and all look at all.
    """
    if not region.bounds:
        return tuple(map(float, trip_counts(region, s)))
    return tuple(_mean_trips(region, s, tile) for tile in range(0, region.extent(Role.ROW), s.tile_rows))


def _mean_trips(region: Region, s: Structure, tile: int) -> float:
    firsts = range(tile, min(tile + s.tile_rows, region.extent(Role.ROW)), s.rows)
    ranges = (slab_range(region, s, first, s.rows) for first in firsts)
    return sum(end - begin for begin, end in ranges) / s.consumers
