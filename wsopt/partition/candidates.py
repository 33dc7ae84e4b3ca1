"""The pieces among which a cut is chosen: connected parts of a graph of which a kernel may be made.

Parts grow node by node from each node, as long as the front end takes them, and `PATIENCE` nodes beyond: what is
refused may be taken with the next node, as a product with reductions of its rows behind it is where another product
contracts those rows. A part holds all that lies on a way between two of its nodes, for a kernel reads its inputs
before it writes its outputs.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wsopt.frontend.kinds import is_matmul, is_pointwise, reduces_rows
from wsopt.partition.accept import Answer, Oracle
from wsopt.partition.pieces import Piece, pieces_of
from wsopt.partition.web import Web, bits, members, union

PATIENCE = 3
"""How many times a part that is refused may grow before nothing more is expected of it."""
MOST = 6000
"""Parts that are looked at, at most."""

_APART = (
    "rows of no multiple of 16 bytes are written with room behind each by the kernel that reduces them alone"
)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The pieces of which kernels may be made, with their least times; how many parts were looked at, whether those
    are all that `PATIENCE` asks for, and the refusals of single groups of nodes.
    """

    pieces: tuple[Piece, ...]
    answers: tuple[Answer, ...]
    looked_at: int
    whole: bool
    refusals: tuple[tuple[str, str], ...]


def find_candidates(web: Web, oracle: Oracle, progress: Callable[[int, int], None]) -> Candidates:
    """All candidates of a graph, those that begin at earlier nodes first."""
    growth = _Growth(web, oracle, groups(web, oracle))
    while growth.waiting and len(growth.looked) < MOST:
        nodes, left = growth.waiting.popleft()
        if nodes not in growth.looked:
            growth.look(nodes)
            progress(len(growth.looked), len(growth.looked) + len(growth.waiting))
        left = PATIENCE if nodes in growth.taken else left - 1
        if left >= 0:
            growth.grow(nodes, left)
    order = sorted(growth.taken, key=lambda nodes: (nodes & -nodes, nodes))
    pairs = [pair for nodes in order for pair in growth.taken[nodes]]
    return Candidates(
        tuple(piece for piece, _ in pairs),
        tuple(answer for _, answer in pairs),
        len(growth.looked),
        not growth.waiting,
        tuple(growth.refusals),
    )


class _Growth:
    """Parts of a graph while they grow from `groups` of nodes: those that are `waiting`, each with how often it may
    still grow, those that were `looked` at, and those of which the front end has `taken` pieces.
    """

    def __init__(self, web: Web, oracle: Oracle, groups: tuple[int, ...]) -> None:
        self.web, self.oracle, self.groups = web, oracle, groups
        self.group_of = {number: group for group in groups for number in members(group)}
        begun = (*groups, *map(self._whole, _readers(web, self.group_of)))
        self.patience = dict.fromkeys(begun, PATIENCE)
        self.waiting: deque[tuple[int, int]] = deque(self.patience.items())
        self.taken: dict[int, list[tuple[Piece, Answer]]] = {}
        self.refusals: list[tuple[str, str]] = []
        self.looked: set[int] = set()

    def look(self, nodes: int) -> None:
        """Ask whether a kernel may be made of a part."""
        self.looked.add(nodes)
        asked = [(piece, self.oracle.ask(piece)) for piece in pieces_of(self.web, nodes)]
        taken = [(piece, answer) for piece, answer in asked if not answer.refusal]
        if taken:
            self.taken[nodes] = taken
        elif nodes in self.groups:
            # Without a piece: its rows lie apart, and only with the node that they are made by can it be one.
            refusal = asked[0][1].refusal if asked else _APART
            self.refusals.append((self.web.names(nodes)[-1], refusal))

    def grow(self, nodes: int, left: int) -> None:
        """Let parts of one group more wait, which may be refused `left` times more."""
        beside = members(self.web.beside(nodes))
        for group in dict.fromkeys(self.group_of[number] for number in beside):
            grown = self._whole(nodes | group)
            if self.patience.get(grown, -1) < left:
                self.patience[grown] = left
                self.waiting.append((grown, left))

    def _whole(self, nodes: int) -> int:
        """The least set of whole groups that holds these nodes and all that lies between them."""
        while True:
            grown = self.web.closed(nodes)
            for number in members(grown):
                grown |= self.group_of[number]
            if grown == nodes:
                return nodes
            nodes = grown


def _readers(web: Web, of: Mapping[int, int]) -> Iterator[int]:
    """The products of one left operand that have one shape, which a kernel may have in its loop, and others that read
    one result and nothing else that is computed. Where no node reads all of them, parts that grow have several of
    them only with what they read.
    """
    alike = dict[object, int]()
    for number, node in enumerate(web.solid):
        key: object = (
            (*web.below(node.tensors[:1]), node.type.shape) if is_matmul(node) else web.reads[number]
        )
        if is_matmul(node) or web.reads[number].bit_count() == 1:
            alike[key] = alike.get(key, 0) | 1 << number
    for readers in alike.values():
        behind = [union(web.readers[one] for one in members(of[n])) & ~of[n] for n in members(readers)]
        if len(behind) > 1 and not functools.reduce(operator.and_, behind):
            yield readers


def groups(web: Web, oracle: Oracle) -> tuple[int, ...]:
    """Nodes that no good cut separates, together; the others alone.

    A node is together with the one whose result it reads if a cut before it moves no fewer bytes than one behind it,
    unless the front end takes that one and not both. Nodes that reduce the same result, or the same inputs, are
    together if the front end takes them so.
    """
    of = [1 << number for number in range(len(web.solid))]
    for number in range(len(web.solid)):
        source = _belongs_to(web, number, of)
        together = 0 if source is None else of[source] | of[number]
        if source is None or (_refused(web, oracle, together) and not _refused(web, oracle, of[source])):
            continue
        for member in members(together):
            of[member] = together
    for together in itertools.chain(_siblings(web), _of_inputs(web, of)):
        joined = 0
        for member in members(together):
            joined |= of[member]
        if joined not in of and not _refused(web, oracle, joined):
            for member in members(joined):
                of[member] = joined
    return tuple(dict.fromkeys(of))


def _belongs_to(web: Web, number: int, of: Sequence[int]) -> int | None:
    """The node whose result a node reads, where a cut between them moves no fewer bytes than one behind both.

    The node alone reads that result, computes element by element or reduces, brings nothing else from memory than
    inputs of the graph, and gives no more bytes than it takes. None where the result was rounded to fewer bits than
    the node gives: a kernel may well end with it. None where the node reduces what a node of the other's group, as
    `of` has it, has reduced: a kernel that reduces along both axes has fewer rows, and leaves SMs without one where
    they are too few.
    """
    node, read = web.solid[number], web.reads[number]
    if read.bit_count() != 1 or not (is_pointwise(node) or reduces_rows(node)):
        return None
    (source,) = members(read)
    given = web.solid[source].type
    shared = web.readers[source].bit_count() > 1 or source in web.results
    rounded = web.solid[source].op == "cast" and node.type.dtype.bits > given.dtype.bits
    again = reduces_rows(node) and any(reduces_rows(web.solid[one]) for one in members(of[source]))
    return None if shared or node.type.nbytes > given.nbytes or rounded or again else source


def _siblings(web: Web) -> Iterator[int]:
    """Nodes that reduce rows of one result and read nothing else that is computed, such as quantized elements and
    their scales: together they read it once.
    """
    for source in range(len(web.solid)):
        found = 0
        for reader in members(web.readers[source]):
            if web.reads[reader] == 1 << source and reduces_rows(web.solid[reader]):
                found |= 1 << reader
        if found.bit_count() > 1:
            yield found


def _of_inputs(web: Web, of: list[int]) -> Iterator[int]:
    """Nodes that reduce one axis of the same inputs, by themselves or with what is computed for them alone: no result
    is between them that would bring them together, and apart each reads the inputs again. Of inputs that have all
    elements of what is reduced, if there are any: labels and vectors may be others.
    """
    found = dict[object, int]()
    for number, node in enumerate(web.solid):
        own = _with_makers(web, of[number]) if reduces_rows(node) else 0
        if not own or union(web.reads[one] for one in members(own)) & ~own:
            continue
        last = [one for one in members(own) if not web.readers[one] & own]
        if len(last) == 1 and sum(reduces_rows(web.solid[one]) for one in members(own)) == 1:
            read = frozenset(name for one in members(own) for name in web.below(web.solid[one].tensors))
            shape, axis = web.graph.type_of(node.tensors[0]).shape, dict(node.attrs).get("axis")
            given = read - set(web.number)
            key = _of_shape(web, given, shape) or given, shape, axis
            found[key] = found.get(key, 0) | own
    yield from (own for own in found.values() if own.bit_count() > 1)


def _with_makers(web: Web, nodes: int) -> int:
    """These nodes, and whatever is computed for them alone."""
    near = union(web.reads[one] for one in members(nodes)) & ~nodes
    alone = bits(one for one in members(near) if not web.readers[one] & ~nodes and one not in web.results)
    return _with_makers(web, nodes | alone) if alone else nodes


def _of_shape(web: Web, names: Iterable[str], shape: tuple[int, ...]) -> frozenset[str]:
    """Those tensors that have as many elements as this shape."""
    return frozenset(name for name in names if web.graph.type_of(name).size == math.prod(shape))


def _refused(web: Web, oracle: Oracle, nodes: int) -> bool:
    return all(oracle.ask(piece).refusal for piece in pieces_of(web, nodes))
