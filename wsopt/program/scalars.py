"""Values of run-time scalars at which bounds begin or end with a K-block.

A kernel has loops that only such values reach, for instance whole K-blocks under a window as long as one.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.program.ranges import Bounds
from wsopt.program.types import Structure

_K_BLOCKS = (1, 3)
"""Numbers of K-blocks before the edges that are asked for."""


def aligned_scalars(bounds: Bounds, s: Structure, rows: int) -> Iterator[tuple[str, int]]:
    """Scalars by their sources' names, with values for which the first or the last element that counts for the last
    of `rows`, or of a consumer's rows, is at the edge of a K-block.
    """
    for bound in (one for one in bounds.every if len(one.terms) == 1 and abs(one.terms[0][0]) == 1):
        ((sign, name),) = bound.terms
        for row in {rows - 1, min(s.rows, rows) - 1}:
            for k_blocks in _K_BLOCKS:
                edge = k_blocks * s.depth - (bound.stream < 0)  # the first element inside, or the last one
                yield name, sign * (-bound.stream * edge - bound.row * row - bound.constant)
