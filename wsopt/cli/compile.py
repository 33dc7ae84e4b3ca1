"""`wsopt compile`: from a graph to a folder with a build of one kernel, of several, or of a range of extents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wsopt.cli.options import AsJson, Graph, MachineName, Scheduler, listed
from wsopt.terminal import print_json, print_text, progress, tell

if TYPE_CHECKING:
    from wsopt.build import Build
    from wsopt.graph.symbolic import SymbolicGraph
    from wsopt.graph.types import Graph as TensorGraph
    from wsopt.machine.types import Machine
    from wsopt.partition.build import CutBuild
    from wsopt.program.conditions import Conditions


Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="the folder to write (default: GRAPH.wsopt)"),
]
TimeLimit = Annotated[
    float | None, typer.Option(min=0.001, metavar="S", help="seconds for the whole command")
]
Under = Annotated[
    list[str] | None,
    typer.Option(
        "--under", metavar="SPEC", help="conditions, such as consumers=2,ring=3: the best under them"
    ),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="neither read nor write the cache")]
Tuned = Annotated[bool, typer.Option("--tuned", help="choose by what `tune` has measured")]
Card = Annotated[
    str | None, typer.Option(metavar="NAME", help="with --tuned: the GPU, if several were measured")
]
Kernels = Annotated[
    int | None,
    typer.Option(min=1, max=64, metavar="N", help="of a graph with dims: kernels at most (default 4)"),
]
Cut = Annotated[
    bool, typer.Option("--cut", help="look for a cut into kernels also where one kernel computes all")
]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of every search: the card, seconds for all, the cache, a cluster; and where the build goes."""

    machine: Machine
    target: Path
    seconds: float | None
    use_cache: bool
    scheduler: str | None
    as_json: bool

    def told(self, summary: dict[str, Any], seconds: float, text: str) -> None:
        """Print what was found, as JSON or as text."""
        if self.as_json:
            print_json({**summary, "solve_s": round(seconds, 3), "directory": str(self.target)})
        else:
            print_text(text)


def compile_(
    graph: Graph,
    output: Output = None,
    machine: MachineName = "h200",
    time_limit: TimeLimit = None,
    specs: Under = None,
    no_cache: NoCache = False,
    tuned: Tuned = False,
    card: Card = None,
    kernels: Kernels = None,
    cut: Cut = False,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Compile a graph into a build folder.

    It has graph.json, schedule.json, kernel.py, report.txt and search.json, and is GRAPH.wsopt in the current folder
    if -o names no other.

    A graph that no single kernel computes is cut into several, with one run(); so are some for which several are
    clearly faster. One with named dimensions (dims) is compiled for their ranges, to a few kernels with one run().
    """
    from wsopt.folder import check_target
    from wsopt.graph.symbolic import SymbolicGraph, load_any
    from wsopt.machine.load import load_machine
    from wsopt.schedule.spec import parse_conditions

    under = listed(specs)
    _check_options(time_limit=time_limit, tuned=tuned, card=card, under=under, scheduler=scheduler, cut=cut)
    conditions = None if under is None else parse_conditions(under, "--under")
    target = output or Path(f"{graph.stem}.wsopt")
    read = load_any(graph)
    asked = _Asked(load_machine(machine), target, time_limit, not no_cache, scheduler, as_json)
    check_target(target)
    if isinstance(read, SymbolicGraph):
        _no_options_of_one_graph(tuned=tuned, under=under is not None, cut=cut)
        _compile_range(read, asked, kernels)
        return
    if kernels is not None:
        raise typer.BadParameter("is for a graph with named dimensions (dims)", param_hint="--kernels")
    _compile_graph(read, asked, conditions, cut=cut, tuned=tuned, card=card)


def _compile_graph(
    graph: TensorGraph,
    asked: _Asked,
    under: Conditions | None,
    *,
    cut: bool,
    tuned: bool,
    card: str | None,
) -> None:
    from wsopt.request import Request

    with progress() as show:
        found = Request(
            graph,
            asked.machine,
            under=under,
            seconds=asked.seconds,
            cut=cut,
            tuned=tuned,
            card=card,
            use_cache=asked.use_cache,
            scheduler=asked.scheduler,
            progress=show,
            tell=tell,
        ).build()
    _write(found, asked)


def _write(found: Build | CutBuild, asked: _Asked) -> None:
    """Write a build's folder, and tell of it."""
    from wsopt.build import Build
    from wsopt.partition.command import compiled_text

    found.save(asked.target)
    text = (
        _summary_text(found.summary, found.seconds, asked.target)
        if isinstance(found, Build)
        else compiled_text(found, asked.target)
    )
    asked.told(found.summary, found.seconds, text)


def _compile_range(graph: SymbolicGraph, asked: _Asked, kernels: int | None) -> None:
    from wsopt.errors import LoweringError
    from wsopt.partition.make import as_numbers
    from wsopt.pool.cluster import workers_at
    from wsopt.ranges.command import compile_range, compiled_text
    from wsopt.ranges.make import DEFAULT_KERNELS

    with progress() as show, workers_at(asked.scheduler) as workers:
        try:
            found = compile_range(
                graph,
                asked.machine,
                asked.target,
                kernels=kernels or DEFAULT_KERNELS,
                seconds=asked.seconds,
                use_cache=asked.use_cache,
                workers=workers,
                progress=show,
            )
        except LoweringError as error:
            hint = as_numbers(graph, asked.machine)
            raise LoweringError(f"{error}\n  {hint}") if hint else error from None
    asked.told(found.summary, found.seconds, compiled_text(found, asked.target))


def _check_options(**options: object) -> None:
    """Refuse options that do not go together."""
    from wsopt.request import clashes

    def spelled(name: str) -> str:
        return f"--{name.replace('_', '-')}"

    given = (name for name, value in options.items() if value not in (None, False))
    for name, why in clashes(given, spelled):
        raise typer.BadParameter(why, param_hint=spelled(name))


def _no_options_of_one_graph(**given: bool) -> None:
    """Refuse options that are about a graph of numbers, where one has named dimensions."""
    for name in (name for name, there in given.items() if there):
        raise typer.BadParameter("is for graphs of numbers, not for one with dims", param_hint=f"--{name}")


def _summary_text(summary: dict[str, Any], seconds: float, where: Path) -> str:
    kernel = summary["kernels"][0]
    roles = ", ".join(f"{p['role']} {p['warps']}w/{p['registers']}r" for p in kernel["partitions"])
    rings = ", ".join(f"{name} x{depth}" for name, depth in kernel["rings"].items())
    checks, made = summary["verified"]["interpreter"], kernel["ptxas"]
    skipped = f"  skipped for lack of time: {', '.join(summary['skipped'])}\n" if "skipped" in summary else ""
    under = f" under {summary['conditions']}" if "conditions" in summary else ""
    return (
        f"{summary['name']} on {summary['machine']}{under}: {summary['status']}, gap {summary['gap']:.1%}, "
        f"predicted {summary['predicted_us']:.1f} us (roofline {summary['roofline_us']:.1f} us), {seconds:.1f} s\n"
        f"  II {kernel['ii_cycles']} cycles; {roles}; {rings}; {kernel['shared_memory_bytes']} bytes shared\n"
        f"  checked: schedule, {checks['seeds']} interleavings (error {checks['max_relative_error']:.1e}, "
        f"{checks['lines']['run']} of {checks['lines']['of']} lines), "
        f"machine code ({made['registers']} registers, {made['tensor_instructions']} tensor instructions)\n{skipped}"
        f"  written to {where}"
    )
