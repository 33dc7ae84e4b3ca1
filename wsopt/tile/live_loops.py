"""Which of a kernel's loops over slabs can run at all, whatever the extents: those that cannot are not written.

A tile's slabs are passed in order: slabs before a consumer's own, slabs in which a mask is at work, slabs in which
every element counts, again slabs with a mask, and the rest of the tile's. Bounds say where each begins and ends
(`ranges`); far from both ends of the streamed axis that repeats from tile to tile, and near them it is less.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from wsopt.tile.ranges import splits
from wsopt.tile.types import Bound, Region, Role, Structure


@dataclass(frozen=True, slots=True)
class LiveLoops:
    """`most_whole` is an upper bound of the slabs of one consumer's tile in which every element counts, without limit
    infinite. The others say whether a mask can be at work in slabs where a tile `begins` and where it `ends`, and
    whether a consumer ever `waits` for slabs of others before its own.
    """

    most_whole: float
    begins: bool
    ends: bool
    waits: bool


def live_loops(region: Region, s: Structure) -> LiveLoops:
    """The loops that can run for some tile, some extents of rows and of the streamed axis."""
    if not all(map(splits, region.bounds)):
        return LiveLoops(0, begins=False, ends=True, waits=_waits(region, s))
    lower = [bound for bound in region.bounds if bound.stream > 0]
    upper = [bound for bound in region.bounds if bound.stream < 0]
    constants = [bound for bound in upper if not is_end(bound, region)]
    pairs = itertools.product(lower, constants)
    return LiveLoops(
        most_whole=min((_most_whole(one, other, s) for one, other in pairs), default=math.inf),
        begins=any(_cuts(b, -b.constant, s) for b in lower if b.row <= 0 or b.constant < 0),
        ends=len(constants) < len(upper) or any(_cuts(b, b.constant + 1, s) for b in constants),
        waits=_waits(region, s),
    )


def is_end(bound: Bound, region: Region) -> bool:
    """Whether a bound is the end of the streamed axis, which a kernel knows when it is launched."""
    return bound == Bound(0, -1, region.extent(Role.STREAM) - 1)


def _starts(s: Structure) -> range:
    """The first rows of consumers, up to where slabs lie to them as at the first again."""
    return range(0, math.lcm(s.rows, s.depth), s.rows)


def _most_whole(lower: Bound, upper: Bound, s: Structure) -> float:
    """Slabs between two bounds for a single row, which has the most. Without limit where the bounds diverge."""
    if lower.row + upper.row:
        return math.inf
    counts = (
        (upper.row * row + upper.constant + 1) // s.depth + (lower.row * row + lower.constant) // s.depth
        for row in _starts(s)
    )
    return max(0, *counts)


def _cuts(bound: Bound, place: int, s: Structure) -> bool:
    """Whether a bound ever cuts a slab: one that moves with the rows does, another whose `place` is inside a slab."""
    return bool(bound.row) or (place > 0 and place % s.depth > 0)


def _waits(region: Region, s: Structure) -> bool:
    """Whether the first slab of some consumer is behind that of its tile."""
    if s.consumers == 1:
        return False
    return any(_comes_later(bound, s) for bound in region.bounds if bound.stream == 1)


def _comes_later(bound: Bound, s: Structure) -> bool:
    """Whether a bound begins for some consumer in a later slab than for its tile.

    One that does not move with the rows begins in the same slab for all. One that moves with them repeats; one that
    moves against them matters for the first rows, if at all.
    """
    if bound.row >= 0:
        return bound.row > 0 and bound.constant < 0
    tiles = range(0, math.lcm(s.tile_rows, s.depth), s.tile_rows)
    return any(
        (tile + own - bound.constant) // s.depth > (tile - bound.constant) // s.depth
        for tile in tiles
        for own in range(s.rows, s.tile_rows, s.rows)
    )
