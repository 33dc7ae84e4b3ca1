"""The least work of a region, and its fields as plain data, for rooms that do not look into regions.

The least work is arithmetic and bytes of the elements that count. Bounds of the loop leave each row a range of the
streamed axis. What lies outside adds nothing to any result, so a bound that counted it would let a masked kernel seem
to beat the machine. Ranges are taken element by element, not in K-blocks: they belong to the graph and no structure
changes them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from wsopt.frontend.types import Region
from wsopt.tensors.views import K_BLOCK, Bound, Role, View, bytes_once


@dataclass(frozen=True, slots=True)
class Kept:
    """Elements of the rows by the streamed axis that count, rows that have any, and the streamed range of all."""

    elements: int
    rows: int
    stream: int


def row_range(bounds: Iterable[Bound], row: int, stream: int) -> tuple[int, int]:
    """The elements [begin, end) of the streamed axis that count for a row; begin = end where none does.

    What run-time scalars leave out is not known here: it counts.
    """
    edges = [(bound.stream, bound.row * row + bound.constant) for bound in bounds if not bound.terms]
    begin = max([0, *(-(edge // step) for step, edge in edges if step > 0)])
    end = min([stream, *(edge // -step + 1 for step, edge in edges if step < 0)])
    never = any(step == 0 and edge < 0 for step, edge in edges)
    return (begin, end) if begin < end and not never else (0, 0)


def every_row_counts(bounds: Collection[Bound], rows: int, stream: int) -> bool:
    """Whether every row has an element of the streamed axis inside all bounds, whatever run-time scalars hold.

    The range of j that is left is at its shortest at the first or the last row: it is a concave function.
    """
    known = not any(bound.terms for bound in bounds)
    return known and all(
        begin < end for begin, end in (row_range(bounds, row, stream) for row in (0, rows - 1))
    )


def end_is_masked(bounds: Iterable[Bound], rows: int, stream: int) -> bool:
    """Whether bounds leave every row without elements beyond the end of the streamed axis, whatever scalars hold."""
    known = (bound for bound in bounds if bound.stream < 0 and not bound.terms)
    return any(b.constant + max(0, b.row * max(rows - 1, 0)) < stream for b in known)


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
    views = [*region.operands, *region.stationary_operands, *(source.view for source in region.sources)]
    # The last of a tensor's views is the one of which most is read.
    # A tensor that is read in several ways counts once, and each of its slices, but where they overlap.
    least = sorted(views, key=lambda view: _read(region, view))
    read = {(view.tensor, view.cutouts, view.chosen): (view, _read(region, view)) for view in least}
    return bytes_once(read.values()) + sum({one.name: one.view.nbytes for one in region.outputs}.values())


def _read(region: Region, view: View) -> int:
    """Bytes of a tensor that elements that count read. Rows of a source may be read after the loop: all count."""
    some, stream = kept(region), region.extent(Role.STREAM)
    if frozenset(view.roles) >= K_BLOCK:
        return math.ceil(view.fetched_bytes * some.elements / (region.extent(Role.ROW) * stream))
    if Role.STREAM in view.roles:
        return view.fetched_bytes * some.stream // stream
    if view in region.stationary_operands and Role.ROW in view.roles:
        return view.fetched_bytes * some.rows // region.extent(Role.ROW)
    return view.fetched_bytes


def region_data(part: Any) -> Any:
    """The fields of a region, or of a part of one, by name, in a fixed order. Sets are sorted lists; numbers that are
    not finite are the words that the graph's format has for them, which no tensor bears.
    """
    match part:
        case Enum():
            return part.value
        case float() if not math.isfinite(part):
            return str(part)
        case frozenset():
            return sorted(map(region_data, part))
        case tuple():
            return [region_data(item) for item in part]
        case _ if dataclasses.is_dataclass(part):
            return {field.name: region_data(getattr(part, field.name)) for field in dataclasses.fields(part)}
    return part


def work_data(region: Region) -> dict[str, int]:
    """The least work of a region, masks counted: `flops` of its products, `bytes` to and from memory."""
    return {"flops": needed_flops(region), "bytes": needed_bytes(region)}
