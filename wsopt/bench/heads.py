"""Views of an attention's tensors with the axes batch, heads, sequence and head, as libraries want them.

A region has merged what lies together in memory; here it is taken apart again, so that a library is called with
the tensors as a person would hand them over: with as many heads as the graph has, shared ones not repeated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wsopt.bench.attention import Attention
from wsopt.bench.eager_source import Inapplicable
from wsopt.bench.raw_region import BATCH, GROUP, HEAD, ROW, STREAM, RawView

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Heads:
    """Extents of the four dimensions: `heads` of the keys, with `group` of the queries for each.

    `merged` says that the heads of the keys are the last part of the region's batch axis; else they are its
    group axis, or one. `in_rows` says that the group is the outer part of the rows, `apart` that both have an axis of
    their own in the region.
    """

    batch: int
    heads: int
    group: int
    queries: int
    merged: bool
    in_rows: bool
    apart: bool = False

    def batch_index(self) -> str:
        """The index along the region's batch axis from a library's b and h."""
        if not self.merged or self.heads == 1:
            return "b"
        head = "h" if self.group == 1 else f"h // {self.group}"
        return head if self.batch == 1 else f"b * {self.heads} + {head}"

    def group_index(self) -> str:
        """The index along the region's group axis."""
        if self.apart:
            return f"h % {self.group}"
        if not self.merged:
            return "h"
        return "h" if self.heads == 1 else f"h % {self.group}"

    def head_index(self) -> str:
        """The index along the region's axis of heads."""
        return f"h // {self.group}"


def find_heads(found: Attention, shapes: Mapping[str, Shape]) -> Heads:
    """The heads of an attention whose tensors have these shapes in the graph."""
    extents = found.region.extents
    batch, rows = extents.get(BATCH, 1), extents[ROW]
    if HEAD in extents:
        own = Heads(batch, extents[HEAD], extents[GROUP], rows, merged=False, in_rows=False, apart=True)
        if not all(_even(view, own) for view in (found.query, found.output.view)):
            raise Inapplicable("its query heads are not equally far apart, from one group to the next")
        return own
    if GROUP in found.key.roles:
        return Heads(batch, extents[GROUP], 1, rows, merged=False, in_rows=False)
    sizes = _sizes(found.key, BATCH, shapes)
    group, in_rows = extents.get(GROUP, 1), False
    row_sizes = _sizes(found.query, ROW, shapes)
    if group == 1 and len(row_sizes) > 1 and not _counts_rows(found):
        group, in_rows = math.prod(row_sizes[:-1]), True
    whole = Heads(batch // sizes[-1], sizes[-1], group, rows // group if in_rows else rows, True, in_rows)
    views = (found.query, found.output.view)
    if all(_even(view, whole) for view in views):
        return whole
    return Heads(batch, 1, group, whole.queries, merged=True, in_rows=in_rows)


def _sizes(view: RawView, role: str, shapes: Mapping[str, Shape]) -> Shape:
    """The extents that an axis was merged from, where they are known."""
    if role not in view.roles:
        return (1,)
    extent = view.extents[view.roles.index(role)]
    found = view.sizes(role, shapes[view.tensor])
    return found if math.prod(found) == extent else (extent,)


def _counts_rows(found: Attention) -> bool:
    """Whether a score or a mask depends on the row's index."""
    views = found.region.sources.values()
    return any(item.op == "iota_row" for item in found.region.body) or any(ROW in v.roles for v in views)


def _head_strides(view: RawView, heads: Heads) -> tuple[int, int]:
    """Elements between batches, and between the heads of a tensor with all heads of the queries."""
    batch, inner = view.stride(BATCH), view.stride(GROUP)
    if not heads.merged:
        return batch, inner
    if heads.in_rows:
        inner = view.stride(ROW) * heads.queries
    return batch * heads.heads, batch if heads.group == 1 else inner


def _even(view: RawView, heads: Heads) -> bool:
    """Whether neighbouring heads of the queries are equally far apart, from group to group too."""
    _, step = _head_strides(view, heads)
    outer = view.stride(HEAD if heads.apart else BATCH)
    return heads.heads == 1 or heads.group == 1 or outer == heads.group * step


def of_queries(view: RawView, heads: Heads, last: str) -> tuple[Shape, Shape]:
    """Sizes and strides (batch, heads, queries, `last`) of the queries or the result."""
    batch, step = _head_strides(view, heads)
    width = view.extents[view.roles.index(last)]
    size = (heads.batch, heads.heads * heads.group, heads.queries, width)
    return size, (batch, step, view.stride(ROW), view.stride(last))


def of_keys(view: RawView, heads: Heads, last: str) -> tuple[Shape, Shape]:
    """Sizes and strides (batch, heads, keys, `last`) of the keys (`inner`) or the values (`column`)."""
    batch = view.stride(BATCH)
    step = batch if heads.merged else view.stride(HEAD if heads.apart else GROUP)
    keys, width = (view.extents[view.roles.index(role)] for role in (STREAM, last))
    size = (heads.batch, heads.heads, keys, width)
    outer = batch * heads.heads if heads.merged else batch
    return size, (outer, step, view.stride(STREAM), view.stride(last))
