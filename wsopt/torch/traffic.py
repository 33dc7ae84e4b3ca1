"""Bytes that operations of an FX graph move, and copies of elements that repeat, which kernels do without."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch import fx

from wsopt.torch.lower import Lowered

_UNSAID_VIEWS = (operator.getitem, torch.ops.aten._unsafe_view.default)
"""Views whose schemas say nothing of it."""

REPEATED = "wsopt_repeated"
"""The entry in the `meta` of an FX node that does again what another does, and so moves nothing more."""


def fx_bytes(graph: fx.Graph) -> dict[str, int]:
    """Bytes that each operation of an FX graph reads and writes if it is a kernel of its own; views move none, and
    neither does what is repeated.
    """
    found = {}
    for node in graph.nodes:
        if node.op == "call_function" and not is_view(node) and REPEATED not in node.meta:
            found[node.name] = sum(map(nbytes_of, (node, *node.all_input_nodes)))
    return found


def copied_bytes(lowered: Lowered, calls: Iterable[fx.Node]) -> int:
    """Bytes that copies move which repeat elements for FX nodes: of keys for each head of a group, for instance. A
    kernel in the nodes' place reads such elements as they were.
    """
    waiting, seen, total = [source for call in calls for source in call.all_input_nodes], set[fx.Node](), 0
    while waiting:
        node = waiting.pop()
        if node in seen or not lowered.through(node):
            continue
        seen.add(node)
        waiting += node.all_input_nodes
        value = lowered.values[node.name]
        if not (is_view(node) or isinstance(value, tuple) or value.whole):
            total += sum(map(nbytes_of, (node, *node.all_input_nodes)))
    return total


def is_view(node: fx.Node) -> bool:
    """Whether an FX node is a tensor that its first argument has, or a view of it."""
    return node.target in _UNSAID_VIEWS or _aliases(node.target)


@cache
def _aliases(target: Any) -> bool:
    """Whether an operation gives a tensor that an argument has; found once."""
    schema = getattr(target, "_schema", None)
    return schema is not None and any(one.alias_info is not None for one in schema.arguments)


def nbytes_of(node: fx.Node) -> int:
    """Bytes of the tensors that an FX node is."""
    val = node.meta.get("val")
    tensors = [x for x in (val if isinstance(val, tuple | list) else (val,)) if isinstance(x, torch.Tensor)]
    return sum(now(x.numel()) * x.element_size() for x in tensors)


def now(number: int | torch.SymInt) -> int:
    """A number as it is while a graph is compiled; 0 where only its contents tell."""
    if isinstance(number, int):
        return number
    return number.node.hint if number.node.has_hint() else 0
