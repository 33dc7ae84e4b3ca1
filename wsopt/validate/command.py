"""`wsopt validate-model`: make candidates, measure them, report; or the steps of these that are possible here."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wsopt.errors import InputError, Problem
from wsopt.requirements import require_matplotlib, require_torch
from wsopt.validate.files import load_candidates, load_measured, write_json, write_text
from wsopt.validate.validation import Validation, load_validation, shortfalls, validate, validation_to_json

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Request:
    """The command's arguments. `candidates` with graphs is where to write them, without graphs where they are."""

    graphs: tuple[Path, ...]
    machine: str
    count: int
    candidates: Path | None
    measured: Path | None
    again: Path | None
    json_path: Path | None
    plot: Path | None


def run(request: Request, progress: Progress) -> tuple[str, list[str]]:
    """The report, and what a gate would not let pass. Raises InputError for options that do not go together, and
    RequirementError without what measuring or drawing needs.
    """
    if request.plot is not None:
        require_matplotlib("--plot")  # before minutes are spent on measuring
    if request.again is not None:
        return _reported(request, _again(request, request.again, progress))
    if not request.graphs:
        return _reported(request, _read(request))
    if request.measured is not None:
        raise _refuse("give GRAPHs, or --measured FILE with --candidates DIR, not both")
    if request.candidates is not None:
        return _made(request, request.candidates, progress), []
    return _reported(request, _here(request, progress))


def _refuse(why: str) -> InputError:
    return InputError("validate-model", [Problem("", why)])


def _again(request: Request, path: Path, progress: Progress) -> Validation:
    from wsopt.machine.load import load_machine
    from wsopt.validate.again import predict_again

    if request.graphs or request.candidates or request.measured:
        raise _refuse("--again FILE stands alone: its graphs, candidates and times are those of the file")
    return predict_again(load_validation(path), load_machine(request.machine), progress)


def _read(request: Request) -> Validation:
    if request.candidates is None or request.measured is None:
        raise _refuse("give GRAPHs to validate with, or both --candidates DIR and --measured FILE")
    return validate(load_candidates(request.candidates), load_measured(request.measured))


def _made(request: Request, folder: Path, progress: Progress) -> str:
    """Candidates alone, for a machine with a GPU to measure."""
    if request.json_path or request.plot:
        raise _refuse(
            "with --candidates DIR nothing is measured yet, so there is no report for --json and --plot"
        )
    _make(request, folder, progress)
    found = load_candidates(folder)
    lines = []
    for graph in found.graphs:
        refused = f", {len(graph.refused)} refused" if graph.refused else ""
        lines.append(f"{graph.name}: {len(graph.candidates)} of {graph.considered} considered{refused}")
    lines.append(f"measure them on the GPU: python3 -m wsopt.validate.measure {folder} --json measured.json")
    return "\n".join(lines)


def _make(request: Request, folder: Path, progress: Progress) -> None:
    from wsopt.graph.parse import load_graph
    from wsopt.machine.load import load_machine
    from wsopt.validate.make import make_candidates

    graphs = [load_graph(path) for path in request.graphs]
    make_candidates(graphs, load_machine(request.machine), request.count, folder, progress)


def _here(request: Request, progress: Progress) -> Validation:
    """Everything on this machine."""
    from wsopt.validate.measure import measure_candidates

    require_torch("measuring", "--candidates DIR writes what can be measured elsewhere")
    with tempfile.TemporaryDirectory(prefix="wsopt-truth-") as scratch:
        folder = Path(scratch) / "candidates"
        _make(request, folder, progress)
        return validate(load_candidates(folder), measure_candidates(folder, progress=progress))


def _reported(request: Request, found: Validation) -> tuple[str, list[str]]:
    from wsopt.validate.plot import plot_svg
    from wsopt.validate.report import report_text

    drawn = plot_svg(found) if request.plot else None
    if request.json_path is not None:
        write_json(request.json_path, validation_to_json(found))
    if request.plot is not None and drawn is not None:
        write_text(request.plot, drawn)
    return report_text(found), shortfalls(found)
