"""Which K-blocks of the streamed axis a tile has to look at, by a region's bounds.

Interval arithmetic on bounds row * i + stream * j + constant >= 0 with stream = 1 or -1; others leave no
K-block out.
"""

from __future__ import annotations

from collections.abc import Sequence

from wsopt.frontend.types import End, Region
from wsopt.program.tile_order import k_block_counts
from wsopt.program.types import Structure
from wsopt.tensors.views import Bound, Role


def splits(bound: Bound) -> bool:
    """Whether a bound says where along the streamed axis elements count."""
    return abs(bound.stream) == 1


def is_end(bound: Bound, region: Region) -> bool:
    """Whether a bound is the end of the streamed axis, which a kernel knows when it is launched."""
    return region.end is End.BOUND and bound == region.bounds[-1]


def narrowing(region: Region) -> tuple[tuple[int, int, int], ...]:
    """The bounds that leave K-blocks out, as `tile_order` takes them: row, stream, constant."""
    found = (bound for bound in region.bounds if splits(bound) and not is_end(bound, region))
    return tuple((bound.row, bound.stream, bound.constant) for bound in found)


def k_iteration_counts(region: Region, s: Structure) -> tuple[int, ...]:
    """K-blocks that each tile of rows looks at."""
    return _counts(region, s, s.tile_rows)


def _counts(region: Region, s: Structure, rows: int) -> tuple[int, ...]:
    """K-blocks of each `rows` rows."""
    extents = region.extent(Role.ROW), region.extent(Role.STREAM)
    return tuple(k_block_counts(narrowing(region), *extents, rows, s.depth))


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
