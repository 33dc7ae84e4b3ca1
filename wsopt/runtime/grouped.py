"""Products of rows that offsets cut into groups, in torch: their reference, and offsets to measure and try them with.

The same as `graph/grouped.py` has it, for machines on which only a part of wsopt is installed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from wsopt.runtime.raw_graph import RawGraph, seen_input


def group_ends(offsets: Tensor, rows: int) -> Tensor:
    """Where the rows of each group end, which never goes back; those of the next group begin there."""
    return offsets.clamp(0, rows).cummax(0).values


def grouped_rows(graph: RawGraph) -> dict[str, int]:
    """The inputs that are offsets of groups, each with how many rows there are: the first of the shapes of inputs,
    which rows are.
    """
    found: dict[str, int] = {}
    for node in (node for node in graph.nodes if node.op == "grouped_matmul"):
        rows, _, offsets = (seen_input(graph, name) for name in node.tensors)
        if rows is not None and offsets is not None:
            found[offsets.name] = rows.shape[0]
    return found


def drawn_offsets(shape: tuple[int, ...], rows: int, generator: torch.Generator, *, equal: bool) -> Tensor:
    """Offsets of groups that have all rows together: equally many each, or drawn ones, some of which are empty."""
    (count,), device = shape, generator.device
    if equal:
        found = torch.arange(1, count + 1, device=device) * rows // count
    else:
        found = torch.randint(0, rows + 1, shape, generator=generator, device=device).sort().values
        found[-1] = rows
    return found.to(torch.int32)
