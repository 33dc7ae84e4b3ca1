"""Graphs at reduced extents, a few tiles each way with ragged edges, for runs on the CPU.

The first run's graph is `reduced`; `reaching` is as long as masks reach. Lines of a kernel that neither runs are for
extents that `further` has, some of them beyond those of the graph itself: a kernel's extents are run-time values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.kinds import Kind
from wsopt.frontend.roles import graph_axes
from wsopt.graph.needed import needed
from wsopt.graph.types import Graph
from wsopt.lowering.reduced_chain import chain_beyond, chain_further, chain_reaching, chain_reduced
from wsopt.lowering.reduced_graph import ALIGNMENT, alike, at_extents, shared_axes
from wsopt.program.types import Structure, column_role, row_role
from wsopt.tensors.views import Role

_SHORTEST = 8
"""Elements of the streamed axis in the last K-block where a tail of 16 is too short for a multiple of 16."""

_BATCHES = 2


def reduced(graph: Graph, s: Structure, k_iterations: int, *, longer: bool = False) -> Graph:
    """The graph with every tiled axis cut to a few tiles of `s`, and the streamed one to `k_iterations` K-blocks.

    No axis is made longer than it is, but the streamed one of products where that is asked for. What no output needs
    is left out. Raises InternalError if that gives no graph.
    """
    axes = graph_axes(needed(graph))
    if axes.kind is Kind.CHAIN:
        return chain_reduced(axes, s, k_iterations)
    if axes.kind is Kind.ROWS:
        return at_extents(axes, _row_extents(axes, s, k_iterations))
    return at_extents(axes, _product_extents(axes, s, k_iterations, longer=longer))


def reaching(graph: Graph, s: Structure, k_iterations: int) -> Graph | None:
    """The graph at reduced extents, but with sequences long enough that each mask has masked and unmasked elements.

    None where the few tiles of `reduced` are as long, and where a mask reaches too far to be executed.
    """
    axes = graph_axes(needed(graph))
    return chain_reaching(axes, s, k_iterations) if axes.kind is Kind.CHAIN else None


def further(graph: Graph, s: Structure, k_iterations: int) -> Iterator[Graph]:
    """Graphs at other extents, for lines that have not run at those of `reduced`; `k_iterations` K-blocks are enough
    for every pass of a loop. Short ones come first.
    """
    axes = graph_axes(needed(graph))
    if axes.kind is Kind.CHAIN:
        yield from chain_further(axes, s, k_iterations)
    elif axes.kind is not Kind.ROWS:
        yield reduced(graph, s, k_iterations, longer=True)


def beyond(graph: Graph, s: Structure) -> Graph | None:
    """A graph as long as masks reach that is too long to be executed whole; None where `further` goes as far."""
    axes = graph_axes(needed(graph))
    return chain_beyond(axes, s) if axes.kind is Kind.CHAIN else None


def _target(role: Role, s: Structure, k_iterations: int) -> int:
    """About two and a half tiles each way, and enough K-blocks to go round the ring."""
    if role is row_role(s.swap):
        extent = 2 * s.tile_rows + s.rows // 2
    elif role is column_role(s.swap):
        extent = 2 * s.columns + s.columns // 4
    elif role is Role.STREAM:
        rest = (s.tail or s.depth) * 3 // 4 // ALIGNMENT * ALIGNMENT
        return (k_iterations - 1) * s.depth + (rest or _SHORTEST)
    else:
        return _BATCHES
    return -(-extent // ALIGNMENT) * ALIGNMENT + ALIGNMENT // 2 * (role is row_role(s.swap) and not s.swap)


# --- products -------------------------------------------------------------------------------------------


def _product_extents(axes: Axes, s: Structure, k_iterations: int, *, longer: bool) -> dict[Dim, int]:
    """The new extent of every axis of products, if it is not shorter already; rows that are reduced stay whole.

    Batches of products that are not reduced may be merged into rows, so that all are kept, and each has a share of
    the rows.
    """
    whole = (Role.COLUMN,) if axes.kind is Kind.REDUCED else ()
    found = {}
    for axis, role in axes.roles.items():
        target = axes.extents[axis] if role in whole else _target(role, s, k_iterations)
        if axes.kind is Kind.PRODUCTS and role is Role.ROW and axes.batches:
            target = -(-target // (_BATCHES * ALIGNMENT)) * ALIGNMENT
        found[axis] = target if longer and role is Role.STREAM else min(target, axes.extents[axis])
    few = () if axes.kind is Kind.PRODUCTS else axes.batches[1:]
    return alike(found, shared_axes(axes)) | dict.fromkeys(few, 1)


# --- rows -----------------------------------------------------------------------------------------------


def _row_extents(axes: Axes, s: Structure, k_iterations: int) -> dict[Dim, int]:
    """The new extent of every axis of streamed rows: `k_iterations` tiles for each of two blocks, the last one
    ragged.

    There are as many rows as that takes, also where the graph has fewer: the kernel is called with any number. A row
    stays as long as it is: what it is divided by is part of the kernel.
    """
    tiles = _BATCHES * k_iterations
    batches = min(_BATCHES, math.prod(axes.extents[a] for a in axes.batches))
    rows = math.ceil(tiles / batches) * s.tile_rows - s.tile_rows // 2
    few = {Role.BATCH: _BATCHES, Role.ROW: 1}
    found = {a: min(axes.extents[a], few.get(role, axes.extents[a])) for a, role in axes.roles.items()}
    found |= {a: rows for a, role in axes.roles.items() if role is Role.ROW and axes.extents[a] > 1}
    return found | dict.fromkeys(axes.batches[1:], 1)
