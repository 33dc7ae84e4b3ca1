"""The pieces among which a cut is chosen: connected parts of a graph of which a kernel may be made.

Parts grow node by node from each node, as long as the front end takes them, and `PATIENCE` nodes beyond: what is
refused may be taken with the next node, as a product with reductions of its rows behind it is where another product
contracts those rows. A part holds all that lies on a way between two of its nodes, for a kernel reads its inputs
before it writes its outputs.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from wsopt.frontend.kinds import is_matmul
from wsopt.partition.accept import Answer, Oracle
from wsopt.partition.groups import groups
from wsopt.partition.pieces import Piece, pieces_of
from wsopt.partition.web import Web, members, union

PATIENCE = 3
"""How many times a part that is refused may grow before nothing more is expected of it."""
MOST = 8000
"""Pieces that are asked for, at most, those of small parts first: large ones, as of all that lies between the ends of
a residual connection, are the most, and hardly one is taken.
"""

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
    while growth.waiting and growth.asked < MOST:
        nodes, left = growth.next()
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
    still grow, those that were `looked` at, by so many pieces `asked` for, and those of which the front end has
    `taken` pieces.
    """

    def __init__(self, web: Web, oracle: Oracle, groups: tuple[int, ...]) -> None:
        self.web, self.oracle, self.groups = web, oracle, groups
        self.group_of = {number: group for group in groups for number in members(group)}
        begun = (*groups, *map(self._whole, _readers(web, self.group_of)))
        self.patience = dict[int, int]()
        self.waiting: list[tuple[int, int, int, int]] = []
        self.arrivals = itertools.count()
        for nodes in begun:
            self.wait(nodes, PATIENCE)
        self.taken: dict[int, list[tuple[Piece, Answer]]] = {}
        self.refusals: list[tuple[str, str]] = []
        self.looked: set[int] = set()
        self.asked = 0

    def wait(self, nodes: int, left: int) -> None:
        """Let a part wait, which may be refused `left` times more, unless it has waited with as much patience."""
        if self.patience.get(nodes, -1) < left:
            self.patience[nodes] = left
            size = len({self.group_of[number] for number in members(nodes)})
            heapq.heappush(self.waiting, (size + PATIENCE - left, next(self.arrivals), nodes, left))

    def next(self) -> tuple[int, int]:
        """The part to go on with, and how often it may still be refused: one of few groups that was seldom refused,
        of those the first.
        """
        _, _, nodes, left = heapq.heappop(self.waiting)
        return nodes, left

    def look(self, nodes: int) -> None:
        """Ask whether a kernel may be made of a part."""
        self.looked.add(nodes)
        asked = [(piece, self.oracle.ask(piece)) for piece in pieces_of(self.web, nodes)]
        self.asked += len(asked)
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
            self.wait(self._whole(nodes | group), left)

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
