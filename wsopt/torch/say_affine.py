"""What operations on integers and truth values that depend on no input give, where they give affine functions.

A rule is a function of the result's shape and of the operation's arguments, with `Affine` in the place of FX nodes.
It raises Untaken where the result is none, or where that depends on how long a dimension is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from wsopt.torch.affine import Affine, constant, joined
from wsopt.torch.sizes import changes
from wsopt.torch.table import aten, prims
from wsopt.torch.untaken import Untaken
from wsopt.torch.values import Shape

Rule = Callable[..., Affine]
RULES: dict[Any, Rule] = {}
"""The rules by overload."""


def _rule(*targets: Any) -> Callable[[Rule], Rule]:
    def entered(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(targets, function))
        return function

    return entered


# --- constants ------------------------------------------------------------------------------------------


@_rule(prims.iota.default)
def _iota(shape: Shape, _length: int, *, start: int = 0, step: int = 1, **_how: Any) -> Affine:
    return Affine(shape, _number(start), (0 if shape[0] == 1 else _number(step),))


@_rule(aten.arange.default)
def _arange(shape: Shape, _end: int, **_how: Any) -> Affine:
    return _iota(shape, 0)


@_rule(aten.arange.start, aten.arange.start_step)
def _arange_from(shape: Shape, start: int, _end: int, step: int = 1, **_how: Any) -> Affine:
    return _iota(shape, 0, start=start, step=step)


@_rule(aten.full.default, aten.scalar_tensor.default)
def _full(shape: Shape, *given: Any, **_how: Any) -> Affine:
    return constant(_number(given[-1]), shape)


# --- views and parts ------------------------------------------------------------------------------------


@_rule(
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze.default,
    aten.unsqueeze.default,
    aten.clone.default,
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
)
def _view(shape: Shape, x: Affine, *_how: Any, **_more: Any) -> Affine:
    return x.viewed(shape)


@_rule(aten.expand.default)
def _expand(shape: Shape, x: Affine, *_how: Any, **_more: Any) -> Affine:
    return x.broadcast(shape)


@_rule(aten.permute.default)
def _permute(shape: Shape, x: Affine, perm: Sequence[int]) -> Affine:
    return Affine(shape, x.first, tuple(x.steps[dim] for dim in perm))


@_rule(aten.transpose.int)
def _transpose(shape: Shape, x: Affine, first: int, second: int) -> Affine:
    perm = list(range(len(x.steps)))
    perm[first], perm[second] = perm[second], perm[first]
    return _permute(shape, x, perm)


@_rule(aten.t.default)
def _t(shape: Shape, x: Affine) -> Affine:
    return _permute(shape, x, range(len(x.steps))[::-1])


@_rule(aten.slice.Tensor)
def _slice(
    shape: Shape, x: Affine, dim: int = 0, start: int | None = None, _end: int | None = None, step: int = 1
) -> Affine:
    dim %= len(x.steps)
    return x.part(dim, _place(start or 0, x.shape[dim]), _number(step), shape)


@_rule(aten.select.int)
def _select(shape: Shape, x: Affine, dim: int, index: int) -> Affine:
    dim %= len(x.steps)
    alone = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    return x.part(dim, _place(index, x.shape[dim]), 1, alone).viewed(shape)


@_rule(aten.cat.default)
def _cat(shape: Shape, parts: Sequence[Affine], dim: int = 0) -> Affine:
    return joined(parts, dim % len(shape), shape)


@_rule(aten.index.Tensor)
def _index(shape: Shape, x: Affine, indices: Sequence[Affine | None]) -> Affine:
    """What indices choose is affine if they are: they go along the first dimensions, and no index counts from the
    end.
    """
    if any(one is None for one in indices):
        raise Untaken("indices that leave a dimension out")
    chosen = [one for one in indices if one is not None]
    if any(one.ends[0] < 0 for one in chosen):
        raise Untaken("indices that may count from the end")
    rest = x.steps[len(chosen) :]
    own = len(shape) - len(rest)
    found = Affine(shape, x.first, (*(0,) * own, *rest))
    for one, step in zip(chosen, x.steps, strict=False):
        found += _padded(one.broadcast(shape[:own]).scaled(step), shape)
    return found


# --- arithmetic -----------------------------------------------------------------------------------------


@_rule(aten.add.Tensor, aten.add.Scalar)
def _add(shape: Shape, a: Affine | int, b: Affine | int, alpha: int = 1) -> Affine:
    return _spread(a, shape) + _spread(b, shape).scaled(_number(alpha))


@_rule(aten.sub.Tensor, aten.sub.Scalar)
def _sub(shape: Shape, a: Affine | int, b: Affine | int, alpha: int = 1) -> Affine:
    return _add(shape, a, b, -_number(alpha))


@_rule(aten.rsub.Scalar, aten.rsub.Tensor)
def _rsub(shape: Shape, a: Affine | int, b: Affine | int, alpha: int = 1) -> Affine:
    return _sub(shape, b, a, alpha)


@_rule(aten.neg.default)
def _neg(_shape: Shape, x: Affine) -> Affine:
    return x.scaled(-1)


@_rule(aten.mul.Tensor, aten.mul.Scalar)
def _mul(shape: Shape, a: Affine | int, b: Affine | int) -> Affine:
    one, other = _spread(a, shape), _spread(b, shape)
    if not one.is_constant:
        one, other = other, one
    return other.scaled(_same(one))


@_rule(aten.cumsum.default)
def _cumsum(shape: Shape, x: Affine, dim: int, **_how: Any) -> Affine:
    """Sums of one number, which grow by it."""
    value, dim = _same(x), dim % len(shape)
    return Affine(shape, value, tuple(value * (at == dim and n != 1) for at, n in enumerate(shape)))


@_rule(prims.convert_element_type.default)
def _convert(_shape: Shape, x: Affine, dtype: torch.dtype) -> Affine:
    return x if dtype is not torch.bool else constant(int(_same(x) != 0), x.shape)


@_rule(aten._to_copy.default)
def _to_copy(shape: Shape, x: Affine, *, dtype: torch.dtype | None = None, **_how: Any) -> Affine:
    return x if dtype is None else _convert(shape, x, dtype)


# --- truth values ---------------------------------------------------------------------------------------


def _compared(holds: Callable[[int, int], bool], shape: Shape, a: Affine | int, b: Affine | int) -> Affine:
    """A comparison that comes out alike for all elements: it does so for the least and the largest difference, and
    for one in between.
    """
    least, most = _sub(shape, a, b).ends
    found = {holds(one, 0) for one in (least, most, min(max(0, least), most))}
    if len(found) > 1:
        raise Untaken("truth values that differ")
    return constant(int(found.pop()), shape)


def _comparison(holds: Callable[[int, int], bool], packet: Any) -> None:
    def compared(shape: Shape, a: Affine | int, b: Affine | int) -> Affine:
        return _compared(holds, shape, a, b)

    _rule(packet.Tensor, packet.Scalar)(compared)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _comparison(getattr(operator, _name), getattr(aten, _name))


@_rule(aten.logical_and.default)
def _and(shape: Shape, a: Affine, b: Affine) -> Affine:
    return constant(int(bool(_same(a)) and bool(_same(b))), shape)


@_rule(aten.logical_or.default)
def _or(shape: Shape, a: Affine, b: Affine) -> Affine:
    return constant(int(bool(_same(a)) or bool(_same(b))), shape)


@_rule(aten.logical_not.default)
def _not(shape: Shape, x: Affine) -> Affine:
    return constant(int(not _same(x)), shape)


@_rule(aten.bitwise_and.Tensor)
def _bits_and(shape: Shape, a: Affine, b: Affine) -> Affine:
    return constant(_same(a) & _same(b), shape)


@_rule(aten.bitwise_or.Tensor)
def _bits_or(shape: Shape, a: Affine, b: Affine) -> Affine:
    return constant(_same(a) | _same(b), shape)


@_rule(aten.where.self)
def _where(shape: Shape, condition: Affine, a: Affine | int, b: Affine | int) -> Affine:
    return _spread(a if _same(condition) else b, shape)


# --- arguments ------------------------------------------------------------------------------------------


def _number(given: Any) -> int:
    """A whole number, or a truth value as one; no extent that changes."""
    if not isinstance(given, int) or changes(given):
        raise Untaken(f"{given} in the place of a whole number")
    return int(given)


def _place(index: int, extent: int) -> int:
    """An index counted from the start."""
    index = _number(index)
    if index < 0 and changes(extent):
        raise Untaken("an index from the end of a dimension that changes")
    return index if index >= 0 else max(0, index + extent)


def _spread(x: Affine | int, shape: Shape) -> Affine:
    """An operand in the shape of the result."""
    return x.broadcast(shape) if isinstance(x, Affine) else constant(_number(x), shape)


def _padded(x: Affine, shape: Shape) -> Affine:
    """The tensor with as many dimensions more at the end, the same along each."""
    return Affine(shape, x.first, x.steps + (0,) * (len(shape) - len(x.steps)))


def _same(x: Affine) -> int:
    """What all elements are."""
    if not x.is_constant:
        raise Untaken("integers that differ")
    return x.first
