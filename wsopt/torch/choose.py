"""Which pieces are taken: all, or those whose kernel beats what Inductor would take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from wsopt.build import Build
from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.types import Graph
from wsopt.lowering.structures import structures
from wsopt.machine.load import load_machine
from wsopt.perf.price import lower
from wsopt.perf.timing import roofline_us
from wsopt.ranges.build import RangeBuild
from wsopt.solve.search import Search
from wsopt.torch.among import ALONE, Among, among_others
from wsopt.torch.builds import build_all
from wsopt.torch.options import Options
from wsopt.torch.outcomes import Outcome, Refusal, Wanted, keep_by_bounds, known, known_by_bounds, too_slow
from wsopt.torch.piece import Piece
from wsopt.torch.rates import copies_us, inductor_us

_FEW = 600
"""Structures of which all bounds take less than a second. Rows and attention have so few, products thousands."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of a piece: its build if it was made, microseconds of its kernel and of Inductor's, and why it is
    not taken; empty if it is. `measured` says that both times are measured ones, `is_open` that its build, or a
    measurement, has still to decide. Where it is held against Inductor by prediction, `among` makes of the time that
    is predicted for its kernel alone the one that it is expected to take.
    """

    build: Build | RangeBuild | None = None
    ours_us: float | None = None
    theirs_us: float | None = None
    refusal: str = ""
    measured: bool = False
    is_open: bool = False
    among: Among = ALONE


def estimate(pieces: Sequence[Piece], options: Options) -> list[Judged]:
    """What is known of pieces before anything is built for them, in their order."""
    if options.take == "all" and options.execute == "reference":
        return [Judged() for _ in pieces]
    return [_estimated(piece, options) for piece in pieces]


def judge(pieces: Sequence[Piece], estimates: Sequence[Judged], options: Options) -> list[Judged]:
    """What becomes of pieces, in their order: of those that are open kernels are built, several at a time."""
    found = list(estimates)
    numbers = [number for number, one in enumerate(found) if one.is_open]
    wanted = [_wanted(pieces[number], found[number]) for number in numbers]
    outcomes = build_all(wanted, options.machine, options.scheduler or options.workers)
    for number, outcome in zip(numbers, outcomes, strict=True):
        found[number] = _built(pieces[number], found[number], outcome, options)
    return found


def unbuilt(pieces: Sequence[Piece], estimates: Sequence[Judged], options: Options) -> list[Piece]:
    """The pieces that are open and of whose builds nothing is known."""
    return [
        piece
        for piece, one in zip(pieces, estimates, strict=True)
        if one.is_open and known(_wanted(piece, one), options.machine) is None
    ]


def _estimated(piece: Piece, options: Options) -> Judged:
    predicted = options.take == "predicted" or (options.take == "measure" and piece.changing is not None)
    best = _at_best(piece, options.machine) if predicted else Judged()
    return best if best.refusal else replace(best, is_open=True)


def _at_best(piece: Piece, machine: str) -> Judged:
    """A piece as far as it is known without its schedule."""
    theirs = inductor_us(piece.typical, load_machine(machine), piece.kernel, piece.attention)
    theirs += copies_us(piece.copied_bytes, load_machine(machine))
    turning, among = _turning_us(piece, machine), among_others(piece.kernel, theirs, load_machine(machine))
    alone = _least_us(piece.kernel, machine, among.predicted_us(theirs - turning))
    least = among.expected_us(alone) + turning
    told = f"no kernel is faster than {least:.1f} us, and at Inductor's best rates it takes {theirs:.1f} us"
    return Judged(
        None, least if least >= theirs else None, theirs, told if least >= theirs else "", among=among
    )


def _turning_us(piece: Piece, machine: str) -> float:
    """Microseconds of the copies that have a piece's results lie as they do in FX."""
    return copies_us(piece.turned_bytes, load_machine(machine))


def _least_us(graph: Graph, name: str, theirs: float) -> float:
    """Microseconds that no kernel is faster than on the machine of this name: the roofline, and where that is less
    than `theirs` and structures are few, the best of their bounds, which is kept, as attention takes seconds for it.
    """
    region, machine = find_region(graph), load_machine(name)
    every = list(itertools.islice(structures(region, machine), _FEW + 1))
    if not every:
        raise LoweringError("no tile of it is legal")
    least = roofline_us(lower(region, every[0], machine), machine) + machine.kernel_launch_us
    if least >= theirs or len(every) > _FEW:
        return least
    bound = known_by_bounds(graph, name)
    if bound is None:
        bound = Search(region, machine).least_bound_us()
        keep_by_bounds(graph, name, bound)
    return least if bound == math.inf else bound


def _wanted(piece: Piece, judged: Judged) -> Wanted:
    if judged.theirs_us is None:
        return Wanted(piece.built)
    return Wanted(piece.built, judged.among.predicted_us(judged.theirs_us))


def _built(piece: Piece, judged: Judged, build: Outcome, options: Options) -> Judged:
    if isinstance(build, Refusal):
        return _refused(judged, build)
    ours = _typical_us(piece, build) if isinstance(build, RangeBuild) else build.summary["predicted_us"]
    turning = _turning_us(piece, options.machine)
    if options.take == "all":
        return Judged(build, ours)
    if options.take == "measure" and isinstance(build, Build):
        from wsopt.torch.measure import measured_us

        ours, theirs = measured_us(piece, build)
        ours += turning
        told = "" if ours < theirs else f"measured {ours:.1f} us, and {theirs:.1f} us by Inductor"
        return Judged(build, ours, theirs, told, True)
    assert judged.theirs_us is not None, "what is chosen by prediction has the time at Inductor's rates"
    ours = judged.among.expected_us(ours) + turning
    told = f"predicted {ours:.1f} us, and at Inductor's best rates it takes {judged.theirs_us:.1f} us"
    return Judged(build, ours, judged.theirs_us, "" if ours < judged.theirs_us else told)


def _refused(judged: Judged, refusal: Refusal) -> Judged:
    """A piece of which there is no kernel, or none that is fast enough."""
    if refusal.bound_us is None or judged.theirs_us is None:
        return Judged(None, None, None, refusal.text)
    least = judged.among.expected_us(refusal.bound_us)
    return Judged(None, least, judged.theirs_us, too_slow(least, judged.theirs_us).text)


def _typical_us(piece: Piece, build: RangeBuild) -> float:
    """The predicted time of the kernel that serves the typical extents, there."""
    assert piece.changing is not None, "a build of several kernels is that of a piece whose extents change"
    record, changing = build.record, piece.changing
    return record.predicted_us[changing.cell(record.ends, changing.typically)]
