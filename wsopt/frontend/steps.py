"""Slices with a step, written as one place of each so many: a reshape parts the axis, and a slice takes the place.

Every other column of a gate, or every other row of a matrix, lies where it lies, at a stride. A kernel knows strides
of axes, so that such a slice costs nothing once the step is an axis of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wsopt.frontend.derived import derived
from wsopt.frontend.names import free_name, names_of
from wsopt.graph.infer import places
from wsopt.graph.types import AttrValue, Graph, Node, Operand, TensorType


def with_steps_as_axes(graph: Graph) -> Graph:
    """The graph with each slice by whole steps written so; itself where there are none."""
    if not any(takes_whole_steps(graph, node) for node in graph.nodes):
        return graph
    taken = names_of(graph)
    nodes = (
        one
        for node in graph.nodes
        for one in (_parted(graph, node, taken) if takes_whole_steps(graph, node) else (node,))
    )
    return replace(graph, nodes=tuple(nodes))


def takes_whole_steps(graph: Graph, node: Node) -> bool:
    """Whether a slice has a step, and one place of each of so many whole steps, which begin with its axis."""
    if node.op != "slice" or node.attr("step", int) == 1:
        return False
    return whole_steps(_places(graph, node), _extent(graph, node)) is not None


def whole_steps(found: range, extent: int) -> range | None:
    """The steps that places along an axis of so many elements lie in, one in each; None where one is not whole."""
    first = found.start // found.step
    return range(first, first + len(found)) if (first + len(found)) * found.step <= extent else None


def _extent(graph: Graph, node: Node) -> int:
    return graph.type_of(node.tensors[0]).shape[node.attr("axis", int)]


def _places(graph: Graph, node: Node) -> range:
    return places(dict(node.attrs), _extent(graph, node))


def _parted(graph: Graph, node: Node, taken: set[str]) -> Iterator[Node]:
    """The nodes of such a slice, the last of which has its name."""
    (source,), along, step = node.tensors, node.attr("axis", int), node.attr("step", int)
    found = _places(graph, node)
    steps, place = whole_steps(found, _extent(graph, node)), found.start % step
    assert steps is not None, "its steps are whole"
    types = dict[str, TensorType]()

    def write(what: str, op: str, *inputs: Operand, **given: AttrValue) -> Node:
        name = free_name(f"{node.name}_{what}", taken) if what else node.name
        made = derived(name, op, inputs, lambda one: types.get(one) or graph.type_of(one), given)
        types[name] = made.type
        return made

    if len(steps) * step < _extent(graph, node):
        whole = write("whole", "slice", source, axis=along, start=steps.start * step, stop=steps.stop * step)
        yield whole
        source = whole.name
    shape = node.type.shape
    apart = write("apart", "reshape", source, shape=(*shape[:along], len(steps), step, *shape[along + 1 :]))
    yield apart
    one = write("place", "slice", apart.name, axis=along + 1, start=place, stop=place + 1)
    yield one
    yield write("", "reshape", one.name, shape=shape)
