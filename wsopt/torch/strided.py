"""Convolutions of every n-th element, whose window is one element, apart from the slice that they are of.

Such a convolution is a product of a slice with a step, which a kernel reads where it lies. One that no piece computes
is put together again: a library reads the image itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from wsopt.torch.splice import Maker

_STRIDES = "wsopt_strides"
"""The entry of a node's `meta` with the strides of the convolution that it was; none of a slice made for one."""
_STRIDE = 3
"""The place of the strides among a convolution's arguments."""

aten = torch.ops.aten


def take_apart(graph: fx.Graph) -> None:
    """Have convolutions with strides, but without a window, read slices with these steps."""
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        if not _is_of_one(node):
            continue
        source, strides = node.args[0], list(node.args[_STRIDE])
        made = Maker(graph, node.prev)
        for dim, step in enumerate(strides, 2):
            if step > 1:
                extent = source.meta["val"].shape[dim]
                source = made.call(aten.slice.Tensor, source, dim, 0, extent, step)
                source.meta[_STRIDES] = []
        node.update_arg(0, source)
        node.update_arg(_STRIDE, [1] * len(strides))
        node.meta[_STRIDES] = strides


def put_together(graph: fx.Graph) -> None:
    """Have what is left of these convolutions read the image itself."""
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        strides: Any = node.meta.pop(_STRIDES, None)
        if strides is None:
            continue
        source = node.args[0]
        while _STRIDES in source.meta:
            source = source.args[0]
        node.update_arg(0, source)
        node.update_arg(_STRIDE, strides)
    for node in reversed(graph.find_nodes(op="call_function", target=aten.slice.Tensor)):
        if _STRIDES in node.meta and not node.users:
            graph.erase_node(node)


def _is_of_one(node: fx.Node) -> bool:
    """Whether a convolution has strides, a window of one element and nothing else, and an image of a known size whose
    channels lie together: else a kernel would want a copy, which a library does without.
    """
    source, weight, _, strides, padding, _, transposed, _, groups = node.args
    window, image = weight.meta["val"].shape[2:], source.meta["val"].shape[2:]
    known = all(isinstance(one, int) for one in (*image, *strides, *padding, *window))
    plain = not transposed and groups == 1 and not any(padding)
    together = [one for one in source.meta["val"].stride()[1:2] if isinstance(one, int)] == [1]
    return (
        known and plain and together and all(one == 1 for one in window) and any(one != 1 for one in strides)
    )
