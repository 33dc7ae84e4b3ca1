"""Rewrites the launcher of a kernel that reads slices, for simulations at extents that it would refuse.

A slice ends where the graph says, and the launcher takes it for all of the tensor but so many elements: at another
extent it would end elsewhere. In the simulation that is wanted.
"""

from __future__ import annotations

import re

from wsopt.graph.types import Graph


def at_extents_of(source: str, graph: Graph, other: Graph) -> str:
    """The text of a graph's kernel with a launcher that takes the sliced tensors of another graph, which differs in
    its extents; all else stays.
    """
    for own, new in zip(graph.inputs, (other.input(one.name) for one in graph.inputs), strict=True):
        shape = own.type.shape if new is None else new.type.shape
        for dim, (before, after) in enumerate(zip(own.type.shape, shape, strict=True)):
            if before != after:
                source = _check_of(own.name, dim, before).sub(rf"\g<1>{after}\g<2>{after}\g<3>", source)
    return source


def _check_of(tensor: str, dim: int, extent: int) -> re.Pattern[str]:
    """The launcher's check that a sliced dimension has the elements that it had."""
    told = rf'f"tensor {tensor}: dimension {dim} has [^"]* elements: a slice of '
    return re.compile(rf"(\.shape\[{dim}\] == ){extent}(,\s*{told}){extent}( is read)")
