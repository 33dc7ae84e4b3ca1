"""The least work that a region can be: arithmetic and bytes of the elements that count.

Bounds of the loop leave each row a range of the streamed axis. What lies outside adds nothing to any result, so
a bound that counted it would let a masked kernel seem to beat the machine. Ranges are taken element by element,
not in K-blocks: they belong to the graph and no structure changes them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from wsopt.frontend.types import Region
from wsopt.tensors.views import K_BLOCK, Bound, Role, View


@dataclass(frozen=True, slots=True)
class Kept:
    """Elements of the rows by the streamed axis that count, rows that have any, and the streamed range of all."""

    elements: int
    rows: int
    stream: int


def row_range(bounds: Iterable[Bound], row: int, stream: int) -> tuple[int, int]:
    """The elements [begin, end) of the streamed axis that count for a row; begin = end where none does."""
    begin, end = 0, stream
    for bound in bounds:
        edge = bound.row * row + bound.constant
        if bound.stream == 0 and edge < 0:
            return 0, 0
        if bound.stream > 0:
            begin = max(begin, -(edge // bound.stream))
        if bound.stream < 0:
            end = min(end, edge // -bound.stream + 1)
    return (begin, end) if begin < end else (0, 0)


def every_row_counts(bounds: Collection[Bound], rows: int, stream: int) -> bool:
    """Whether every row has an element of the streamed axis inside all bounds.

    The range of j that is left is at its shortest at the first or the last row: it is a concave function.
    """
    ranges = (row_range(bounds, row, stream) for row in (0, rows - 1))
    return all(begin < end for begin, end in ranges)


def end_is_masked(bounds: Iterable[Bound], rows: int, stream: int) -> bool:
    """Whether bounds leave every row without elements beyond the end of the streamed axis."""
    last = max(rows - 1, 0)
    return any(b.stream < 0 and max(b.constant, b.row * last + b.constant) < stream for b in bounds)


@functools.lru_cache(maxsize=256)
def kept(region: Region) -> Kept:
    """Counts of rows, streamed elements and pairs of both that the loop's bounds let through; all without bounds."""
    rows, stream = region.extent(Role.ROW), region.extent(Role.STREAM)
    if not region.bounds:
        return Kept(rows * stream, rows, stream)
    ranges = [row_range(region.bounds, row, stream) for row in range(rows)]
    some = [(begin, end) for begin, end in ranges if begin < end]
    seen = max((end for _, end in some), default=0) - min((begin for begin, _ in some), default=0)
    return Kept(sum(end - begin for begin, end in some), len(some), seen)


def needed_flops(region: Region) -> int:
    """Multiplications and additions of the products for the elements that count.

    Every product of a loop is a sum over pairs of a row and an element of the streamed axis.
    """
    return region.flops * kept(region).elements // (region.extent(Role.ROW) * region.extent(Role.STREAM))


def needed_bytes(region: Region) -> int:
    """Bytes that any kernel for the region moves: every tensor once, without parts that no counted element reads."""
    products = (*region.operands, *region.stationary_operands)
    inputs = [*products, *(source.view for source in region.sources)]
    found: dict[str, int] = {}
    for view in inputs:
        found[view.tensor] = max(found.get(view.tensor, 0), _read(region, view))
    found |= {output.view.tensor: output.view.nbytes for output in region.outputs}
    return sum(found.values())


def _read(region: Region, view: View) -> int:
    """Bytes of a tensor that elements that count read. Rows of a source may be read after the loop: all count."""
    some, stream = kept(region), region.extent(Role.STREAM)
    if frozenset(view.roles) >= K_BLOCK:
        return math.ceil(view.nbytes * some.elements / (region.extent(Role.ROW) * stream))
    if Role.STREAM in view.roles:
        return view.nbytes * some.stream // stream
    if view in region.stationary_operands and Role.ROW in view.roles:
        return view.nbytes * some.rows // region.extent(Role.ROW)
    return view.nbytes
