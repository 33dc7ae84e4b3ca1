"""Operands that a library copies before it multiplies them, copied in the FX graph, where pieces read the copy.

No library and no kernel of ours multiplies a tensor of which neither rows nor columns have their elements side by
side, such as the gradient of a sum, which is one number seen as many, or one whose batches lie innermost; nor one row
that is seen as many. Torch copies it within the product. A copy that no piece reads is taken out again.
"""

from __future__ import annotations

import torch
from torch import fx

from wsopt.torch.lower import MADE
from wsopt.torch.say_products import OPERANDS
from wsopt.torch.splice import Maker

aten = torch.ops.aten

_COPY = "wsopt_operand"
"""The entry in the `meta` of a copy that was made here."""


def copy_operands(graph: fx.Graph) -> None:
    """Have products read copies of operands that they would copy themselves."""
    *_, last = graph.find_nodes(op="placeholder") or [None]
    copies: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        for place in OPERANDS.get(node.target, ()):
            operand = node.args[place]
            if not _is_copied(operand.meta["val"]):
                continue
            if operand not in copies:
                behind = last if operand.op == "placeholder" and last is not None else operand
                made = Maker(graph, behind)
                copies[operand] = made.call(
                    aten.clone.default, operand, memory_format=torch.contiguous_format
                )
                copies[operand].meta.update({_COPY: True, MADE: True})
            node.update_arg(place, copies[operand])


def leave_copies(graph: fx.Graph) -> None:
    """Have products that no piece computes read what was copied for them, and take out copies that nothing reads."""
    for copy in graph.find_nodes(op="call_function", target=aten.clone.default):
        if not copy.meta.pop(_COPY, False):
            continue
        for user in list(copy.users):
            if user.target in OPERANDS:
                user.replace_input_with(copy, copy.args[0])
        if not copy.users:
            graph.erase_node(copy)


def _is_copied(val: torch.Tensor) -> bool:
    """Whether neither of the last two dimensions of a tensor has its elements side by side, or one of them repeats
    them, as far as is known.
    """
    moving = [
        stride
        for extent, stride in zip(val.shape[-2:], val.stride()[-2:], strict=True)
        if not (isinstance(extent, int) and extent == 1)
    ]
    known = bool(moving) and all(isinstance(stride, int) for stride in moving)
    return known and (0 in moving or 1 not in moving)
