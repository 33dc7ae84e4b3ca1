"""Ranges of K-blocks that each tile looks at, by the loop's bounds.

Interval arithmetic on bounds row * i + stream * j + constant >= 0 with stream = 1 or -1; others leave no
K-block out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wsopt.program.tile_order import k_block_counts
from wsopt.program.types import Structure
from wsopt.tensors.views import Bound


@dataclass(frozen=True, slots=True)
class Bounds:
    """The elements of the streamed axis that count, of `rows` by `stream`: those within `every` bound.

    `end` is the bound, if any, that is the end of the axis, which a kernel knows when it is launched. Where `masked`
    the graph's own masks end every row before; with `full_rows` every row has an element, for a number was taken for
    minus infinity.
    """

    every: tuple[Bound, ...]
    rows: int
    stream: int
    end: Bound | None = None
    masked: bool = False
    full_rows: bool = False


def splits(bound: Bound) -> bool:
    """Whether a bound depends on the place along the streamed axis."""
    return abs(bound.stream) == 1


def narrowing(bounds: Bounds) -> tuple[tuple[int, int, int], ...]:
    """The bounds that leave K-blocks out, as triples: row, stream, constant."""
    found = (bound for bound in bounds.every if splits(bound) and bound != bounds.end)
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


def k_iteration_counts(bounds: Bounds, s: Structure) -> tuple[int, ...]:
    """K-blocks that each tile of rows looks at."""
    return _counts(bounds, s.tile_rows, s.depth)


def _counts(bounds: Bounds, rows: int, depth: int) -> tuple[int, ...]:
    """K-blocks of each `rows` rows."""
    narrowed, k_blocks = narrowing(bounds), -(-bounds.stream // depth)

    def between(row: int, last_row: int) -> tuple[int, int]:
        return k_blocks_between(narrowed, row, last_row, 0, k_blocks, depth)

    return tuple(k_block_counts(bounds.rows, rows, between))


def longest_last(counts: Sequence[int]) -> bool:
    """Whether tiles of later rows look at more K-blocks: then tile numbers begin at the last rows."""
    return counts[-1] > counts[0]


def own_k_iterations(bounds: Bounds, s: Structure) -> tuple[float, ...]:
    """K-blocks of each tile that its consumers look at for their own rows, on the average of the consumers.

    Without bounds there is nothing to leave out, and all look at all.
    """
    if not bounds.every:
        return tuple(map(float, k_iteration_counts(bounds, s)))
    counts, each = _counts(bounds, s.rows, s.depth), s.tile_rows // s.rows
    return tuple(sum(counts[first : first + each]) / s.consumers for first in range(0, len(counts), each))
