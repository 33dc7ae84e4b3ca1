"""Which pieces are taken: all, or those whose kernel beats what Inductor would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wsopt.build import Build
from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.types import Graph
from wsopt.lowering.structures import structures
from wsopt.machine.load import load_machine
from wsopt.machine.types import Machine
from wsopt.perf.price import lower
from wsopt.perf.timing import roofline_us
from wsopt.torch.builds import build_all
from wsopt.torch.options import Options
from wsopt.torch.pieces import Piece
from wsopt.torch.rates import inductor_us


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of a piece: its build if it was made, microseconds of its kernel and of Inductor's, and why it is
    not taken; empty if it is. `measured` says that both times are measured ones.
    """

    build: Build | None = None
    ours_us: float | None = None
    theirs_us: float | None = None
    refusal: str = ""
    measured: bool = False


def judge(pieces: Sequence[Piece], options: Options) -> list[Judged]:
    """What becomes of pieces, in their order. Nothing is built that no option asks for."""
    if options.take == "all" and options.execute == "reference":
        return [Judged() for _ in pieces]
    machine = load_machine(options.machine)
    found = [_at_best(piece.graph, machine) if options.take == "predicted" else Judged() for piece in pieces]
    open_ones = [number for number, one in enumerate(found) if not one.refusal]
    graphs = [pieces[number].graph for number in open_ones]
    builds = build_all(graphs, options.machine, options.scheduler or options.workers)
    for number, build in zip(open_ones, builds, strict=True):
        found[number] = _built(pieces[number], found[number], build, options)
    return found


def _at_best(graph: Graph, machine: Machine) -> Judged:
    """A piece as far as it is known without its schedule: no kernel is faster than the roofline."""
    theirs = inductor_us(graph, machine)
    region = find_region(graph)
    first = next(iter(structures(region, machine)), None)
    if first is None:
        raise LoweringError("no tile of it is legal")
    least = roofline_us(lower(region, first, machine), machine) + machine.kernel_launch_us
    told = f"no kernel is faster than {least:.1f} us, and at Inductor's best rates it takes {theirs:.1f} us"
    return Judged(None, None, theirs, told if least >= theirs else "")


def _built(piece: Piece, judged: Judged, build: Build | str, options: Options) -> Judged:
    if isinstance(build, str):
        return Judged(refusal=build)
    ours = float(build.summary["predicted_us"])
    if options.take == "all":
        return Judged(build, ours)
    if options.take == "measure":
        from wsopt.torch.measure import measured_us

        ours, theirs = measured_us(piece, build)
        told = "" if ours < theirs else f"measured {ours:.1f} us, and {theirs:.1f} us by Inductor"
        return Judged(build, ours, theirs, told, True)
    assert judged.theirs_us is not None, "what is chosen by prediction has the time at Inductor's rates"
    told = f"predicted {ours:.1f} us, and at Inductor's best rates it takes {judged.theirs_us:.1f} us"
    return Judged(build, ours, judged.theirs_us, "" if ours < judged.theirs_us else told)
