"""Views that an FX graph tells by strides, told by shape where they are nothing else.

Decompositions tell some views so, as of what a norm of groups of channels has for each channel. By shape our graphs
have them, and Inductor need not know how the tensor lies that they are of.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from wsopt.graph.types import row_major_strides
from wsopt.torch.lying import is_made_here
from wsopt.torch.symbols import Symbols, symbols_of
from wsopt.torch.untaken import Untaken

aten = torch.ops.aten


def tell_by_shape(graph: fx.Graph) -> None:
    """Have views by strides be views by shape where they are of whole tensors that lie densely and in order."""
    symbols: Symbols | None = None
    for node in graph.find_nodes(op="call_function", target=aten.as_strided.default):
        symbols = symbols or symbols_of(graph)
        if _is_by_shape(symbols, node):
            node.target = aten.view.default
            node.args, node.kwargs = node.args[:2], {}


def _is_by_shape(symbols: Symbols, node: fx.Node) -> bool:
    """Whether a view by strides is of the whole tensor, element by element, at every call: one of an input that says
    where it begins may not, as inputs may begin elsewhere in their memory.
    """
    source = node.args[0]
    assert isinstance(source, fx.Node), "a view is of a tensor"
    whole, view = source.meta["val"], node.meta["val"]
    offset = node.args[3] if len(node.args) > 3 else node.kwargs.get("storage_offset")
    try:
        shapes = symbols.shape(whole), symbols.shape(view)
    except Untaken:
        return False
    lie = (symbols.strides(whole), symbols.strides(view)) == tuple(map(row_major_strides, shapes))
    told = isinstance(offset, int) and offset == _offset(whole) and is_made_here(source)
    begins = offset is None or told
    return lie and begins and math.prod(shapes[0]) == math.prod(shapes[1])


def _offset(tensor: torch.Tensor) -> object:
    """Where a tensor begins in its memory, in elements; None where that changes from call to call."""
    found = tensor.storage_offset()
    return found if isinstance(found, int) else None
