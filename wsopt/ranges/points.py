"""Extents of named dimensions that stand for all: classes whose members have the same tiles, and samples of them.

What a kernel takes goes in steps: `tokens` of 65 to 128 are as many tiles of 128 rows. So a range is cut into classes
at multiples of the sizes that tiles have, and a class's last extent stands for it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wsopt.graph.dims import Dim

Point = tuple[int, ...]
"""An extent of every dimension, in the graph's order."""

_NARROW, _NARROW_END = 16, 256
_STEP, _STEPS_END = 64, 8192
"""Tiles of few rows are narrow: up to `_NARROW_END` there is a class for every 16, then for every 64; and beyond
`_STEPS_END` twice as many each time that extents are twice as large.
"""
_MOST_CELLS = 400
"""Cells of a graph with several dimensions, at most: those in the middle of the ranges are thinned out."""
_PER_OCTAVE = (1.0, 1.5)
"""Samples are so many times a power of two."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The classes of each dimension: their last extents, ascending. A cell is a class of every dimension."""

    dims: tuple[Dim, ...]
    ends: tuple[tuple[int, ...], ...]

    @property
    def cells(self) -> tuple[Point, ...]:
        """The cells by their last extents; the last dimension's classes follow each other."""
        return tuple(itertools.product(*self.ends))

    @property
    def neighbours(self) -> tuple[tuple[int, int], ...]:
        """Cells that differ in one dimension by one class, by their places in `cells`."""
        found, step = [], 1
        for ends in reversed(self.ends):
            count = math.prod(map(len, self.ends))
            found += [(n, n + step) for n in range(count) if n // step % len(ends) + 1 < len(ends)]
            step *= len(ends)
        return tuple(found)

    def first(self, cell: Point) -> Point:
        """The least extents of a cell."""
        return tuple(
            dim.least if end == ends[0] else ends[ends.index(end) - 1] + 1
            for dim, ends, end in zip(self.dims, self.ends, cell, strict=True)
        )

    def weights(self) -> list[float]:
        """A share of each cell in the mean: of the typical extents in it, and a tenth of all by how many octaves of
        extents it holds; where nothing is typical by those alone.
        """
        shares = [_shares(dim, ends) for dim, ends in zip(self.dims, self.ends, strict=True)]
        return [math.prod(one) for one in itertools.product(*shares)]


_SPREAD = 0.1
"""Share of the mean that goes by octaves, and not by typical extents."""


def _shares(dim: Dim, ends: Sequence[int]) -> list[float]:
    typical, first = dim.weights, dim.least
    spread = 1.0 if not typical else _SPREAD
    octaves = math.log2((dim.most + 1) / dim.least)
    found = []
    for end in ends:
        own = math.fsum(weight for extent, weight in typical.items() if first <= extent <= end)
        found.append((1 - spread) * own + spread * math.log2((end + 1) / first) / octaves)
        first = end + 1
    return found


def grid_of(dims: Sequence[Dim]) -> Grid:
    """The grid of a graph's dimensions."""
    most = max(8, round(_MOST_CELLS ** (1 / len(dims))))
    return Grid(tuple(dims), tuple(tuple(_thinned(dim, class_ends(dim), most)) for dim in dims))


def class_ends(dim: Dim) -> list[int]:
    """The last extents of a dimension's classes: multiples of tile sizes, and extents of interest by themselves."""
    ends = {dim.least, dim.most, *(extent for extent, _ in dim.typical)}
    ends |= {*range(_NARROW, min(_NARROW_END, dim.most), _NARROW)}
    step, begin, end = _STEP, _STEP, _STEPS_END
    while begin < dim.most:
        ends |= {*range(begin, min(end, dim.most - 1) + 1, step)}
        step, begin, end = 2 * step, end + 2 * step, 2 * end
    return sorted(end for end in ends if dim.least <= end <= dim.most)


def _thinned(dim: Dim, ends: Sequence[int], most: int) -> list[int]:
    """At most about so many of these ends, evenly by their ratio; extents of interest stay."""
    if len(ends) <= most:
        return list(ends)
    kept = {dim.least, dim.most, *(extent for extent, _ in dim.typical)}
    ratio = (dim.most / dim.least) ** (1 / max(1, most - len(kept)))
    last = 0.0
    for end in ends:
        if end >= last * ratio:
            kept.add(end)
            last = end
    return sorted(kept)


def samples_of(grid: Grid, most: int) -> tuple[Point, ...]:
    """Cells to search first, at most about so many: typical ones, corners, and powers of two between."""
    each = max(2, round(most ** (1 / len(grid.dims))))
    chosen = [
        _coarse(dim, ends, each if len(grid.dims) > 1 else most)
        for dim, ends in zip(grid.dims, grid.ends, strict=True)
    ]
    return tuple(itertools.product(*chosen))


def _coarse(dim: Dim, ends: Sequence[int], most: int) -> list[int]:
    """Ends of interest by themselves, then powers of two and what lies halfway, as many as there may be."""
    kept = {dim.least, dim.most, *(extent for extent, _ in dim.typical)}
    for factor in _PER_OCTAVE:
        round_ones = [round(factor * 2**power) for power in range(32)]
        between = [one for one in round_ones if dim.least < one < dim.most]
        kept |= {*_spread(sorted({_end_of(ends, one) for one in between} - kept), most - len(kept))}
    return sorted(kept)


def _end_of(ends: Sequence[int], extent: int) -> int:
    return next(end for end in ends if end >= extent)


def _spread(values: Sequence[int], most: int) -> Iterable[int]:
    """So many of the values at most, evenly spread."""
    if len(values) <= most:
        return values
    return [values[place * len(values) // most] for place in range(max(0, most))]
