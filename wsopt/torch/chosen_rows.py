"""Rows of a table that one tensor of indices names (`table[indices]`), as the lookup of an embedding.

An index may count from the end, which a lookup does not know: it is made one from the front before. Where no piece
has the lookup, it is put together again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from wsopt.torch.lower import MADE
from wsopt.torch.splice import Maker

aten = torch.ops.aten

_CHOSEN = "wsopt_rows"
"""The entry in the `meta` of a lookup that was made here."""
_KINDS = (torch.int64, torch.int32)


def take_rows_apart(graph: fx.Graph) -> None:
    """Have rows that one tensor of indices names be looked up."""
    for node in graph.find_nodes(op="call_function", target=aten.index.Tensor):
        if not _is_of_rows(node):
            continue
        table, (indices,) = node.args
        rows, *rest = table.meta["val"].shape
        made = Maker(graph, node.prev)
        flat = table if len(rest) == 1 else made.call(aten.view.default, table, [rows, -1])
        # Minus one is the last row, and what is beyond the table names no row either way.
        counted = made.call(aten.remainder.Scalar, indices, rows)
        counted.meta[MADE] = True
        found: Any = made.call(aten.embedding.default, flat, counted)
        found.meta[_CHOSEN] = True
        if len(rest) != 1:
            found = made.call(aten.view.default, found, [*node.meta["val"].shape])
        node.replace_all_uses_with(found)
        graph.erase_node(node)


def put_rows_together(graph: fx.Graph) -> None:
    """Have lookups that no piece has be chosen rows again."""
    for node in graph.find_nodes(op="call_function", target=aten.embedding.default):
        if not node.meta.pop(_CHOSEN, False):
            continue
        flat, counted = node.args
        found = Maker(graph, node).call(aten.index.Tensor, flat, [counted.args[0]])
        node.replace_all_uses_with(found)
        graph.erase_node(node)
        if not counted.users:
            graph.erase_node(counted)


def _is_of_rows(node: fx.Node) -> bool:
    """Whether one tensor of indices names places along the first dimension of a table that lies densely, of a size
    that is known and not nothing.
    """
    table, indices = node.args[0], node.args[1]
    if len(indices) != 1 or not isinstance(indices[0], fx.Node):
        return False
    val, places = table.meta["val"], indices[0].meta["val"]
    known = all(isinstance(extent, int) for extent in (*val.shape, *places.shape))
    kinds = places.dtype in _KINDS and val.dtype.is_floating_point
    return (
        known and kinds and val.dim() > 1 and 0 not in val.shape and val.is_contiguous() and places.dim() > 0
    )
