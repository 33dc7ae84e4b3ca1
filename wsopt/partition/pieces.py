"""A part of a graph as a graph of its own, which one kernel computes."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from wsopt.frontend.kinds import producer
from wsopt.graph.types import Graph, Input, Node, row_major_strides
from wsopt.partition.between import maker_of, room, room_of
from wsopt.partition.web import Web, bits, members, union

_FREE_CHOICES = 4
"""Tensors of two forms at most of which every combination is a piece."""


@dataclass(frozen=True)
class Piece:
    """The `solid` nodes of a web that a kernel computes, and the `graph` that it is made of: its inputs are inputs of
    the whole graph or results of other pieces, its outputs what others need, all under their names in the whole.
    """

    solid: int
    graph: Graph

    @property
    def nodes(self) -> frozenset[str]:
        """The names of all nodes that it computes, those of views and of indices included."""
        return frozenset(node.name for node in self.graph.nodes)

    @cached_property
    def key(self) -> str:
        """Equal for pieces that one kernel computes: what is left of the graph without names."""
        return hashlib.sha256(_told(self.graph).encode()).hexdigest()


def _told(graph: Graph) -> str:
    """All of a graph but names, in words: tensors by number, and scalars as they are, for 1 is not 1.0."""
    number = {name: f"t{number}" for number, name in enumerate(tensors(graph))}
    inputs = (f"{one.type} {one.constant} {one.strides}" for one in graph.inputs)
    nodes = (
        f"{node.op} {[number[one] if isinstance(one, str) else one for one in node.inputs]} {node.attrs}"
        for node in graph.nodes
    )
    return "\n".join((*inputs, *nodes, f"{[number[one] for one in graph.outputs]} {graph.deterministic}"))


def tensors(graph: Graph) -> tuple[str, ...]:
    """The names of a graph's tensors: inputs, then nodes."""
    return (*(one.name for one in graph.inputs), *(node.name for node in graph.nodes))


def pieces_of(web: Web, solid: int) -> Iterator[Piece]:
    """The pieces that compute a set of solid nodes, which differ in the forms of what they read and hand on: first
    everything as it is. Where many tensors have two forms, one at most has the other one, or all have.
    """
    choices = [n for n in members(_read(web, solid) | _handed_to_others(web, solid)) if len(web.forms[n]) > 1]
    if len(choices) <= _FREE_CHOICES:
        sets = [bits(chosen) for chosen in _subsets(choices)]
    else:
        sets = [0, bits(choices), *(1 << number for number in choices)]
    for viewed in dict.fromkeys(sets):
        found = _piece(web, solid, viewed)
        if all(_can_write(web, found, name) for name in found.graph.outputs):
            yield found


def _can_write(web: Web, piece: Piece, name: str) -> bool:
    """Whether a piece can write a tensor as it lies between kernels: rows that lie apart only with what makes them,
    or as a copy.
    """
    graph = web.graph
    return not web.pitch(name) or not piece.nodes.isdisjoint((maker_of(graph, name), room_of(graph, name)))


def bare_pieces(web: Web) -> tuple[Piece, ...]:
    """Each solid node as a piece of its own, in its first form, for somebody else to compute."""
    return tuple(_piece(web, 1 << number, 0) for number in range(len(web.solid)))


def _subsets(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(
        itertools.combinations(numbers, count) for count in range(len(numbers) + 1)
    )


def _read(web: Web, solid: int) -> int:
    """Nodes outside whose results these read."""
    return union(web.reads[n] for n in members(solid)) & ~solid


def _handed_to_others(web: Web, solid: int) -> int:
    """Those of these whose results nodes outside read."""
    return bits(n for n in members(solid) if web.readers[n] & ~solid)


def _piece(web: Web, solid: int, viewed: int) -> Piece:
    """The piece that computes these solid nodes, with the free nodes between what it reads and what it hands on."""

    def form(number: int) -> str:
        return web.forms[number][-1 if viewed >> number & 1 else 0]

    outside = {form(n) for n in members(_read(web, solid))}
    needed_outside = _handed_to_others(web, solid)
    handed = (
        name
        for n in members(web.handed_on(solid))
        for name in (*web.results.get(n, ()), *([form(n)] if needed_outside >> n & 1 else ()))
    )
    outputs = tuple(dict.fromkeys(handed))
    wanted = {web.solid[n].name for n in members(solid)} | set(outputs)
    left = [*wanted]
    while left:
        node = producer(web.graph, left.pop())
        more = {name for name in node.tensors if name in web.free and name not in outside} - wanted
        wanted |= more
        left += more
    nodes = tuple(web.graph.nodes[place] for place in sorted(web.places[name] for name in wanted))
    name = f"{web.graph.name}_{outputs[-1] if outputs else 'nothing'}"
    graph = Graph(name, "", _inputs(web, nodes), nodes, outputs, web.graph.deterministic)
    return Piece(solid, graph)


def _between(web: Web, name: str) -> Input:
    """A tensor that another kernel makes, as it lies."""
    type_, apart = web.graph.type_of(name), web.pitch(name)
    return Input(name, type_, strides=row_major_strides(room(type_, apart)) if apart else None)


def _inputs(web: Web, nodes: tuple[Node, ...]) -> tuple[Input, ...]:
    """What these nodes read that none of them computes. Where all of that is constant none is said to be: a kernel
    that waits for nothing could write where the kernel before it still reads.
    """
    own = {node.name for node in nodes}
    read = dict.fromkeys(name for node in nodes for name in node.tensors if name not in own)
    found = tuple(web.graph.input(name) or _between(web, name) for name in read)
    constant = all(one.constant for one in found)
    return tuple(replace(one, constant=False) for one in found) if constant else found
