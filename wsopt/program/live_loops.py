"""Finds loops over K-blocks that no extents can reach, which are not written.

A tile's K-blocks are passed in order: K-blocks before a consumer's own, K-blocks in which a mask is at work, K-blocks
in which every element counts, again K-blocks with a mask, and the rest of the tile's. Bounds say where each begins
and ends (`ranges`); far from both ends of the streamed axis that repeats from tile to tile, and near them it is less.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from wsopt.program.ranges import Bounds, splits
from wsopt.program.types import Structure
from wsopt.tensors.views import Bound

_START = Bound(0, 1, 0)
"""The streamed axis begins at 0."""


@dataclass(frozen=True, slots=True)
class LiveLoops:
    """`most_whole` is an upper bound of the K-blocks of one consumer's tile in which every element counts, without
    limit infinite; `none_whole` says whether a tile may have none. The others say whether a mask can be at work in
    K-blocks where a tile `begins` and where it `ends`, and whether a consumer ever `waits` for others' K-blocks
    before its own.
    """

    most_whole: float
    none_whole: bool
    begins: bool
    ends: bool
    waits: bool


def live_loops(bounds: Bounds, s: Structure) -> LiveLoops:
    """The loops that can run for some tile, some extents of rows and of the streamed axis."""
    if not all(map(splits, bounds.every)):
        return LiveLoops(0, none_whole=True, begins=False, ends=True, waits=_waits(bounds, s))
    lower = [bound for bound in bounds.every if bound.stream > 0 and _matters(bound)]
    upper = [bound for bound in bounds.every if bound.stream < 0]
    constants = [bound for bound in upper if bound != bounds.end]
    pairs = itertools.product((_START, *lower), constants)
    ends = len(constants) < len(upper)
    return LiveLoops(
        most_whole=min((_most_whole(one, other, s) for one, other in pairs), default=math.inf),
        none_whole=s.consumers > 1 or ends or bool(lower) or any(_leaves_none(b, s) for b in constants),
        begins=any(_cuts(b, -b.constant, s) for b in lower),
        ends=ends or any(_cuts(b, b.constant + 1, s) for b in constants),
        waits=_waits(bounds, s),
    )


def _matters(lower: Bound) -> bool:
    """Whether a lower bound ever leaves something out: indices are not negative."""
    return lower.row < 0 or lower.constant < 0


def _leaves_none(upper: Bound, s: Structure) -> bool:
    """Whether an upper bound ends before the first K-block does, for the first rows or for later ones."""
    return upper.row < 0 or upper.constant + 1 < s.depth


def _starts(s: Structure) -> range:
    """The first rows of consumers, up to where K-blocks lie to them as at the first again."""
    return range(0, math.lcm(s.rows, s.depth), s.rows)


def _most_whole(lower: Bound, upper: Bound, s: Structure) -> float:
    """K-blocks between two bounds for a single row, which has the most. Without limit where the bounds diverge; for
    the first row where one of them moves towards the start of the axis.
    """
    if lower == _START and upper.row < 0:
        return max(0, (upper.constant + 1) // s.depth)
    if lower.row + upper.row:
        return math.inf
    counts = (
        (upper.row * row + upper.constant + 1) // s.depth + (lower.row * row + lower.constant) // s.depth
        for row in _starts(s)
    )
    return max(0, *counts)


def _cuts(bound: Bound, place: int, s: Structure) -> bool:
    """Whether a bound ever cuts a K-block: one that moves with the rows does, another whose `place` is inside one."""
    return bool(bound.row) or (place > 0 and place % s.depth > 0)


def _waits(bounds: Bounds, s: Structure) -> bool:
    """Whether the first K-block of some consumer is behind that of its tile."""
    if s.consumers == 1:
        return False
    return any(_comes_later(bound, s) for bound in bounds.every if bound.stream == 1)


def _comes_later(bound: Bound, s: Structure) -> bool:
    """Whether a bound begins for some consumer in a later K-block than for its tile.

    One that does not move with the rows begins in the same K-block for all. One that moves with them begins at its
    first row's, and repeats; one that moves against them begins at its last row's, and ends at the streamed axis'
    start.
    """
    if bound.row == 0:
        return False
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
