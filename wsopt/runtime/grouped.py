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


def equal_offsets(shape: tuple[int, ...], rows: int, device: str) -> Tensor:
    """Offsets of groups that have all rows, equally many each."""
    (count,) = shape
    return (torch.arange(1, count + 1, device=device) * rows // count).to(torch.int32)


def drawn_offsets(shape: tuple[int, ...], rows: int, seed: int, generator: torch.Generator) -> Tensor:
    """Offsets to try a kernel with. Kinds take turns from seed to seed: groups of any length, with all rows; some of
    them empty, and rows that belong to none; offsets that go back and lie outside of the rows; groups of a few rows.
    """

    def drawn(first: int, last: int) -> Tensor:
        return torch.randint(first, last + 1, shape, generator=generator, device=generator.device)

    match seed % 4:
        case 0:
            found = drawn(0, rows).sort().values
            found[-1] = rows
        case 1:
            found = drawn(0, rows).sort().values // 64 * 64
        case 2:
            found = drawn(-rows, 2 * rows)
        case _:
            found = drawn(0, 7).cumsum(0)
    return found.to(torch.int32)
