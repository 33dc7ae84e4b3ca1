"""Values that a graph computes of constants alone: computed once, before any launch, and given as one more constant.

Joined weights, a weight times a norm's, a weight in another type: none of that depends on what a call brings. It is
folded where products read it, and what is joined is everywhere. Views of constants stay where they are, for a kernel
reads them as they lie; and so does arithmetic on a bias, which costs a kernel nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wsopt.frontend.kinds import VIEWS, is_matmul
from wsopt.graph.needed import needed
from wsopt.graph.types import Graph, Input, Node


@dataclass(frozen=True, slots=True)
class Folded:
    """A graph in two: `prepack` makes constants of constants, `main` is the rest, which has them as inputs under the
    names of prepack's outputs.
    """

    prepack: Graph
    main: Graph


def folded(graph: Graph, constants: frozenset[str] | None = None) -> Folded | None:
    """The graph with what products read of constants, or is joined of them, apart; None if that is nothing.
    `constants` are the inputs whose contents are fixed, if those are more than the graph says.
    """
    fixed = of_constants(graph, graph.constants if constants is None else constants)
    made = tuple(dict.fromkeys(_handed_on(graph, fixed)))
    if not made:
        return None
    prepack = needed(replace(graph, nodes=tuple(fixed.values()), outputs=made, doc=""))
    rest = tuple(node for node in graph.nodes if node.name not in made)
    packed = tuple(Input(name, graph.type_of(name), constant=True) for name in made)
    return Folded(prepack, needed(replace(graph, inputs=(*graph.inputs, *packed), nodes=rest)))


def of_constants(graph: Graph, constants: frozenset[str]) -> dict[str, Node]:
    """The nodes that depend on constants, and on nothing else that a call brings, by name."""
    known = set(constants)
    found: dict[str, Node] = {}
    for node in graph.nodes:
        if node.tensors and all(name in known for name in node.tensors):
            known.add(node.name)
            found[node.name] = node
    return found


def _handed_on(graph: Graph, fixed: dict[str, Node]) -> list[str]:
    """What products, and whoever else wants tensors that are joined, read of these nodes: of views what is below."""
    found = []
    for node in graph.nodes:
        for name in () if node.name in fixed else node.tensors:
            below = _below(name, fixed)
            if below in fixed and (is_matmul(node) or fixed[below].op == "concat"):
                found.append(below)
    return found


def _below(name: str, fixed: dict[str, Node]) -> str:
    """The tensor that a constant is a view of: the result of a node that computes or joins, or an input."""
    while name in fixed and fixed[name].op in VIEWS:
        name = fixed[name].tensors[0]
    return name
