"""Cuts a graph into kernels: candidate pieces are priced as far as it matters, and CP-SAT chooses a cover of them."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from wsopt.deadline import UNLIMITED, Deadline
from wsopt.errors import LoweringError, TimeOverError
from wsopt.graph.needed import needed
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.accept import Oracle, refusal_of
from wsopt.partition.candidates import Candidates, find_candidates
from wsopt.partition.choices import is_written_out, with_choices
from wsopt.partition.cover import Chosen, Option, cover, coverable
from wsopt.partition.norms import with_norms
from wsopt.partition.one_loop import with_one_loop
from wsopt.partition.pieces import Piece, bare_pieces
from wsopt.partition.pitched_copies import turns_masks, with_pitched_copies, with_pitched_masks
from wsopt.partition.prices import Level, Price, Prices
from wsopt.partition.running_sums import with_parts_of_running_sums
from wsopt.partition.transpositions import with_exchanges
from wsopt.partition.turned_operands import with_turned_operands
from wsopt.partition.turned_scales import with_turned_scales
from wsopt.partition.web import Web
from wsopt.partition.whole_products import with_wide_products
from wsopt.pool.local import LOCAL
from wsopt.pool.workers import Workers
from wsopt.report.layout import counted

Progress = Callable[[str, int, int], None]
Others = Callable[[Piece], float]
"""Microseconds that somebody else takes for a group of nodes, infinite if nobody does."""
_COVERS = 20
"""Covers whose pieces alone are bounded. Each has another few of many small pieces; then all bounds come at once."""
_CLEARLY = 0.75
"""The part of a graph's least time by rooflines that another way to write it has to be below."""


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
    computes; what there was no time for, in words.
    """

    graph: Graph
    pieces: tuple[Piece, ...]
    prices: tuple[Price, ...]
    left: tuple[Piece, ...]
    certificate: CutCertificate
    skipped: tuple[str, ...] = ()

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
    workers: Workers = LOCAL,
    deadline: Deadline = UNLIMITED,
    progress: Progress = lambda stage, done, total: None,
) -> Cut:
    """The cut of a graph into kernels that takes the least predicted time; `workers` price them.

    `others` says what somebody else takes for nodes that no kernel is chosen for; without it kernels compute all.
    Late before the `deadline` the best cover by kernels that are made is taken; `skipped` says what may be better.
    Raises LoweringError, with the nodes that no kernel takes and why, where no cover computes the graph, and
    TimeOverError where the time is over before there are kernels for all of it.
    """
    prices = Prices(machine, use_cache, deadline.bounded(graph.name, progress), workers, deadline)
    return settled([cutter_of(graph, prices, others)])


def check_cuttable(graph: Graph, machine: Machine) -> None:
    """Raise LoweringError as `cut` does for a graph that kernels do not compute; nothing is priced."""
    cutter_of(graph, Prices(machine)).check()


@dataclass(frozen=True, slots=True)
class Cutter:
    """What a cut is chosen among: candidates with their prices, and single nodes with what somebody else takes."""

    web: Web
    found: Candidates
    prices: Prices
    bare: tuple[Piece, ...]
    times: tuple[float, ...]

    @property
    def computes(self) -> bool:
        """Whether there is any cover at the prices of now; which is the best is not asked."""
        return coverable(self._options(), frozenset(self.web.graph.outputs))

    def check(self) -> None:
        """Raise LoweringError where there is no cover."""
        if not self.computes:
            raise self.refusal()

    def refusal(self) -> LoweringError:
        """Why there is no cover at the prices of now."""
        return LoweringError(_uncovered(self.web, self.found, self.prices))

    def least(self) -> float:
        """The time of the best cover at the prices of now, infinite where there is none."""
        found = self.chosen() if self.computes else None
        return math.inf if found is None else self.microseconds(found)

    def chosen(self, *, made_only: bool = False) -> Chosen | None:
        """The best cover at the prices of now, or None; of all pieces or of those whose kernels are made."""
        return cover(self._options(made_only=made_only), frozenset(self.web.graph.outputs))

    def _options(self, *, made_only: bool = False) -> list[Option]:
        """What a cover may take, at the prices of now."""
        inputs = frozenset(one.name for one in self.web.graph.inputs)
        prices = [self.prices[piece] for piece in self.found.pieces]
        least = Level.SOLVED if made_only else Level.ROOFLINE
        known = [price.microseconds if price.level >= least else math.inf for price in prices]
        return [
            Option(
                frozenset(piece.graph.outputs),
                frozenset(one.name for one in piece.graph.inputs) - inputs,
                microseconds,
            )
            for piece, microseconds in zip(
                (*self.found.pieces, *self.bare), (*known, *self.times), strict=True
            )
        ]

    def ours(self, chosen: Chosen) -> tuple[Piece, ...]:
        """The pieces of a cover that kernels compute."""
        return tuple(self.found.pieces[n] for n in chosen.options if n < len(self.found.pieces))

    def cut(self, chosen: Chosen, skipped: tuple[str, ...] = ()) -> Cut:
        """The cut that a cover by made kernels is; `skipped` says in words which faster one may have been missed."""
        ours = self.ours(chosen)
        prices = tuple(self.prices[piece] for piece in ours)
        optimal = all(
            price.build.summary["status"] == "optimal" for price in prices if price.build is not None
        )
        certificate = _certificate(self.found, self.prices, chosen)
        proved = certificate.proved and optimal and not skipped
        left = self.theirs(chosen)
        return Cut(self.web.graph, ours, prices, left, replace(certificate, proved=proved), skipped)

    def skipped(self, least: Chosen) -> tuple[str, ...]:
        """What there was no time for, in words, where the cover of the least time has kernels that are not made."""
        open_ones = {piece.key for piece in self.ours(least) if self.prices[piece].level is not Level.SOLVED}
        if not open_ones:
            return ()
        kernels, us = counted(len(open_ones), "piece"), self.microseconds(least)
        return (f"kernels of {kernels} not made, with which {us:,.1f} us are not excluded",)

    def microseconds(self, chosen: Chosen) -> float:
        """The time of a cover at the prices of now."""
        return math.fsum(
            (*(self.prices[piece].microseconds for piece in self.ours(chosen)), *self._others(chosen))
        )

    def _others(self, chosen: Chosen) -> tuple[float, ...]:
        """What somebody else takes for the pieces of a cover that no kernel computes."""
        first = len(self.found.pieces)
        return tuple(self.times[n - first] for n in chosen.options if n >= first)

    def theirs(self, chosen: Chosen) -> tuple[Piece, ...]:
        """The pieces of a cover that somebody else computes."""
        first = len(self.found.pieces)
        return tuple(self.bare[n - first] for n in chosen.options if n >= first)


def settled(cutters: Sequence[Cutter]) -> Cut:
    """The best cut of a graph written in several ways, which have the same prices; its kernels are made.

    The way whose best cover takes the least time so far goes on, and of ways that take the same the first: kernels of
    another one are made only if it may be faster still. Every round but the last knows a price better than the one
    before, and there are two steps of each, or a way's least time: they come to an end. Raises as `cut`.
    """
    prices, least, covers = cutters[0].prices, [0.0] * len(cutters), Counter[int]()
    while True:
        way = least.index(min(least))
        cutter, chosen = cutters[way], cutters[way].chosen()
        least[way] = math.inf if chosen is None else cutter.microseconds(chosen)
        if way != least.index(min(least)):
            continue
        if chosen is None:
            raise cutters[0].refusal()
        found = _made(cutters, cutter.skipped(chosen)) if prices.is_late else None
        if found is not None:
            return found
        if prices.late:
            raise _too_late(cutters[0].web.graph, prices)
        if not prices.improve(cutter.ours(chosen)):
            return cutter.cut(chosen)
        covers[way] += 1
        if covers[way] == _COVERS:
            prices.bound(cutter.found.pieces)


def _made(cutters: Sequence[Cutter], skipped: tuple[str, ...]) -> Cut | None:
    """The best cut by kernels that are made already; None if there is none."""
    found = ((cutter, cutter.chosen(made_only=True)) for cutter in cutters)
    cuts = [cutter.cut(chosen, skipped) for cutter, chosen in found if chosen is not None]
    return min(cuts, key=lambda cut: cut.microseconds, default=None)


def _too_late(graph: Graph, prices: Prices) -> TimeOverError:
    names = ", ".join(dict.fromkeys(prices.late))
    return TimeOverError(
        f"graph {graph.name}: the {prices.deadline.seconds:g} s of --time-limit were not enough for the kernels of "
        f"the pieces that end in {names}, which cannot be left out; give it more time"
    )


def cutter_of(graph: Graph, prices: Prices, others: Others | None = None) -> Cutter:
    """The candidates of a graph, priced by their rooflines. LoweringError for a graph that cannot be cut at all.

    Scales of products of f8 may be turned before, and operands that the tensor core does not read as they lie;
    products of i8, and layer norms and running sums of rows that no SM holds, are written out. Where kernels do not
    compute all of it, those of the graph with choices written out may. That is tried first where a node is one that
    no kernel computes as it is written. Last comes either graph with copies of operands of products, which have room
    behind rows that TMA could not begin with, and with transpositions of many axes as several. Where kernels compute
    it, it may be written with operands or masks with which one loop holds two products, and masks that lie turned may
    be copied for that; the best of these is taken if it is clearly less at the rooflines.
    """
    graph = needed(graph)
    if others is None:
        graph = with_turned_operands(with_norms(with_turned_scales(graph), prices.machine))
        graph = with_parts_of_running_sums(with_wide_products(graph, prices.machine), prices.machine)
    found = _computing(graph, prices, others)
    if others is not None:
        return found
    looped = with_pitched_masks(with_one_loop(graph))
    ways = [] if looped is graph else [_computing(looped, prices, others)]
    if turns_masks(graph):
        ways.append(_cutter_of(Web(needed(looped), moves=True), others, prices))
    if not ways:
        return found
    best = min(ways, key=Cutter.least)
    return best if best.least() < _CLEARLY * found.least() else found


def _computing(graph: Graph, prices: Prices, others: Others | None) -> Cutter:
    """The candidates of a graph as it is, or written in another way of which kernels are made."""
    written = with_choices(graph) if others is None else graph
    found = _without_copies(graph, written, prices, others)
    if others is not None or found.computes:
        return found
    tried = [graph, written]
    for steps in (with_pitched_copies, lambda one: with_exchanges(with_pitched_copies(one))):
        for other in map(steps, (graph, written)):
            if other not in tried and (again := _cutter(other, prices, others)).computes:
                return again
            tried.append(other)
    _check_outputs(Web(graph))
    return found


def _without_copies(graph: Graph, written: Graph, prices: Prices, others: Others | None) -> Cutter:
    """The candidates of a graph as it is, or `written` out in another way."""
    if written is graph:
        return _cutter(graph, prices, others)
    certain = any(is_written_out(graph, node) for node in graph.nodes)
    first, second = (written, graph) if certain else (graph, written)
    found = _cutter(first, prices, others)
    if found.computes:
        return found
    again = _cutter(second, prices, others)
    return found if not again.computes and second is written else again


def _cutter(graph: Graph, prices: Prices, others: Others | None) -> Cutter:
    """The candidates of a graph as it is written.

    Whoever reads a view makes it again. Where nothing computes the graph so, a view may be a kernel's that copies.
    """
    web = Web(needed(graph))
    copies = Web(web.graph, moves=True)
    if others is not None or len(copies.solid) == len(web.solid):
        _check_outputs(web)
        return _cutter_of(web, others, prices)
    made = None if _uncomputed(web) else _cutter_of(web, others, prices)
    if made is not None and made.computes:
        return made
    _check_outputs(copies)
    copying = _cutter_of(copies, others, prices)
    return made if made is not None and not copying.computes else copying


def _cutter_of(web: Web, others: Others | None, prices: Prices) -> Cutter:
    """The candidates of a graph's solid nodes."""
    show = functools.partial(prices.progress, "pieces")
    found = find_candidates(web, Oracle(prices.machine, prices.answers), show)
    for piece, answer in zip(found.pieces, found.answers, strict=True):
        prices.known.setdefault(piece.key, Price(answer.roofline_us, Level.ROOFLINE))
    bare = () if others is None else bare_pieces(web)
    times = () if others is None else tuple(map(others, bare))
    return Cutter(web, found, prices, bare, times)


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
        rejected=tuple(  # prices are shared with the graph written in other ways
            (names[key], price.complaint)
            for key, price in prices.known.items()
            if price.complaint and key in names
        ),
    )


def _check_outputs(web: Web) -> None:
    """Raise LoweringError for an output that no node computes."""
    for name in _uncomputed(web)[:1]:
        raise LoweringError(
            f"graph {web.graph.name}: output {name} is an input seen in another way, or made of indices alone: "
            "nothing is computed for it; make it outside of the graph"
        )


def _uncomputed(web: Web) -> list[str]:
    """The outputs that no solid node computes."""
    computed = {name for names in web.results.values() for name in names}
    return [name for name in web.graph.outputs if name not in computed]


def _uncovered(web: Web, found: Candidates, prices: Prices) -> str:
    """Why one kernel does not compute a graph, and which nodes no kernel takes at all, each with the reason."""
    able = [piece for piece in found.pieces if prices[piece].microseconds < math.inf]
    covered = {name for piece in able for name in piece.nodes}
    missing = [node.name for node in web.solid if node.name not in covered]
    why = {**dict(found.refusals), **_complaints(found, prices)}
    whole = refusal_of(web.graph, prices.machine)
    # What is told of the whole graph is not told again of its only node.
    apart = [name for name in why if why[name] != whole and (name in missing or not missing)]
    reasons = [f"{name}: {why[name]}" for name in apart]
    first = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    told = f"no kernel takes {first}" if missing else "its pieces do not go together"
    lines = [
        *([whole] if whole else []),
        f"graph {web.graph.name} cannot be cut into several kernels: {told}",
    ]
    return "\n  ".join([*lines, *reasons[:8]])


def _complaints(found: Candidates, prices: Prices) -> dict[str, str]:
    return {
        piece.graph.outputs[-1]: prices[piece].complaint for piece in found.pieces if prices[piece].complaint
    }
