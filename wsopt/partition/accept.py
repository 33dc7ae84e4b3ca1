"""Which pieces a kernel may be made of: the front end and the lowering are asked, once for pieces that are alike."""

from __future__ import annotations

from dataclasses import dataclass, field

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.types import Graph, Input, Node
from wsopt.lowering.structures import structures
from wsopt.machine.types import Machine
from wsopt.partition.pieces import Piece
from wsopt.perf.price import lower
from wsopt.perf.timing import roofline_us
from wsopt.program.program import TileProgram


@dataclass(frozen=True, slots=True)
class Answer:
    """The time in microseconds that no kernel for a piece can be faster than, or why there is none."""

    roofline_us: float = 0.0
    refusal: str = ""


@dataclass(slots=True)
class Oracle:
    """Answers about pieces on a machine; `asked` counts those that were not known."""

    machine: Machine
    answers: dict[str, Answer] = field(default_factory=dict)

    def ask(self, piece: Piece) -> Answer:
        """Whether a kernel may be made of a piece, and the least time that one takes."""
        found = self.answers.get(piece.key)
        if found is None:
            found = self.answers[piece.key] = self._asked(piece)
        return found

    def _asked(self, piece: Piece) -> Answer:
        if not piece.graph.outputs:
            return Answer(refusal="nothing outside needs what it computes")
        try:
            program = first_program(piece.graph, self.machine)
        except LoweringError as error:
            return Answer(refusal=str(error))
        return Answer(roofline_us(program, self.machine) + self.machine.kernel_launch_us)


def first_program(graph: Graph, machine: Machine) -> TileProgram:
    """The tile program of a graph's first structure. LoweringError for a graph of which no kernel can be made."""
    region = find_region(graph)
    first = next(structures(region, machine), None)
    if first is None:
        raise LoweringError(f"graph {graph.name}: no tile of it is legal")
    return lower(region, first, machine)


def refusal_of(graph: Graph, machine: Machine) -> str:
    """Why no kernel can be made of a whole graph; empty if one can."""
    try:
        first_program(graph, machine)
    except LoweringError as error:
        return str(error)
    return ""


def refusal_alone(graph: Graph, node: Node, machine: Machine) -> str:
    """Why no kernel can be made of one node of a graph whose operands are in memory; empty if one can."""
    inputs = tuple(Input(name, graph.type_of(name)) for name in dict.fromkeys(node.tensors))
    return refusal_of(Graph(graph.name, "", inputs, (node,), (node.name,), graph.deterministic), machine)
