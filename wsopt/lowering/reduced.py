"""Graphs at reduced extents, a few tiles each way with ragged edges, for runs on the CPU.

The first run's graph is `reduced`; `reaching` is as long as masks reach. Lines of a kernel that neither runs are for
extents that `further` has, some of them beyond those of the graph itself: a kernel's extents are run-time values.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.frontend.kinds import Kind
from wsopt.frontend.roles import graph_axes
from wsopt.graph.needed import needed
from wsopt.graph.types import Graph
from wsopt.lowering.reduced_chains import extents_beyond, few_extents, further_extents, reaching_extents
from wsopt.lowering.reduced_graph import at_extents
from wsopt.lowering.reduced_products import product_extents
from wsopt.lowering.reduced_rows import element_extents, row_extents
from wsopt.program.types import Structure


def reduced(graph: Graph, s: Structure, k_iterations: int, *, longer: bool = False) -> Graph:
    """The graph with every tiled axis cut to a few tiles of `s`, and the streamed one to `k_iterations` K-blocks.

    No axis is made longer than it is, but the streamed one of products where that is asked for. What no output needs
    is left out. Raises InternalError if that gives no graph.
    """
    axes = graph_axes(needed(graph))
    if axes.kind is Kind.CHAIN:
        extents = few_extents(axes, s, k_iterations)
    elif axes.kind in (Kind.ROWS, Kind.LONG_ROWS):
        extents = row_extents(axes, s, k_iterations)
    elif axes.kind is Kind.ELEMENTWISE:
        extents = element_extents(axes, s, k_iterations)
    else:
        extents = product_extents(axes, s, k_iterations, longer=longer)
    return at_extents(axes, extents)


def reaching(graph: Graph, s: Structure, k_iterations: int) -> Graph | None:
    """The graph at reduced extents, but with sequences long enough that each mask has masked and unmasked elements.

    None where the few tiles of `reduced` are as long, and where a mask reaches too far to be executed.
    """
    axes = graph_axes(needed(graph))
    extents = reaching_extents(axes, s, k_iterations) if axes.kind is Kind.CHAIN else None
    return None if extents is None else at_extents(axes, extents)


def further(graph: Graph, s: Structure, k_iterations: int) -> Iterator[Graph]:
    """Graphs at other extents, for lines that have not run at those of `reduced`; `k_iterations` K-blocks are enough
    for every pass of a loop. Short ones come first.

    Where a number may stand for minus infinity since every row keeps an element, no row is empty.
    """
    axes = graph_axes(needed(graph))
    if axes.kind is Kind.CHAIN:
        yield from (at_extents(axes, extents) for extents in further_extents(axes, s, k_iterations))
    elif axes.kind not in (Kind.ROWS, Kind.LONG_ROWS, Kind.ELEMENTWISE):
        yield reduced(graph, s, k_iterations, longer=True)


def beyond(graph: Graph, s: Structure) -> Graph | None:
    """A graph as long as masks reach that is too long to be executed whole; None where `further` goes as far."""
    axes = graph_axes(needed(graph))
    extents = extents_beyond(axes, s) if axes.kind is Kind.CHAIN else None
    return None if extents is None else at_extents(axes, extents)
