"""Inputs of i32 that a graph compares with indices, such as lengths and offsets, or takes places from; and values to
try them with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wsopt.graph.types import DType, Graph

Array = npt.NDArray[Any]

_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_WHOLE = ("add", "sub", "mul", "neg", "abs", "maximum", "minimum", "cast", "reshape", "transpose")

_SEEN = ("reshape", "transpose", "slice", "pad")

KINDS = 9
"""How many kinds of values `lengths_to_try` has; as many seeds show all to every element."""


def compared_extents(graph: Graph) -> dict[str, int]:
    """The inputs of i32 that are compared with indices, each with the largest extent that those count along.

    They and the indices may be added to others, and be seen through views, before they are compared.
    """
    found: dict[str, int] = {}
    for node in graph.nodes:
        if node.op not in _COMPARISONS:
            continue
        inputs, extent = _compared(graph, node.tensors)
        for name in inputs if extent else ():
            found[name] = max(found.get(name, 0), extent)
    return found


def gathered_extents(graph: Graph) -> dict[str, int]:
    """The inputs that `gather` and `scatter_add` take their indices from, each with the least extent that they choose
    from.
    """
    found: dict[str, int] = {}
    for node in graph.nodes:
        if node.op in ("gather", "scatter_add"):
            table, name, *_ = node.tensors
            while (view := graph.producer(name)) is not None and view.op in _SEEN:
                name = view.tensors[0]
            extent = graph.type_of(table).shape[node.attr("axis", int) if node.op == "gather" else 0]
            found[name] = min(found.get(name, extent), extent)
    return found


def indices_to_try(shape: tuple[int, ...], extent: int, rng: np.random.Generator) -> Array:
    """Indices of an axis of so many elements, as an array of i32; an eighth of them lie outside."""
    within = rng.integers(0, extent, shape)
    outside = rng.choice(np.array((-1, extent, 2**31 - 1, -(2**31))), shape)
    return np.where(rng.random(shape) < 1 / 8, outside, within).astype(np.int32)


def _compared(graph: Graph, names: tuple[str, ...]) -> tuple[set[str], int]:
    """The inputs of i32 that tensors are made of element by element, and the largest extent of their indices."""
    inputs, extent, seen, left = set[str](), 0, set[str](), list(names)
    while left:
        name = left.pop()
        node = graph.producer(name)
        if name in seen:
            continue
        seen.add(name)
        if node is None:
            inputs |= {name} if graph.type_of(name).dtype is DType.I32 else set()
        elif node.op == "iota":
            extent = max(extent, node.type.shape[node.attr("axis", int)])
        elif node.op in _WHOLE:
            left.extend(node.tensors)
    return inputs, extent


def lengths_to_try(shape: tuple[int, ...], extent: int, seed: int, rng: np.random.Generator) -> Array:
    """Values that are compared with an index below `extent`, as an array of i32.

    Kinds take turns, over the elements and from seed to seed: within the axis, its end, zero, beyond the end,
    negative, the largest and the least number of the type.
    """
    size = int(np.prod(shape))
    within, beyond = rng.integers(1, extent + 1, size), rng.integers(extent + 1, 2 * extent + 2, size)
    ends = (np.full(size, value) for value in (extent, 0, 2**31 - 1, -(2**31)))
    full, zero, largest, least = ends
    kinds = np.stack((within, full, zero, within, beyond, -within, within, largest, least))
    assert len(kinds) == KINDS
    chosen = kinds[(seed + np.arange(size)) % KINDS, np.arange(size)]
    return chosen.astype(np.int32).reshape(shape)
