"""What the backend made of a model: which pieces it took, what it did not take and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from wsopt.graph.ops import OPS, CostClass
from wsopt.graph.types import Graph
from wsopt.torch.changing import Changing
from wsopt.torch.choose import Judged
from wsopt.torch.compiler import backend, watching
from wsopt.torch.cutting import flops
from wsopt.torch.piece import Piece
from wsopt.torch.reasons import reason_in_words, without_remedy
from wsopt.torch.rounds import Settled

MOST = 20
"""Lines of one kind that a report prints."""
_MANY = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """Pieces that one kernel computes: the operations of each, how many there are, its work, and its times."""

    text: str
    count: int
    flops: int
    judged: Judged


@dataclass(frozen=True, slots=True)
class Report:
    """The lines of pieces that were taken and of those that were not, why other operations stay in FX with how often,
    the operations of products and attention in pieces that were taken and in all, and the bytes that FX's operations
    would move one by one: those that are in pieces, and all; what Dynamo did not trace and so left to Python, and how
    often.
    """

    taken: tuple[Line, ...]
    refused: tuple[Line, ...]
    left: tuple[tuple[str, int], ...]
    flops_taken: int
    flops: int
    bytes_taken: int
    bytes: int
    graphs: int
    breaks: tuple[tuple[str, int], ...] = ()

    @property
    def share_of_bytes(self) -> float:
        """The part of the bytes that is in pieces; 1 where there are none."""
        return self.bytes_taken / self.bytes if self.bytes else 1.0

    @property
    def share(self) -> float:
        """The part of the operations of products and attention that is in pieces; 1 where there are none."""
        return self.flops_taken / self.flops if self.flops else 1.0

    def __str__(self) -> str:
        head = (
            f"{sum(line.count for line in self.taken)} pieces in {self.graphs} graphs, of {len(self.taken)} kinds; "
            f"{self.share:.1%} of the operations of products and attention ({self.flops:.3g}), "
            f"{self.share_of_bytes:.1%} of the bytes that operations would move one by one"
        )
        parts = [head if self.graphs else "no graph was compiled, and so there are no pieces"]
        parts += [f"  {_told(line)}" for line in self.taken]
        if self.refused:
            parts += ["not taken:", *(f"  {_told(line)}: {line.judged.refusal}" for line in self.refused)]
        if self.left:
            parts += ["left to the usual way:", *(f"  {count} x {why}" for why, count in self.left[:MOST])]
            rest = self.left[MOST:]
            parts += (
                [f"  and {sum(count for _, count in rest)} for {len(rest)} other reasons"] if rest else []
            )
        if self.breaks:
            parts += ["not traced by Dynamo:", *(f"  {count} x {why}" for why, count in self.breaks[:MOST])]
        return "\n".join(parts)


def _told(line: Line) -> str:
    how = "measured" if line.judged.measured else "predicted"
    ours = "" if line.judged.ours_us is None else f", {how} {line.judged.ours_us:.1f} us"
    theirs = "" if line.judged.theirs_us is None else f" against {line.judged.theirs_us:.1f} us"
    work = f", {line.flops:.3g} operations" if line.flops else ""
    return f"{line.count} x {line.text}{work}{ours}{theirs}"


def explain(model: Any, *inputs: Any, options: Mapping[str, Any] | None = None, **named: Any) -> Report:
    """Compile a model for these inputs without gradients, call it once, and tell what became of its graphs.

    options: as those of `torch.compile`; `named` are arguments of the model by name. Raises as `backend` does.
    """

    def anew(module: torch.fx.GraphModule, example: Sequence[Any]) -> Any:
        return backend(module, example, options=options)

    # A backend of its own, so that nothing is found compiled; and however often that is done, nothing is given up.
    limits = {"recompile_limit": _MANY, "accumulated_recompile_limit": _MANY}
    before = _breaks()
    with watching() as seen, torch.no_grad(), torch._dynamo.config.patch(limits):
        torch.compile(model, backend=anew)(*inputs, **named)
    breaks = (_breaks() - before).most_common()
    return replace(report_of(seen), breaks=tuple((_in_short(why), count) for why, count in breaks))


def _breaks() -> Counter[str]:
    """How often Dynamo has ended a graph, or traced none, until now, by its reasons."""
    counters = torch._dynamo.utils.counters
    return Counter(counters["graph_break"]) | Counter(counters["unimplemented"])


def _in_short(why: str) -> str:
    """What Dynamo says of a break, without its hints."""
    lines = [line.strip() for line in why.splitlines()]
    explained = [line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")]
    return ": ".join([*lines[:1], *explained[:1]])


def report_of(graphs: Sequence[Settled]) -> Report:
    """The report of what became of FX graphs."""
    taken = [(piece, one.judged[piece.key]) for one in graphs for piece in one.taken]
    refused = [(piece, one.judged[piece.key]) for one in graphs for piece in one.refused]
    left: Counter[str] = Counter()
    for one in graphs:
        left.update(one.cut.reasons.values())
        left.update(one.beside.values())
        left.update(map(without_remedy, one.lowered.refused.values()))
    return Report(
        _lines(taken),
        _lines(refused),
        tuple(left.most_common()),
        sum(flops(piece.typical) for piece, _ in taken),
        sum(one.cut.all_flops for one in graphs),
        sum(one.cut.moved.get(name, 0) for one in graphs for piece in one.taken for name in piece.covered),
        sum(sum(one.cut.moved.values()) for one in graphs),
        len(graphs),
    )


def _lines(pieces: Sequence[tuple[Piece, Judged]]) -> tuple[Line, ...]:
    count = Counter(piece.key for piece, _ in pieces)
    first = {piece.key: (piece, judged) for piece, judged in reversed(pieces)}
    lines = [
        Line(
            in_words(piece.graph, piece.changing), count[key], flops(piece.typical), _in_words(piece, judged)
        )
        for key, (piece, judged) in first.items()
    ]
    return tuple(sorted(lines, key=lambda line: (-line.count * line.flops, line.text)))


def _in_words(piece: Piece, judged: Judged) -> Judged:
    """What was found out of a piece, with why it is turned down as one reads it who wrote a model."""
    return replace(judged, refusal=reason_in_words(judged.refusal, piece.kernel))


def in_words(graph: Graph, changing: Changing | None = None) -> str:
    """The operations of a piece but for views and casts, in order, what it makes, and the range of its extents."""
    ops = [
        node.op for node in graph.nodes if OPS[node.op].cost is not CostClass.MOVEMENT and node.op != "cast"
    ]
    made = ", ".join(str(graph.type_of(name)) for name in graph.outputs)
    ranging = "" if changing is None else f", {changing}"
    return f"{' '.join(ops)} -> {made}{ranging}"
