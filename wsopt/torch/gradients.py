"""The gradients of a convolution whose window is one element, each an operation of its own.

torch has one operation for those of the image, of the weights and of the bias. They are products and a sum with tiles
of their own, and so no kernel computes them together. Those that no piece computes are put together again: a library
may share work between them.
"""

from __future__ import annotations

import operator
from collections import defaultdict

import torch
from torch import fx

from wsopt.torch.splice import Maker

_APART = "wsopt_gradients"
"""The entry of a node's `meta` with the operation, by name, of which it was a part."""
_ALL = 3
"""Of how many tensors there are gradients."""

_backward = torch.ops.aten.convolution_backward.default


def take_gradients_apart(graph: fx.Graph) -> None:
    """Have an operation of its own for each gradient of a convolution without a window."""
    for node in graph.find_nodes(op="call_function", target=_backward):
        for item in [one for one in node.users if not one.users]:
            graph.erase_node(item)
        if not _is_of_one_element(node):
            continue
        made = Maker(graph, node)
        for place in _wanted(node):
            call = made.call(_backward, *node.args[:-1], _only([place]))
            call.meta[_APART] = node.name
            _hand_on(made, node, call, place)
        graph.erase_node(node)


def put_gradients_together(graph: fx.Graph) -> None:
    """Have one operation for those gradients of a convolution that have stayed in the graph."""
    parts: dict[str, list[fx.Node]] = defaultdict(list)
    for node in graph.find_nodes(op="call_function", target=_backward):
        of = node.meta.pop(_APART, None)
        if of is not None:
            parts[of].append(node)
    for left in parts.values():
        if len(left) > 1:
            _joined(graph, left)


def _joined(graph: fx.Graph, parts: list[fx.Node]) -> None:
    """Have one operation, behind the first of its parts, for all of them."""
    places = [place for node in parts for place in _wanted(node)]
    made = Maker(graph, parts[0])
    call = made.call(_backward, *parts[0].args[:-1], _only(places))
    for node, place in zip(parts, places, strict=True):
        _hand_on(made, node, call, place)
        graph.erase_node(node)


def _hand_on(made: Maker, node: fx.Node, call: fx.Node, place: int) -> None:
    """Have those who read one of an operation's results read another operation's."""
    for item in [one for one in node.users if one.args[1] == place]:
        item.replace_all_uses_with(made.call(operator.getitem, call, place), propagate_meta=False)
        made.graph.erase_node(item)


def _wanted(node: fx.Node) -> list[int]:
    """The places of the gradients that an operation gives."""
    return [place for place, wanted in enumerate(list(node.args[-1])) if wanted]


def _only(places: list[int]) -> list[bool]:
    return [place in places for place in range(_ALL)]


def _is_of_one_element(node: fx.Node) -> bool:
    """Whether several gradients are wanted, nothing else is read, and the window is one element."""
    wanted, window = _wanted(node), node.args[2].meta["val"].shape[2:]
    if len(wanted) < 2 or any(item.args[1] not in wanted for item in node.users):
        return False
    return all(isinstance(one, int) and one == 1 for one in window)
