"""`wsopt.compile`: the whole program as one function for Python, with a graph in any of the forms it comes in."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any

from wsopt.build import Build
from wsopt.driver import DEFAULT_MACHINE
from wsopt.errors import InputError, Problem
from wsopt.folder import check_target
from wsopt.graph.builder import GraphBuilder
from wsopt.graph.parse import load_graph, parse_graph
from wsopt.graph.symbolic import SymbolicGraph, load_any, parse_any
from wsopt.graph.types import Graph
from wsopt.machine.load import load_machine
from wsopt.machine.types import Machine
from wsopt.partition.build import CutBuild
from wsopt.pool.cluster import workers_at
from wsopt.ranges.build import RangeBuild
from wsopt.ranges.make import DEFAULT_KERNELS, MOST_KERNELS, build_range
from wsopt.request import Progress, Request, clashes
from wsopt.schedule.spec import parse_conditions

AnyGraph = Graph | GraphBuilder | str | os.PathLike[str] | Mapping[str, Any]


def compile(
    graph: AnyGraph,
    *,
    machine: str | os.PathLike[str] | Machine = DEFAULT_MACHINE,
    directory: str | os.PathLike[str] | None = None,
    under: str | None = None,
    time_limit: float | None = None,
    tuned: bool = False,
    card: str | None = None,
    cut: bool = False,
    use_cache: bool = True,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> Build | CutBuild:
    """Compile a graph to a kernel that is proved, checked and ready to run, or to several, one after the other.

    graph: a `wsopt.Graph`, finished or not, the path of a graph.json, or the values of one as a dict.
    machine: a card's name (`wsopt machines` lists them), the path of a machine file, or a record.
    directory: where to write the build folder; a build that is there is replaced. None writes nothing.
    under: conditions such as "consumers=2,ring=3", of which the schedule is the best; docs/against.md has the fields.
    time_limit: seconds for all of it; what there was no time for, `summary["skipped"]` says. None takes the time that
        it takes to prove the best schedule.
    cut: look for a cut into several kernels also where one computes all. Without it a graph gets a `Build` where one
        kernel computes all of it, and a `CutBuild` where none does, or where several are clearly faster by the model
        (docs/cuts.md has the kinds of graphs for which that is asked).
    tuned: choose by what `wsopt tune` has measured; `card` says on which GPU, if there are several.
    use_cache: read and write the cache of finished builds.
    scheduler: the address of a Dask scheduler, such as "tcp://10.0.0.1:8786", whose workers search instead.
    progress: called with a stage's name, the steps done and their number.

    Raises InputError for a wrong graph, machine, option, condition or directory; LoweringError or InfeasibleError,
    with the reason, for a graph or conditions that no kernel is made of; RequirementError without Triton; CheckError
    if a check fails; TypeError for an argument of another kind. Nothing is written then.
    """
    read, record = as_graph(graph), _as_machine(machine)
    _check_options(time_limit=time_limit, tuned=tuned, card=card, under=under, scheduler=scheduler, cut=cut)
    conditions = None if under is None else parse_conditions(under, "under")
    _check_directory(directory)
    found = Request(
        read,
        record,
        under=conditions,
        seconds=time_limit,
        cut=cut,
        tuned=tuned,
        card=card,
        use_cache=use_cache,
        scheduler=scheduler,
        progress=progress or _silent,
        tell=_warn,
    ).build()
    if directory is not None:
        found.save(directory)
    return found


def compile_range(
    graph: AnyGraph | SymbolicGraph,
    *,
    kernels: int = DEFAULT_KERNELS,
    time_limit: float | None = None,
    machine: str | os.PathLike[str] | Machine = DEFAULT_MACHINE,
    directory: str | os.PathLike[str] | None = None,
    use_cache: bool = True,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> RangeBuild:
    """Compile a graph with named dimensions to a few kernels that cover their ranges, with one `run`.

    kernels: how many there are at most. The other arguments are those of `compile`.

    Raises as `compile`; InputError for a graph without named dimensions too.
    """
    _check_kind("kernels", kernels, int, f"a number from 1 to {MOST_KERNELS}")
    _check_kind("scheduler", scheduler, str, "the address of a Dask scheduler, or None")
    if not 1 <= kernels <= MOST_KERNELS:
        raise InputError("kernels", [Problem("", f"{kernels}; give a number from 1 to {MOST_KERNELS}")])
    _check_time(time_limit)
    _check_directory(directory)
    read, record = _as_symbolic(graph), _as_machine(machine)
    with workers_at(scheduler) as workers:
        found = build_range(
            read,
            record,
            kernels=kernels,
            seconds=time_limit,
            use_cache=use_cache,
            workers=workers,
            progress=progress or _silent,
        )
    if directory is not None:
        found.save(directory)
    return found


def _as_symbolic(graph: AnyGraph | SymbolicGraph) -> SymbolicGraph:
    """The graph with named dimensions in any of its forms. InputError for one without."""
    match graph:
        case SymbolicGraph():
            return graph
        case GraphBuilder():
            return graph.symbolic()
        case Mapping():
            found = parse_any(dict(graph), "graph")
        case str() | os.PathLike():
            found = load_any(graph)
        case _:
            found = as_graph(graph)
    if not isinstance(found, SymbolicGraph):
        raise InputError(f"graph {found.name}", [Problem("/dims", "there are none: wsopt.compile takes it")])
    return found


def as_graph(graph: AnyGraph) -> Graph:
    """The graph in any of its forms, checked. InputError for a wrong one, TypeError for anything else."""
    match graph:
        case Graph():
            return graph
        case GraphBuilder():
            return graph.build()
        case Mapping():
            return parse_graph(dict(graph), "graph")
        case str() if graph.lstrip().startswith("{"):
            raise InputError(
                "graph", [Problem("", "a string is a file's path here; for JSON text give json.loads(text)")]
            )
        case str() | os.PathLike():
            return load_graph(graph)
    raise TypeError(
        "wsopt.compile takes a wsopt.Graph, the path of a graph.json, or the dict that one holds; "
        f"this is {_called(graph)}"
    )


def _called(value: object) -> str:
    """A value of a wrong kind in a few words; what hands graphs over elsewhere gets a word on how it is done here."""
    kind = type(value)
    if value is None:
        return "None"
    if kind.__module__.partition(".")[0] == "torch":
        return f"a {kind.__module__}.{kind.__qualname__}: write what it computes with wsopt.Graph"
    return f"{'an' if kind.__qualname__[0].lower() in 'aeiou' else 'a'} {kind.__qualname__}"


def _as_machine(machine: str | os.PathLike[str] | Machine) -> Machine:
    match machine:
        case Machine():
            return machine
        case str():
            return load_machine(machine)
        case os.PathLike():
            return load_machine(Path(machine))
    raise TypeError(
        f"machine is a card's name, the path of a machine file, or a record; this is {_called(machine)}"
    )


def _check_options(**options: Any) -> None:
    """Raise InputError for options that are out of range or do not go together, TypeError for others."""
    _check_time(options["time_limit"])
    _check_kind("under", options["under"], str, 'conditions such as "consumers=2,ring=3", or None')
    _check_kind("card", options["card"], str, "a card's name, or None")
    _check_kind("scheduler", options["scheduler"], str, "the address of a Dask scheduler, or None")
    given = (name for name, value in options.items() if value not in (None, False))
    for name, why in clashes(given):
        raise InputError(name, [Problem("", why)])


def _check_kind(name: str, value: object, kind: type | UnionType, wanted: str) -> None:
    """Raise TypeError for an option of another kind; None is of every kind."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} is {wanted}; this is {_called(value)}")


def _check_directory(directory: str | os.PathLike[str] | None) -> None:
    """Raise InputError for a folder that no build can be written to, TypeError for what is no path."""
    _check_kind("directory", directory, str | os.PathLike, "a folder's path, or None")
    if directory is not None:
        check_target(Path(directory))


def _check_time(time_limit: float | None) -> None:
    """Raise InputError for a limit that is no time, TypeError for what is no number."""
    _check_kind("time_limit", time_limit, int | float, "seconds, or None")
    if time_limit is not None and not time_limit > 0:
        raise InputError("time_limit", [Problem("", f"{time_limit!r}; give seconds, more than 0, or None")])


def _silent(_stage: str, _done: int, _total: int) -> None:
    """Shows no progress."""


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)
