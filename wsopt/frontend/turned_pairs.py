"""Transpositions that bring pairs of neighbours apart, or together, written as one for each of the two.

Depth that becomes space, and real and imaginary parts that lie apart, are such: `[rows, 2, columns]` becomes `[rows,
columns, 2]`. A tile of which neighbours are two elements is read or stored in pieces of two. Slices of an input cost
nothing, and a kernel stores what is joined element by element as pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wsopt.frontend.derived import derived
from wsopt.frontend.kinds import VIEWS, input_path, is_pointwise
from wsopt.frontend.names import free_name, names_of
from wsopt.frontend.slices import with_sliced_inputs
from wsopt.graph.needed import needed
from wsopt.graph.types import AttrValue, Graph, Node, TensorType
from wsopt.tensors.views import PAIR


def with_turned_pairs(graph: Graph) -> Graph:
    """The graph with such transpositions written as two that are joined, where all else is computed element by
    element; itself where there are none.
    """
    found = {node.name: axis for node in graph.nodes if (axis := _pairs(graph, node)) is not None}
    counted = any(node.op == "iota" or not (is_pointwise(node) or node.op in VIEWS) for node in graph.nodes)
    if not found or counted:
        return graph
    taken = names_of(graph)
    nodes = tuple(
        one
        for node in graph.nodes
        for one in (_joined(graph, node, found[node.name], taken) if node.name in found else (node,))
    )
    made = needed(replace(graph, nodes=nodes))
    seen = with_sliced_inputs(made)
    computed = any(node.op == "slice" and input_path(seen, node.name) is None for node in seen.nodes)
    return graph if computed else made


def _pairs(graph: Graph, node: Node) -> int | None:
    """The axis of two elements that a transposition puts behind the neighbours of its operand, or takes from behind
    those of its result; None for others.
    """
    if node.op != "transpose":
        return None
    shape, perm = graph.type_of(node.tensors[0]).shape, node.attr("perm", tuple)
    before, behind = ([axis for axis in order if shape[axis] > 1] for order in (range(len(shape)), perm))
    if len(before) < PAIR:
        return None
    for one, other in ((before, behind), (behind, before)):
        if one[-1] == other[-2] and shape[other[-1]] == PAIR < shape[one[-1]]:
            return int(other[-1])
    return None


def _joined(graph: Graph, node: Node, axis: int, taken: set[str]) -> Iterator[Node]:
    """The nodes of a transposition of both halves along an axis, the last of which has its name."""
    (source,), perm = node.tensors, node.attr("perm", tuple)
    types = dict[str, TensorType]()

    def write(name: str, op: str, *inputs: str, **given: AttrValue) -> Node:
        made = derived(name, op, inputs, lambda one: types.get(one) or graph.type_of(one), given)
        types[name] = made.type
        return made

    parts = []
    for place in range(PAIR):
        half = write(
            free_name(f"{node.name}_half", taken), "slice", source, axis=axis, start=place, stop=place + 1
        )
        yield half
        part = write(free_name(f"{node.name}_part", taken), "transpose", half.name, perm=perm)
        yield part
        parts.append(part.name)
    yield write(node.name, "concat", *parts, axis=perm.index(axis))
