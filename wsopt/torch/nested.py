"""Graphs within a graph: the branches of a condition, the body of a loop, a region that is compiled once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

_NAMES = ("cond", "while_loop", "invoke_subgraph")
CALLING = {getattr(torch.ops.higher_order, name, None) for name in _NAMES} - {None}
"""Operations that run graphs as they are. What others, such as `flex_attention`, are given they make kernels of."""


def nested_graphs(module: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """The graphs that a graph's operations run, each once, the innermost first."""
    found: dict[int, fx.GraphModule] = {}
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in CALLING:
            for one in node.all_input_nodes:
                held = getattr(module, str(one.target), None) if one.op == "get_attr" else None
                if isinstance(held, fx.GraphModule):
                    found[id(held)] = held
    for held in found.values():
        yield from nested_graphs(held)
        yield held


def graphs_of(module: fx.GraphModule) -> list[fx.GraphModule]:
    """A graph from Dynamo and all graphs within it, whatever runs them."""
    return [one for one in module.modules() if isinstance(one, fx.GraphModule)]
