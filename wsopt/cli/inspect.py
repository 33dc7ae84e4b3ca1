"""`wsopt inspect`: a build's report, what it would gain from more of a budget, and what it is held against."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wsopt.cli.options import AsJson, Folder, listed
from wsopt.deadline import UNLIMITED, Deadline
from wsopt.errors import InputError, Problem
from wsopt.terminal import print_json, print_text, progress

if TYPE_CHECKING:
    from wsopt.folder import BuildFolder
    from wsopt.solve.sensitivity import Sensitivity


WhatIf = Annotated[
    bool, typer.Option("--what-if", help="solve again with more of each budget: what it would buy")
]
RunnerUp = Annotated[
    bool, typer.Option("--runner-up", help="solve the best of the others, and say what it does")
]
Specs = Annotated[
    list[str] | None,
    typer.Option(
        "--against",
        metavar="SPEC",
        help="conditions such as consumers=2,ring=3, or another build: compare",
    ),
]
Keep = Annotated[
    Path | None,
    typer.Option(metavar="OUT", help="with --against: where to write the build compared with"),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(min=0.001, metavar="S", help="with --what-if and --against: seconds for the whole command"),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="write a page: time line, source, budgets, search"),
]
Perfetto = Annotated[
    Path | None, typer.Option("--perfetto", metavar="FILE", help="write a trace for ui.perfetto.dev")
]


def inspect(
    folder: Folder,
    what_if: WhatIf = False,
    runner_up: RunnerUp = False,
    specs: Specs = None,
    keep: Keep = None,
    time_limit: TimeLimit = None,
    html: Html = None,
    perfetto: Perfetto = None,
    as_json: AsJson = False,
) -> None:
    """Show a build's schedule, and why it is what it is.

    With --html as a page, with --perfetto as a trace; --what-if and --against add to them.
    """
    from wsopt.folder import read_folder
    from wsopt.partition.build import is_cut
    from wsopt.ranges.build import is_range

    against, written = listed(specs), html is not None or perfetto is not None
    _check_options(written, what_if, runner_up, against, keep, time_limit)
    deadline = UNLIMITED if time_limit is None else Deadline(time_limit)
    if written:
        _written(folder, html, perfetto, _Solved(what_if, against, keep, deadline), as_json)
    elif what_if:
        _what_if(read_folder(folder), deadline, as_json)
    elif runner_up:
        _runner_up(read_folder(folder), as_json)
    elif against is not None:
        _against(read_folder(folder), against, keep, deadline, as_json)
    elif is_range(folder) or is_cut(folder):
        _several(folder, as_json)
    else:
        _report(read_folder(folder), as_json)


def _check_options(
    written: bool,
    what_if: bool,
    runner_up: bool,
    against: str | None,
    keep: Path | None,
    time_limit: float | None,
) -> None:
    """Refuse options that exclude each other, and those that want another one beside them."""
    if written and runner_up:
        raise typer.BadParameter(
            "does not go with --html and --perfetto; a page has the runner-up beside the roofline",
            param_hint="--runner-up",
        )
    if not written and what_if + runner_up + (against is not None) > 1:
        raise typer.BadParameter(
            "give one of --what-if, --runner-up and --against",
            param_hint="--against" if against is not None else "--runner-up",
        )
    if time_limit is not None and not (what_if or against is not None):
        raise typer.BadParameter(
            "goes with --what-if or --against: without them nothing is solved", param_hint="--time-limit"
        )
    if keep is not None and against is None:
        raise typer.BadParameter(
            "goes with --against: it says where to write the build compared with", param_hint="--keep"
        )


def report(
    paths: Annotated[
        list[Path], typer.Argument(metavar="DIR|FILE...", help="builds, and results of bench --json")
    ],
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="the page to write")],
    as_json: AsJson = False,
) -> None:
    """Write one page about many builds and benchmarks.

    It has a table, a roofline, and predictions beside measurements.
    """
    from wsopt.pages.command import check_file, write_file
    from wsopt.pages.many import report_page

    check_file(html)
    write_file(html, report_page(paths).encode())
    if as_json:
        print_json({"html": str(html)})
    else:
        print_text(f"written to {html}")


@dataclass(frozen=True, slots=True)
class _Solved:
    """Options of what is solved beside a build, for its page or its trace."""

    what_if: bool
    against: str | None
    keep: Path | None
    deadline: Deadline


def _written(folder: Path, html: Path | None, perfetto: Path | None, asked: _Solved, as_json: bool) -> None:
    """Write a page and a trace, with what is asked for beside the build."""
    from wsopt.folder import read_folder
    from wsopt.pages.command import check_file, write_views
    from wsopt.pages.content import Beside
    from wsopt.report.whatif import whatif_data

    for path in filter(None, (html, perfetto)):
        check_file(path)
    beside = Beside()
    if asked.what_if or asked.against is not None:
        found = read_folder(folder)
        other = (
            _other(found, asked.against, asked.keep, asked.deadline) if asked.against is not None else None
        )
        gains = whatif_data(found.verified, _gains(found, asked.deadline)) if asked.what_if else None
        side = (_named(other[1], other[0]), other[0].verified, other[0].certificate) if other else None
        beside = Beside(gains, side)
    done = write_views(folder, html, perfetto, beside)
    if as_json:
        print_json(done)
    else:
        print_text("\n".join(f"written to {path}" for path in done.values()))


def _several(folder: Path, as_json: bool) -> None:
    """The report of a build of several kernels."""
    from wsopt.partition import command as cuts
    from wsopt.partition.build import is_cut
    from wsopt.ranges import command as ranges

    summary, text = cuts.inspected(folder) if is_cut(folder) else ranges.inspected(folder)
    if as_json:
        print_json(summary)
    else:
        print_text(text)


def _report(found: BuildFolder, as_json: bool) -> None:
    from wsopt.report.simulated import simulated_text
    from wsopt.report.text import inspect_text
    from wsopt.report.tuned import tuned_text

    if as_json:
        print_json(found.summary)
        return
    tuned = found.summary.get("tuned")
    text = inspect_text(found.verified, found.certificate) + simulated_text(found.summary)
    print_text(text + (tuned_text(tuned) if tuned else ""))


def _runner_up(found: BuildFolder, as_json: bool) -> None:
    from wsopt.report.sentences import runner_up_data, runner_up_text
    from wsopt.solve.search import runner_up

    other = runner_up(found.verified, found.certificate)
    if as_json:
        print_json(runner_up_data(found.verified, other))
    else:
        print_text(runner_up_text(found.verified, other))


def _gains(found: BuildFolder, deadline: Deadline) -> Sensitivity:
    """What more of each budget would buy, with progress."""
    from wsopt.solve.sensitivity import sensitivity

    with progress() as show:
        return sensitivity(found.verified, found.certificate, show, deadline)


def _what_if(found: BuildFolder, deadline: Deadline, as_json: bool) -> None:
    from wsopt.report.whatif import whatif_data, whatif_text

    gains = _gains(found, deadline)
    if as_json:
        print_json(whatif_data(found.verified, gains))
    else:
        print_text(whatif_text(found.verified, gains))


def _against(found: BuildFolder, spec: str, keep: Path | None, deadline: Deadline, as_json: bool) -> None:
    from wsopt.report.against import Side, against_data, against_text

    other, name = _other(found, spec, keep, deadline)
    ours = Side(_named("this build", found), found.verified, found.certificate)
    theirs = Side(_named(name, other), other.verified, other.certificate)
    if as_json:
        print_json({**against_data(ours, theirs), "directory": str(keep) if keep else None})
    else:
        print_text(against_text(ours, theirs))


def _named(name: str, found: BuildFolder) -> str:
    """A build's name with its conditions, if it was made under any."""
    return f"{name} under {found.certificate.conditions}" if found.certificate.conditions else name


def _other(found: BuildFolder, spec: str, keep: Path | None, deadline: Deadline) -> tuple[BuildFolder, str]:
    """The build that a SPEC stands for, and the name that sentences give it. One that is solved for is written to
    `keep`. InputError for a SPEC that is neither conditions nor another build of the same graph.
    """
    from wsopt.folder import read_folder
    from wsopt.graph.serialize import canonical_bytes

    if not Path(spec).is_dir():
        return _solved(found, spec, keep, deadline), "the build"
    if keep is not None:
        raise typer.BadParameter(f"{spec} is a build already: nothing is solved", param_hint="--keep")
    other = read_folder(Path(spec))
    if canonical_bytes(other.graph) != canonical_bytes(found.graph):
        told = (
            f"is a build of another graph, {other.graph.name}; give one of the same graph, {found.graph.name}"
        )
        raise InputError(spec, [Problem("", told)])
    return other, spec


def _solved(found: BuildFolder, spec: str, keep: Path | None, deadline: Deadline) -> BuildFolder:
    """The build of the best schedule under the conditions of a SPEC, made as `wsopt compile` makes it, or from the
    cache.
    """
    import tempfile

    from wsopt.driver import build
    from wsopt.folder import check_target, read_folder
    from wsopt.schedule.spec import parse_conditions

    if "=" not in spec:
        told = "is neither a folder that compile wrote nor conditions: field=value, as in consumers=2,ring=3"
        raise InputError(f"--against {spec}", [Problem("", told)])
    conditions = parse_conditions(spec, "--against")
    if keep is not None:
        check_target(keep)
    with progress() as show:
        seconds = max(0.0, deadline.end - time.monotonic()) if deadline != UNLIMITED else None
        made = build(found.graph, found.verified.machine, under=conditions, seconds=seconds, progress=show)
    if keep is not None:
        return read_folder(made.save(keep))
    with tempfile.TemporaryDirectory() as scratch:
        return read_folder(made.save(Path(scratch) / "build"))
