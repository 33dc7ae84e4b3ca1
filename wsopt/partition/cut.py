"""Cuts a graph into kernels: candidate pieces are priced as far as it matters, and CP-SAT chooses a cover of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.needed import needed
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.accept import Oracle
from wsopt.partition.candidates import Candidates, find_candidates
from wsopt.partition.cover import Chosen, Option, cover
from wsopt.partition.pieces import Piece, bare_pieces
from wsopt.partition.prices import Level, Price, Prices
from wsopt.partition.web import Web

Progress = Callable[[str, int, int], None]
Others = Callable[[Piece], float]
"""Microseconds that somebody else takes for a group of nodes, infinite if nobody does."""
_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class CutCertificate:
    """What a cut is worth: parts of the graph that were looked at, and whether that was all that the growth of pieces
    asks for; pieces that a kernel may be made of, how many of them differ, by how many the best bound of structures
    was found, and how many kernels were made; whether no cover by these pieces is faster.
    """

    looked_at: int
    whole: bool
    pieces: int
    different: int
    bounded: int
    solved: int
    proved: bool
    rejected: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """The pieces of a graph in an order in which they can run, with their prices, and pieces that somebody else
    computes.
    """

    graph: Graph
    pieces: tuple[Piece, ...]
    prices: tuple[Price, ...]
    left: tuple[Piece, ...]
    certificate: CutCertificate

    @property
    def microseconds(self) -> float:
        """The predicted time of all kernels, one after the other."""
        return math.fsum(price.microseconds for price in self.prices)


def cut(
    graph: Graph,
    machine: Machine,
    *,
    others: Others | None = None,
    use_cache: bool = True,
    progress: Progress = lambda stage, done, total: None,
) -> Cut:
    """The cut of a graph into kernels that takes the least predicted time.

    `others` says what somebody else takes for nodes that no kernel is chosen for; without it kernels compute all.
    Raises LoweringError, with the nodes that no kernel takes and why, where no cover computes the graph.
    """
    web = Web(needed(graph))
    _check_outputs(web)
    oracle = Oracle(machine)
    found = find_candidates(web, oracle, lambda done, total: progress("pieces", done, total))
    if not found.pieces and others is None:
        find_region(graph)  # which says what is wrong with the whole
    prices = Prices(machine, use_cache, progress)
    for piece, answer in zip(found.pieces, found.answers, strict=True):
        prices.known.setdefault(piece.key, Price(answer.roofline_us, Level.ROOFLINE))
    bare = bare_pieces(web) if others is not None else ()
    theirs = [others(piece) for piece in bare] if others is not None else []
    chosen = _settled(web, found, prices, bare, theirs)
    ours = [found.pieces[n] for n in chosen.options if n < len(found.pieces)]
    left = [bare[n - len(found.pieces)] for n in chosen.options if n >= len(found.pieces)]
    return Cut(
        web.graph,
        tuple(ours),
        tuple(prices[piece] for piece in ours),
        tuple(left),
        _certificate(found, prices, chosen),
    )


def _settled(
    web: Web, found: Candidates, prices: Prices, bare: tuple[Piece, ...], theirs: list[float]
) -> Chosen:
    """The best cover, of kernels that are all made."""
    wanted = frozenset(web.graph.outputs)
    inputs = frozenset(one.name for one in web.graph.inputs)
    for _ in range(_ROUNDS):
        times = [prices[piece].microseconds for piece in found.pieces]
        every = [*zip(found.pieces, times, strict=True), *zip(bare, theirs, strict=True)]
        options = [
            Option(
                frozenset(piece.graph.outputs),
                frozenset(one.name for one in piece.graph.inputs) - inputs,
                microseconds,
            )
            for piece, microseconds in every
        ]
        chosen = cover(options, wanted)
        if chosen is None:
            raise LoweringError(_uncovered(web, found, prices))
        ours = [found.pieces[n] for n in chosen.options if n < len(found.pieces)]
        if not prices.improve(ours):
            return chosen
    raise LoweringError(f"graph {web.graph.name}: no cut is settled after {_ROUNDS} covers")


def _certificate(found: Candidates, prices: Prices, chosen: Chosen) -> CutCertificate:
    levels = [price.level for price in prices.known.values()]
    names = {piece.key: piece.graph.outputs[-1] for piece in reversed(found.pieces)}
    return CutCertificate(
        looked_at=found.looked_at,
        whole=found.whole,
        pieces=len(found.pieces),
        different=len(levels),
        bounded=sum(level >= Level.BOUND for level in levels),
        solved=sum(level is Level.SOLVED for level in levels),
        proved=chosen.proved,
        rejected=tuple(
            (names[key], price.complaint) for key, price in prices.known.items() if price.complaint
        ),
    )


def _check_outputs(web: Web) -> None:
    """Raise LoweringError for an output that no node computes."""
    computed = {name for names in web.results.values() for name in names}
    for name in web.graph.outputs:
        if name not in computed:
            raise LoweringError(
                f"graph {web.graph.name}: output {name} is an input seen in another way, or made of indices alone: "
                "nothing is computed for it; make it outside of the graph"
            )


def _uncovered(web: Web, found: Candidates, prices: Prices) -> str:
    """Which nodes no kernel takes, each with the reason."""
    able = [piece for piece in found.pieces if prices[piece].microseconds < math.inf]
    covered = {name for piece in able for name in piece.nodes}
    missing = [node.name for node in web.solid if node.name not in covered]
    why = {**dict(found.refusals), **_complaints(found, prices)}
    reasons = [f"{name}: {why[name]}" for name in why if name in missing or not missing]
    first = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    told = f"no kernel takes {first}" if missing else "its pieces do not go together"
    return f"graph {web.graph.name}: {told}" + "".join(f"\n  {reason}" for reason in reasons[:8])


def _complaints(found: Candidates, prices: Prices) -> dict[str, str]:
    return {
        piece.graph.outputs[-1]: prices[piece].complaint for piece in found.pieces if prices[piece].complaint
    }
