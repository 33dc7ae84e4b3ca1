"""What a graph computes of weights alone, computed while a model is read: one more constant in their place.

A convolution's weight whose channels come last, or a weight in another type: none of that depends on what a call
brings, and each call would do it again. Weights that a kernel reads as they lie keep their names and their contents,
and so do those of fewer bits or elements than what is computed of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wsopt.frontend.kinds import VIEWS
from wsopt.frontend.names import free_name, names_of
from wsopt.graph.needed import needed
from wsopt.graph.reference import evaluate
from wsopt.graph.types import Graph, Input, Node
from wsopt.importers.model import Array, Imported
from wsopt.partition.constants import of_constants


def packed(found: Imported) -> Imported:
    """A model's graph with what depends on weights alone as constants of its own, named for the weight."""
    graph = found.graph
    fixed = of_constants(graph, graph.constants)
    made = {name: _sources(name, fixed) for name in dict.fromkeys(_handed_on(graph, fixed))}
    if not made:
        return found
    before = needed(replace(graph, nodes=tuple(fixed.values()), outputs=tuple(made)))
    taken = names_of(graph)
    names = {name: free_name(f"{of[0]}_packed", taken) for name, of in made.items()}
    given = tuple(Input(new, graph.type_of(name), constant=True) for name, new in names.items())
    rest = tuple(_reading(node, names) for node in graph.nodes if node.name not in made)
    main = needed(replace(graph, inputs=(*graph.inputs, *given), nodes=rest))
    kept = {one.name for one in main.inputs}
    origins = {name: of for name, of in found.origins.items() if name in kept}
    origins |= {names[name]: ", ".join(found.origins[one] for one in of) for name, of in made.items()}

    def contents() -> dict[str, Array]:
        own = found.contents()
        computed = evaluate(before, {one.name: own[one.name] for one in before.inputs})
        return {name: own[name] for name in own if name in kept} | {
            names[name]: array for name, array in computed.items()
        }

    return Imported(main, origins, contents)


def _handed_on(graph: Graph, fixed: dict[str, Node]) -> Iterator[str]:
    """Those of these nodes that others read and that are worth to be computed before."""
    for node in graph.nodes:
        for name in () if node.name in fixed else node.tensors:
            if name in fixed and not _lies_so(name, fixed) and not _grows(graph, name, fixed):
                yield name


def _grows(graph: Graph, name: str, fixed: dict[str, Node]) -> bool:
    """Whether some node that it depends on makes more bytes than it reads, other than zeros around them."""
    if name not in fixed:
        return False
    node = fixed[name]
    read = sum(graph.type_of(one).nbytes for one in node.tensors)
    own = node.op != "pad" and node.type.nbytes > read
    return own or any(_grows(graph, one, fixed) for one in node.tensors)


def _lies_so(name: str, fixed: dict[str, Node]) -> bool:
    """Whether a kernel reads it where an input lies: a view, but for one of what was turned."""
    reshaped = False
    while name in fixed:
        node = fixed[name]
        if node.op not in VIEWS or (node.op == "transpose" and reshaped):
            return False
        reshaped |= node.op == "reshape"
        name = node.tensors[0]
    return True


def _sources(name: str, fixed: dict[str, Node]) -> list[str]:
    """The inputs that a node depends on, in the order in which it reads them."""
    if name not in fixed:
        return [name]
    return list(dict.fromkeys(of for one in fixed[name].tensors for of in _sources(one, fixed)))


def _reading(node: Node, names: dict[str, str]) -> Node:
    """A node that reads these tensors under other names."""
    return replace(
        node, inputs=tuple(names.get(one, one) if isinstance(one, str) else one for one in node.inputs)
    )
