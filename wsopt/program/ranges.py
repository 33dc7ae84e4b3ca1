"""Which K-blocks of the streamed axis a tile has to look at, by a region's bounds.

Interval arithmetic on bounds row * i + stream * j + constant >= 0 with stream = 1 or -1; others leave no
K-block out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from wsopt.frontend.types import Bound, End, Region, Role
from wsopt.program.tile_order import k_block_counts
from wsopt.program.types import Structure


def splits(bound: Bound) -> bool:
    """Whether a bound says where along the streamed axis elements count."""
    return abs(bound.stream) == 1


def is_end(bound: Bound, region: Region) -> bool:
    """Whether a bound is the end of the streamed axis, which a kernel knows when it is launched."""
    return region.end is End.BOUND and bound == region.bounds[-1]


def narrowing(region: Region) -> tuple[tuple[int, int, int], ...]:
    """The bounds that leave K-blocks out, as triples: row, stream, constant."""
    found = (bound for bound in region.bounds if splits(bound) and not is_end(bound, region))
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


def k_iteration_counts(region: Region, s: Structure) -> tuple[int, ...]:
    """K-blocks that each tile of rows looks at."""
    return _counts(region, s, s.tile_rows)


def _counts(region: Region, s: Structure, rows: int) -> tuple[int, ...]:
    """K-blocks of each `rows` rows."""
    bounds, k_blocks = narrowing(region), -(-region.extent(Role.STREAM) // s.depth)

    def between(row: int, last_row: int) -> tuple[int, int]:
        return k_blocks_between(bounds, row, last_row, 0, k_blocks, s.depth)

    return tuple(k_block_counts(region.extent(Role.ROW), rows, between))


def longest_last(counts: Sequence[int]) -> bool:
    """Whether tiles of later rows look at more K-blocks: then tile numbers begin at the last rows."""
    return counts[-1] > counts[0]


def own_k_iterations(region: Region, s: Structure) -> tuple[float, ...]:
    """K-blocks of each tile that its consumers look at for their own rows, on the average of the consumers.

    Without bounds there is nothing to leave out, and all look at all.
    """
    if not region.bounds:
        return tuple(map(float, k_iteration_counts(region, s)))
    counts, each = _counts(region, s, s.rows), s.tile_rows // s.rows
    return tuple(sum(counts[first : first + each]) / s.consumers for first in range(0, len(counts), each))
