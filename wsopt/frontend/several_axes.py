"""Reductions over several axes beside each other, written as one over the axis that a reshape makes of them.

A graph reduces axis by axis, and a kernel holds one axis whole. The mean over the rows and columns of an image is the
mean over its elements: in a tensor that lies densely they are one axis, and a reshape costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from wsopt.frontend.derived import derived
from wsopt.frontend.kinds import is_matmul
from wsopt.frontend.names import free_name, names_of
from wsopt.graph.needed import needed
from wsopt.graph.types import Graph, Node, TensorType

_AGAIN = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "logsumexp")
"""Reductions that, of their own results along another axis, give what they give of both axes at once."""


def with_joined_reductions(graph: Graph) -> Graph:
    """The graph with each reduction of a reduction's result as one, where their axes are neighbours; itself where
    there are none, and beside products, whose results no kernel reduces in another shape.
    """
    if any(map(is_matmul, graph.nodes)):
        return graph
    for node in reversed(graph.nodes):  # the last one of several first, which has all of their axes
        source, axes = _reduced(graph, node)
        if len(axes) > 1 and _are_neighbours(graph.type_of(source).shape, axes):
            made = {one.name: one for one in _joined(graph, node, source, axes)}
            nodes = (found for one in graph.nodes for found in (made.values() if one is node else (one,)))
            return with_joined_reductions(needed(replace(graph, nodes=tuple(nodes))))
    return graph


def _reduced(graph: Graph, last: Node) -> tuple[str, tuple[int, ...]]:
    """The tensor that a reduction and those alike before it, which nothing else reads, reduce, and along which axes;
    none for another node.
    """
    chain = reductions_up_to(graph, last)
    if not chain:
        return last.name, ()
    return chain[0].tensors[0], tuple(sorted(set(axes_of(graph, chain))))


def reductions_up_to(graph: Graph, last: Node) -> list[Node]:
    """A reduction behind those alike before it, which nothing else reads; none for another node."""
    if last.op not in _AGAIN:
        return []
    chain = [last]
    while (before := graph.producer(chain[0].tensors[0])) is not None and before.op == last.op:
        if before.name in graph.outputs or len(graph.consumers(before.name)) > 1:
            break
        chain.insert(0, before)
    return chain


def axes_of(graph: Graph, chain: Sequence[Node]) -> list[int]:
    """The axis of the first one's operand along which each of these reductions, one of the other, reduces."""
    left, axes = list(range(graph.type_of(chain[0].tensors[0]).rank)), list[int]()
    for node in chain:
        place = node.attr("axis", int)
        axes.append(left[place])
        if not node.attr("keepdims", bool):
            del left[place]
    return axes


def _are_neighbours(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether nothing but axes of one element is between these."""
    return all(axis in axes or shape[axis] == 1 for axis in range(axes[0], axes[-1]))


def _joined(graph: Graph, node: Node, source: str, axes: tuple[int, ...]) -> Iterator[Node]:
    """The nodes of one reduction over these axes, the last of which has the name and the type of the `node`."""
    taken, types = names_of(graph), dict[str, TensorType]()

    def type_of(name: str) -> TensorType:
        return types[name] if name in types else graph.type_of(name)

    shape, (first, *_, last) = type_of(source).shape, axes
    merged = (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
    seen = derived(free_name(f"{source}_joined", taken), "reshape", (source,), type_of, {"shape": merged})
    types[seen.name] = seen.type
    given = {"axis": first, "keepdims": node.attr("keepdims", bool)}
    whole = derived(node.name, node.op, (seen.name,), type_of, given)
    yield seen
    if whole.type == node.type:
        yield whole
        return
    whole = replace(whole, name=free_name(f"{node.name}_joined", taken))
    types[whole.name] = whole.type
    yield whole
    yield derived(node.name, "reshape", (whole.name,), type_of, {"shape": node.type.shape})
