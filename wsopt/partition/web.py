"""What depends on what in a graph, as sets of bits: which nodes have results that may lie in memory between kernels.

A node's result is *free* where no kernel has to hand it to another: views of a tensor, unless a kernel may copy what
they see, what is computed from indices alone, and elements that several nodes read and that are less to make again
than to write and read, such as inputs times a factor of each row. Whoever needs such a result makes it again. The
others are *solid*; a kernel computes some of them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from wsopt.frontend.kinds import MOVES, VIEWS, feeding, is_matmul, is_pointwise, producer, reduces_rows
from wsopt.graph.types import Graph, Node
from wsopt.partition.between import makes_room, pitch, room_of
from wsopt.partition.turned_operands import is_turned_operand
from wsopt.partition.turned_scales import is_turned_copy


@dataclass(frozen=True)
class Web:
    """A graph of which every node is needed, with its solid nodes. A set of solid nodes is a number whose bit `n`
    stands for the node `solid[n]`. With `moves`, views after which elements lie elsewhere are solid as well: a kernel
    may copy a tensor for those that read it so.
    """

    graph: Graph
    moves: bool = False

    @cached_property
    def free(self) -> frozenset[str]:
        """Nodes that whoever needs them makes again."""
        found: set[str] = set()
        indices: set[str] = set()
        for node in self.graph.nodes:
            if all(name in indices for name in node.tensors):
                indices.add(node.name)
            if node.name in indices or (node.op in VIEWS and not self._is_copied(node)):
                found.add(node.name)
            found |= self._cheaper_again(node, found)
        return frozenset(found)

    def _is_copied(self, node: Node) -> bool:
        """Whether a kernel may copy what a view sees: a product's operand for room behind its rows, or as the tensor
        core reads its type; scales that lie turned, of which what is seen then is a view again; or any that moves
        elements.
        """
        if room_of(self.graph, node.name) is not None:
            return False
        if is_turned_copy(self.graph, node) or is_turned_operand(self.graph, node):
            return True
        return makes_room(self.graph, node) or (self.moves and node.op in MOVES)

    def _cheaper_again(self, node: Node, free: set[str]) -> set[str]:
        """An elementwise result that moves fewer bytes if those that read it compute it again than if one kernel
        writes it for the others, with the elements that are made for it alone; what it is made of is written as well
        then, if that is no input. Nothing for other nodes. `free` are the nodes before it that are free.
        """
        readers = [*self._read_by(node.name)]
        others = len(readers) - 1
        if others < 1 or not is_pointwise(node) or node.name in self.graph.outputs:
            return set()
        alone = node.name in self._reduced and not any(map(is_matmul, readers))
        again, found, left = {node.name}, set[str](), [*node.tensors]
        while left:
            name = left.pop()
            if name in free or (alone and self._is_of_one(name)):
                again.add(name)
                left += producer(self.graph, name).tensors
            else:
                found.add(name)
        read = sum(self.graph.type_of(name).nbytes for name in found)
        written = sum(self.graph.type_of(name).nbytes for name in found if self.graph.input(name) is None)
        return again if others * read + written < (others + 1) * node.type.nbytes else set()

    def _is_of_one(self, name: str) -> bool:
        """Whether a tensor is computed element by element for one node alone. That does not count where products read
        what is made of it, for an operand of several is better written once than computed in the loop of each; nor
        where all that reads it may be one kernel, as parts grow along what is written.
        """
        node = self.graph.producer(name)
        alone = node is not None and is_pointwise(node) and name not in self.graph.outputs
        return alone and len([*self._read_by(name)]) == 1

    @cached_property
    def _reduced(self) -> frozenset[str]:
        """The tensors that something which is reduced depends on."""
        nodes = self.graph.nodes
        return feeding(nodes, (name for node in nodes if reduces_rows(node) for name in node.tensors))

    def _read_by(self, name: str) -> Iterator[Node]:
        """The nodes that read a tensor, as it is or through views that no kernel copies."""
        for node in self.graph.consumers(name):
            if node.op in VIEWS and not self._is_copied(node):
                yield from self._read_by(node.name)
            else:
                yield node

    @cached_property
    def solid(self) -> tuple[Node, ...]:
        """The other nodes, in the graph's order."""
        return tuple(node for node in self.graph.nodes if node.name not in self.free)

    @cached_property
    def number(self) -> dict[str, int]:
        """The numbers of solid nodes, by name."""
        return {node.name: number for number, node in enumerate(self.solid)}

    @cached_property
    def places(self) -> dict[str, int]:
        """The places of all nodes in the graph's order, by name."""
        return {node.name: place for place, node in enumerate(self.graph.nodes)}

    def below(self, names: Iterable[str]) -> Iterator[str]:
        """The solid nodes and inputs of which these tensors are made by free nodes alone; some more than once."""
        for name in names:
            if name in self.free:
                node = self.graph.producer(name)
                assert node is not None, "a free node is a node"
                yield from self.below(node.tensors)
            else:
                yield name

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """The solid nodes whose results each solid node reads, as they are or through views."""
        return tuple(
            bits(self.number[name] for name in self.below(node.tensors) if name in self.number)
            for node in self.solid
        )

    @cached_property
    def readers(self) -> tuple[int, ...]:
        """The solid nodes that read each solid node's result."""
        found = [0] * len(self.solid)
        for number, read in enumerate(self.reads):
            for other in members(read):
                found[other] |= 1 << number
        return tuple(found)

    @cached_property
    def before(self) -> tuple[int, ...]:
        """All solid nodes that each depends on."""
        found: list[int] = []
        for read in self.reads:
            found.append(read | union(found[other] for other in members(read)))
        return tuple(found)

    @cached_property
    def after(self) -> tuple[int, ...]:
        """All solid nodes that depend on each."""
        found = [0] * len(self.solid)
        for number, before in enumerate(self.before):
            for other in members(before):
                found[other] |= 1 << number
        return tuple(found)

    @cached_property
    def results(self) -> dict[int, tuple[str, ...]]:
        """The graph's outputs by the solid node that they are or are views of. Outputs that no node computes are
        missing.
        """
        found: dict[int, tuple[str, ...]] = {}
        for name in self.graph.outputs:
            for source in dict.fromkeys(self.below([name])):
                if source in self.number:
                    number = self.number[source]
                    found[number] = (*found.get(number, ()), name)
        return found

    @cached_property
    def forms(self) -> tuple[tuple[str, ...], ...]:
        """The tensors as which each solid node's result may lie in memory: as it is, or as the view of it through
        which all that read it do so, where that is one.
        """
        return tuple(tuple(dict.fromkeys((node.name, self._seen_as(node.name)))) for node in self.solid)

    def _seen_as(self, name: str) -> str:
        """The last view of a tensor through which all that read it do so."""
        readers = self.graph.consumers(name)
        if room_of(self.graph, name) is not None:  # as which it is copied
            return name
        if len(readers) != 1 or readers[0].op not in VIEWS or name in self.graph.outputs:
            return name
        if readers[0].name not in self.free:
            return name
        return self._seen_as(readers[0].name)

    def pitch(self, name: str) -> int:
        """`between.pitch` of a tensor of the graph, which every piece asks that reads or writes it: found once."""
        if name not in self._pitches:
            self._pitches[name] = pitch(self.graph, name)
        return self._pitches[name]

    @cached_property
    def _pitches(self) -> dict[str, int]:
        return {}

    def closed(self, nodes: int) -> int:
        """The least set that holds these nodes and all that lie on a way from one to another."""
        after = union(self.after[n] for n in members(nodes))
        before = union(self.before[n] for n in members(nodes))
        return nodes | (after & before)

    def beside(self, nodes: int) -> int:
        """Nodes outside that a node of these reads, or that read one of these."""
        near = union(self.reads[n] | self.readers[n] for n in members(nodes))
        return near & ~nodes

    def handed_on(self, nodes: int) -> int:
        """Those of these whose results others read, or that are outputs of the graph."""
        return bits(n for n in members(nodes) if self.readers[n] & ~nodes or n in self.results)

    def names(self, nodes: int) -> tuple[str, ...]:
        """The names of these nodes, in the graph's order."""
        return tuple(self.solid[n].name for n in members(nodes))


def members(nodes: int) -> Iterator[int]:
    """The numbers in a set, ascending."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


def bits(numbers: Iterable[int]) -> int:
    """The set of these numbers."""
    return union(1 << number for number in numbers)


def union(sets: Iterable[int]) -> int:
    """All that is in any of these sets."""
    return functools.reduce(operator.or_, sets, 0)
