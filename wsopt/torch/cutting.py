"""Which parts of an FX graph become pieces, and why the others do not."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.types import Graph, Node
from wsopt.lowering.structures import structures
from wsopt.machine.types import Machine
from wsopt.torch.flow import Flow, flow_of
from wsopt.torch.greedy import Greedy
from wsopt.torch.lower import Lowered
from wsopt.torch.pieces import Piece, piece_of
from wsopt.torch.values import Untaken


@dataclass(slots=True)
class Oracle:
    """Whether kernels can be made of graphs on a machine; what was asked once is known."""

    machine: Machine
    known: dict[str, str] = field(default_factory=dict)

    def refusal(self, piece: Piece) -> str:
        """Why there is no kernel for a piece; empty if there is one."""
        found = self.known.get(piece.key)
        if found is None:
            found = self.known[piece.key] = self._asked(piece.graph)
        return found

    def _asked(self, graph: Graph) -> str:
        try:
            first = next(iter(structures(find_region(graph), self.machine)), None)
        except LoweringError as error:
            return str(error)
        return "" if first is not None else "no tile of it is legal"


@dataclass(frozen=True, slots=True)
class Cut:
    """The pieces of an FX graph, and why products and reductions that no piece has are left, by FX node."""

    pieces: tuple[Piece, ...]
    reasons: dict[str, str]


def cut(lowered: Lowered, oracle: Oracle) -> Cut:
    """Pieces of what our graphs say of an FX graph."""
    nodes: dict[str, list[Node]] = defaultdict(list)
    for node in lowered.writer.nodes.values():
        nodes[lowered.writer.groups[node.name]].append(node)

    def accept(groups: frozenset[str]) -> str:
        try:
            return oracle.refusal(_piece(lowered, nodes, groups))
        except Untaken as reason:
            return str(reason)

    greedy = Greedy(_flow(lowered), accept, nodes)
    pieces = tuple(_piece(lowered, nodes, groups) for groups in greedy.pieces())
    return Cut(pieces, dict(greedy.reasons))


def _piece(lowered: Lowered, nodes: dict[str, list[Node]], groups: frozenset[str]) -> Piece:
    return piece_of(lowered, frozenset(node.name for group in groups for node in nodes[group]))


def _flow(lowered: Lowered) -> Flow:
    """The flow of the FX graph's nodes, views left out."""
    order, reads = list[str](), dict[str, set[str]]()
    below: dict[str, set[str]] = {}
    for node in lowered.graph.nodes:
        sources = set[str]().union(*(below[one.name] for one in node.all_input_nodes))
        below[node.name] = sources if lowered.through(node) else {node.name}
        if not lowered.through(node):
            order.append(node.name)
            reads[node.name] = sources
    return flow_of(order, reads, lowered.computed)
