"""What operations mean in our graphs that choose or replace elements by place, and running sums."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wsopt.torch.dtypes import dtype_of
from wsopt.torch.sizes import changes
from wsopt.torch.table import as_value, aten, check_real, entry
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer


@entry(aten.cumsum.default)
def _cumsum(w: Writer, x: Value, dim: int, dtype: Any = None) -> Value:
    """Running sums; where a type is given, of the elements in that type."""
    if dtype is not None:
        if not dtype.is_floating_point:
            raise Untaken(f"cumsum in {dtype}")
        x = w.cast(x, dtype_of(dtype))
    check_real(w, "cumsum", x)
    if not x.dims:
        return x
    dim %= len(x.dims)
    found, tensor = w.laid_out(x, [dim])
    axis = sum(len(one) for one in found.dims[:dim])
    return replace(found, tensor=w.node("cumsum", [tensor], axis=axis))


# --- one place along a dimension, as of labels ----------------------------------------------------------


@entry(aten.gather.default)
def _gather(w: Writer, x: Value, dim: int, indices: Value, sparse_grad: bool = False) -> Value:
    """The element of each row that an index names: the sum of those at that place alone."""
    del sparse_grad
    check_real(w, "gather", x)
    dim %= len(x.dims)
    _check_one_place(indices, dim)
    for other, extent in enumerate(indices.shape):
        if other != dim and extent != x.shape[other]:
            x = w.slice(x, other, 0, extent)
    chosen = w.elementwise("where", _named(w, x, dim, indices), x, as_value(0.0))
    return w.reduce("reduce_sum", chosen, [dim], True)


@entry(aten.scatter.value)
def _scatter_value(w: Writer, x: Value, dim: int, indices: Value, value: float) -> Value:
    return _scatter(w, x, dim, indices, as_value(value))


@entry(aten.scatter.src)
def _scatter(w: Writer, x: Value, dim: int, indices: Value, source: Value) -> Value:
    """A row with another element at the place that an index names."""
    check_real(w, "scatter", x)
    dim %= len(x.dims)
    _check_one_place(indices, dim)
    rest = [other for other in range(len(x.dims)) if other != dim]
    if any(indices.shape[other] != x.shape[other] for other in rest):
        raise Untaken("scatter into a part of the rows")
    for other, extent in enumerate(source.shape):
        if extent != indices.shape[other]:
            source = w.slice(source, other, 0, indices.shape[other])
    return w.elementwise("where", _named(w, x, dim, indices), source, x)


def _check_one_place(indices: Value, dim: int) -> None:
    if not indices.dims or indices.shape[dim] != 1:
        raise Untaken(f"indices that name several places of a row: {list(indices.shape)} along {dim}")


def _named(w: Writer, x: Value, dim: int, indices: Value) -> Value:
    """Which elements of a tensor indices name along a dimension."""
    return w.elementwise("equal", w.index(x.shape, dim), indices)


# --- elements at places that are positions themselves ---------------------------------------------------


@entry(aten.index.Tensor)
def _at_positions(w: Writer, x: Value, chosen: Sequence[Value | None]) -> Value:
    """A tensor looked up at positions along a dimension each, as masks of padded tokens are: parts of its dimensions,
    in the order of those, and repeated along all others.
    """
    alone = [dim for dim, one in enumerate(chosen) if one is not None and len(one.dims) == 1]
    if len(alone) == 1 and chosen.count(None) == len(chosen) - 1:
        axis, start = _position(w, chosen[alone[0]], 1)
        found = _part(w, x, alone[0], start, 1 if axis < 0 else w.shape[alone[0]])
        return w.expand(found, w.shape)
    rank = len(w.shape) - len(x.dims) + len(chosen)
    along = list[int]()
    for dim, one in enumerate(chosen):
        axis, start = _position(w, one, rank)
        x = _part(w, x, dim, start, 1 if axis < 0 else w.shape[axis])
        along.append(axis)
    axes = [axis for axis in along if axis >= 0]
    if len({*axes}) < len(axes):
        raise Untaken("a tensor that is looked up along one dimension twice")
    order = sorted(range(len(along)), key=along.__getitem__)
    x = w.permute(x, [*order, *range(len(along), len(x.dims))])
    spread = [w.shape[axis] if axis in axes else 1 for axis in range(rank)]
    return w.expand(w.view(x, [*spread, *w.shape[rank:]]), w.shape)


def _position(w: Writer, chosen: Value | None, rank: int) -> tuple[int, int]:
    """The dimension of so many along which what is looked up are positions, -1 if it is one, and the first of them.
    Raises Untaken for what is no position.
    """
    if chosen is not None and isinstance(chosen.tensor, int):
        return -1, chosen.tensor
    node, start = None if chosen is None else w.nodes.get(str(chosen.tensor)), 0
    if node is not None and node.op == "add":
        first, added = node.inputs
        if isinstance(added, int):
            node, start = w.nodes.get(str(first)), added
    if chosen is None or node is None or node.op != "iota":
        raise Untaken("a tensor that is looked up at what is no position")
    axes = [axis for axis, dim in enumerate(chosen.dims) if any(atom.held != 1 for atom in dim)]
    if len(axes) > 1:
        raise Untaken("a tensor that is looked up at positions of several dimensions")
    return rank - len(chosen.dims) + axes[0] if axes else -1, start


def _part(w: Writer, x: Value, dim: int, start: int, extent: int) -> Value:
    """Neighbouring elements along a dimension, from the end where the first is counted so. Raises Untaken where they
    are not all there.
    """
    if start == 0 and extent == x.shape[dim]:
        return x
    if changes(extent, x.shape[dim]):
        raise Untaken("a part along an extent that changes from call to call")
    first = start + x.shape[dim] if start < 0 else start
    if first < 0 or first + extent > x.shape[dim]:
        raise Untaken("elements that a tensor does not have")
    return w.slice(x, dim, first, first + extent)


# --- parts that are replaced ----------------------------------------------------------------------------


@entry(aten.slice_scatter.default)
def _slice_scatter(
    w: Writer,
    x: Value,
    source: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    """A tensor with other elements in a part of it."""
    dim %= len(x.dims)
    extent = x.shape[dim]
    source = _like(w, source, x)
    if changes(extent, start, end, step):
        if start in (None, 0) and step == 1 and end in (None, extent, sys.maxsize):
            return source
        raise Untaken("a part along an extent that changes from call to call")
    places = range(*slice(start, end, step).indices(extent))
    if not places:
        return x
    if step == 1 or len(places) == 1:
        return _replaced(w, x, source, dim, places)
    if places.start >= step or extent % step or len(places) != extent // step:
        raise Untaken(f"every {step}-th element of a part of a dimension, replaced")
    apart = (*x.shape[:dim], extent // step, step, *x.shape[dim + 1 :])
    one = (*source.shape[: dim + 1], 1, *source.shape[dim + 1 :])
    at = range(places.start, places.start + 1)
    found = _replaced(w, w.view(x, apart), w.view(source, one), dim + 1, at)
    return w.view(found, x.shape)


@entry(aten.select_scatter.default)
def _select_scatter(w: Writer, x: Value, source: Value, dim: int, index: int) -> Value:
    """A tensor with other elements at one place along a dimension."""
    dim %= len(x.dims)
    if changes(index, x.shape[dim]):
        raise Untaken("a part along an extent that changes from call to call")
    at = index % x.shape[dim]
    source = w.view(_like(w, source, x), (*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    return _replaced(w, x, source, dim, range(at, at + 1))


def _like(w: Writer, source: Value, x: Value) -> Value:
    """What goes into a tensor, in the type of that."""
    if not isinstance(source.tensor, str) or not isinstance(x.tensor, str):
        return source
    if w.dtype(source) is w.dtype(x):
        return source
    check_real(w, "a part", source)
    check_real(w, "a tensor with another part", x)
    return w.cast(source, w.dtype(x))


def _replaced(w: Writer, x: Value, source: Value, dim: int, places: range) -> Value:
    """A tensor with other elements at neighbouring places: what is before, them, and what is behind. In a tensor of
    zeros, as in the gradient of a part, these are zeros around them.
    """
    if not isinstance(x.tensor, str) and not isinstance(x.tensor, bool) and x.tensor == 0:
        ends = [(0, 0)] * (len(x.dims) - 1 - dim) + [(places.start, x.shape[dim] - places[-1] - 1)]
        return w.pad(source, ends) if any(map(any, ends)) else source
    before = [w.slice(x, dim, 0, places.start)] if places.start else []
    behind = [w.slice(x, dim, places[-1] + 1, x.shape[dim])] if places[-1] + 1 < x.shape[dim] else []
    parts = [*before, source, *behind]
    return w.concat(parts, dim) if len(parts) > 1 else source
