"""What `flex_attention` means in our graphs: attention whose scores and masks are functions of a score and its place.

The functions come as graphs of one score. Here they are said of all scores at once: a place is an index along a
dimension, and whatever a function looks up at a place is a tensor along that dimension. So a mask that it makes of
places is a bound of the loop, as in attention that is written out. Which blocks of scores there are to compute, as a
`BlockMask` tells beside its function, follows from the function and is not read.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.flex_attention import flex_attention

from wsopt.torch.say_attention import scores_of, weighted
from wsopt.torch.table import TABLE, entry
from wsopt.torch.values import Shape, Untaken, Value
from wsopt.torch.writer import Writer, number

_ROWS_OF_BLOCK, _KEYS_OF_BLOCK, _MASK = -3, -2, -1
"""Where a block mask has the extents of its blocks, and its function."""


@entry(flex_attention)
def _flex(
    w: Writer, q: Value, k: Value, v: Value, score: fx.GraphModule, block_mask: Sequence[Any], scale: float,
    _how: Any, of_score: Sequence[Value] = (), of_mask: Sequence[Value] = (),
) -> tuple[Value]:  # fmt: skip
    scores, v = scores_of(w, q, k, v, scale)
    shape = scores.shape
    places = [w.index(shape, axis) for axis in range(len(shape))]
    found = _said_of_all(w, score, shape, [scores, *places, *of_score])
    mask = _said_of_all(w, block_mask[_MASK], shape, [*places, *of_mask])
    if isinstance(mask.tensor, bool):
        _check_all_seen(mask.tensor, shape, block_mask)
    else:
        found = w.elementwise("where", mask, found, number(-math.inf))
    return (weighted(w, found, v),)


def _check_all_seen(seen: bool, shape: Shape, block_mask: Sequence[Any]) -> None:
    """Raise Untaken where blocks alone say which scores count, or no score does."""
    blocks = block_mask[_ROWS_OF_BLOCK], block_mask[_KEYS_OF_BLOCK]
    if not seen:
        raise Untaken("attention whose mask lets nothing through")
    if any(extent > block for extent, block in zip(shape[-2:], blocks, strict=True)):
        raise Untaken("a mask of blocks without a function that says which scores count")


def _said_of_all(w: Writer, function: fx.GraphModule, shape: Shape, given: Sequence[Value]) -> Value:
    """What a function of one score gives for all, `given` its arguments. Raises Untaken."""
    known: dict[fx.Node, Any] = {}
    arguments = iter(given)
    w.shape = shape
    for node in function.graph.nodes:
        if node.op == "placeholder":
            known[node] = next(arguments)
        elif node.op == "get_attr":
            known[node] = _held(function, node)
        elif node.op == "output":
            (result,) = fx.map_arg(node.args, known.__getitem__)
            return result if isinstance(result, Value) else number(result)
        else:
            args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
            w.integers.wide = node.meta["val"].dtype is torch.int64
            known[node] = _entry_of(node)(w, *args, **kwargs)
    raise Untaken("a function of scores without a result")


def _held(function: fx.GraphModule, node: fx.Node) -> Value:
    """A number that a function's graph holds."""
    held = operator.attrgetter(str(node.target))(function)
    if not isinstance(held, torch.Tensor) or held.ndim or held.device.type != "cpu":
        raise Untaken(f"a function of scores that holds {type(held).__name__}")
    return number(held.item())


def _entry_of(node: fx.Node) -> Callable[..., Value]:
    """The entry of an operation on one score, for all. Untaken where there is none."""
    if node.target not in TABLE:
        raise Untaken(f"no entry for {node.target} in a function of scores")
    return TABLE[node.target]
