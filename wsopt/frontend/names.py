"""Names of nodes that are written into a graph beside those that it has."""

from __future__ import annotations

import itertools

from wsopt.graph.types import Graph


def names_of(graph: Graph) -> set[str]:
    """The names that are taken in a graph."""
    return {*(one.name for one in graph.inputs), *(one.name for one in graph.nodes)}


def free_name(wish: str, taken: set[str]) -> str:
    """The name that is wished for, or where it is taken that with a number behind; it is taken from then on."""
    numbered = (f"{wish}_{number}" for number in itertools.count(1))
    name = next(one for one in itertools.chain((wish,), numbered) if one not in taken)
    taken.add(name)
    return name
