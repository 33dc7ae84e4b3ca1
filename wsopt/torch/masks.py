"""Masks that several operations read, made for each of them while pieces are sought.

A library makes one mask for all layers, of positions and of a tensor that says which tokens are padding, and has an
element for every row and key. A kernel that makes it anew reads that small tensor, and sees bounds of its loop in
what is made of positions. Where no piece has made it, it is one mask again.
"""

from __future__ import annotations

import torch
from torch import fx

from wsopt.torch.lower import MADE
from wsopt.torch.traffic import REPEATED, is_view, nbytes_of

aten = torch.ops.aten

_COPY = "wsopt_mask"
"""The entry in the `meta` of a mask of which there are copies, and of these."""
_MOST = 1 << 12
"""Operations that are copied in one graph, at most."""


def repeat_masks(graph: fx.Graph) -> None:
    """Give each reader of a mask one of its own, where what the mask is made of is smaller."""
    left, free = _MOST, _free(graph)
    for node in reversed(list(graph.nodes)):
        users = list(node.users)
        if len(users) < 2 or len(users) > left or not _is_mask(node) or not _grows(node, free):
            continue
        left -= len(users)
        node.meta[_COPY] = True
        for user in users[1:]:
            with graph.inserting_after(node):
                copy = graph.node_copy(node)
            copy.meta.update({MADE: True, REPEATED: True})
            user.replace_input_with(node, copy)


def join_masks(graph: fx.Graph) -> None:
    """Have copies of one mask that are still there be one again."""
    known: dict[tuple[object, str, str], fx.Node] = {}
    for node in list(graph.nodes):
        if not node.meta.pop(_COPY, False):
            continue
        first = known.setdefault((node.target, str(node.args), str(node.kwargs)), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _is_mask(node: fx.Node) -> bool:
    """Whether a node gives truth values element by element, sees them in another way, or looks them up."""
    val = node.meta.get("val")
    if node.op != "call_function" or not isinstance(val, torch.Tensor) or val.dtype is not torch.bool:
        return False
    pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ()) and not _is_drawn(node)
    return pointwise or is_view(node) or node.target is aten.index.Tensor


def _grows(node: fx.Node, free: set[fx.Node]) -> bool:
    """Whether a mask is larger than all together that it is made of, but for what depends on no input."""
    seen, waiting, nbytes = {node}, [node], 0
    while waiting:
        new = [one for one in waiting.pop().all_input_nodes if one not in seen and one not in free]
        seen.update(new)
        waiting += filter(_is_mask, new)
        nbytes += sum(nbytes_of(one) for one in new if not _is_mask(one))
    return nbytes < nbytes_of(node)


def _free(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that depend on no input and on no chance."""
    found = set[fx.Node]()
    for node in graph.nodes:
        if node.op == "call_function" and found.issuperset(node.all_input_nodes) and not _is_drawn(node):
            found.add(node)
    return found


def _is_drawn(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
