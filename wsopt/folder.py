"""Build folders: what `compile` writes, whole or not at all, and how it is read back and checked again."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from wsopt.checker import verify
from wsopt.errors import InputError, Problem
from wsopt.exchange import clear_up, replacement
from wsopt.frontend.needed import region_data, work_data
from wsopt.frontend.region import find_region
from wsopt.graph.parse import load_graph
from wsopt.graph.types import Graph
from wsopt.lowering.structures import structures
from wsopt.machine.check import cross_faults
from wsopt.machine.types import Machine
from wsopt.perf.price import lower
from wsopt.program.conditions import FREE, Conditions, said
from wsopt.program.types import Structure
from wsopt.report.facts import structure_fields
from wsopt.report.simulated import Verified
from wsopt.report.tuned import Tuned
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.spec import parse_conditions
from wsopt.schedule.types import Schedule
from wsopt.schedule.verified import VerifiedSchedule

FORMAT = "wsopt.schedule/1"
SEARCH = "search.json"
"""What the search made of every structure: for pictures, and for nobody who runs a kernel."""

FILES = ("graph.json", "schedule.json", "kernel.py", "report.txt", SEARCH)
BESIDE = ("trace", "__pycache__")
"""Folders that other commands write beside a build's files, or Python where its kernel.py is imported, and that go
with it.
"""

RANGE, CUT, KERNELS = "range.json", "cut.json", "kernels"
"""The records of builds of several kernels, for ranges and one after the other, and the folder in which each kernel
has one of its own, a build like any.
"""


class _WithFormat(Protocol):
    """A record that says in which format it is written."""

    @property
    def format(self) -> str: ...


_Record = TypeVar("_Record", bound=_WithFormat)

_SCHEDULE = TypeAdapter(Schedule)
_CERTIFICATE = TypeAdapter(Certificate)
_MACHINE = TypeAdapter(Machine)
_SUMMARY = TypeAdapter(dict[str, Any])
_TUNED = TypeAdapter(Tuned)
_VERIFIED = TypeAdapter(Verified)
_LEAST_MARGIN = -64
"""Registers by which live tiles may be overrated at most: a build that claims more passes no register check."""


@dataclass(frozen=True, slots=True)
class BuildFolder:
    """A build read back: its schedule has passed the checker again. `summary` is what `--json` prints."""

    path: Path
    graph: Graph
    verified: VerifiedSchedule
    certificate: Certificate
    kernel: str
    summary: dict[str, Any]


def machine_text(machine: Machine) -> str:
    """A machine's record as one line of JSON, the same for the same record."""
    return json.dumps(_MACHINE.dump_python(machine, mode="json"), sort_keys=True)


def schedule_text(verified: VerifiedSchedule, certificate: Certificate, summary: Mapping[str, Any]) -> str:
    """The text of schedule.json: the schedule, its certificate, the machine, and the summary.

    The region and its work are there for those who cannot lower the graph again: they are never read back.
    """
    data = {
        "format": FORMAT,
        "summary": dict(summary),
        "schedule": _SCHEDULE.dump_python(verified.schedule, mode="json"),
        "certificate": _CERTIFICATE.dump_python(certificate, mode="json"),
        "machine": _MACHINE.dump_python(verified.machine, mode="json"),
        "work": work_data(verified.program.region),
        "region": region_data(verified.program.region),
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def read_schedule(text: str) -> Schedule:
    """The schedule in the text of a schedule.json that this process has made; nothing is checked again."""
    return _SCHEDULE.validate_python(json.loads(text)["schedule"])


def _refuse(path: Path, why: str) -> InputError:
    return InputError(str(path), [Problem("", why)])


def check_target(path: Path, files: Collection[str] = (), what: str = "a build") -> None:
    """Raise InputError if `path` is something that `what` must not replace: it has these files, or if none are given
    those of a build, of one kernel or of several.

    What a killed process has left beside it is put right first: it may have the build that was at `path`.
    """
    clear_up(path.parent)
    try:
        _check_target(path, files or _files_of_a_build(path), what)
    except OSError as error:
        raise _refuse(path, f"cannot be written: {error.strerror}") from error


def _files_of_a_build(path: Path) -> tuple[str, ...]:
    """What a build in a folder may consist of; the folder of several kernels' builds only beside their record."""
    records = [name for name in (RANGE, CUT) if (path / name).is_file()]
    return (*FILES, *BESIDE, *records, *([KERNELS] if records else ()))


def _check_target(path: Path, files: Collection[str], what: str) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise _refuse(path, f"is no folder; give -o a folder that does not exist or that holds {what}")
    if path.is_dir():
        if path.samefile(Path.cwd()):
            raise _refuse(path, f"is the current folder, and {what} replaces its folder; give -o another one")
        strange = sorted(item.name for item in path.iterdir() if item.name not in files)
        if strange:
            raise _refuse(path, f"holds {strange[0]}, which is no part of {what}; it is not replaced")
    elif not path.parent.is_dir():
        raise _refuse(path, f"the folder {path.parent} does not exist")


def write_folder(path: Path, files: Mapping[str, str]) -> None:
    """Write a build to `path`, in one step; a build that is there is replaced. InputError as `check_target`."""
    check_target(path)
    replace_folder(path, files)


def replace_folder(path: Path, files: Mapping[str, str | bytes]) -> None:
    """Put these files, whose names may have folders, in the place of a folder, whole or not at all.

    Raises InputError if that cannot be written; whether it may be is for the caller to know.
    """
    try:
        with replacement(path) as fresh:
            for name, content in files.items():
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, bytes):
                    (fresh / name).write_bytes(content)
                else:
                    (fresh / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise _refuse(path, f"cannot be written: {error.strerror}") from error


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise _refuse(
            path, f"cannot be read: {error.strerror}; is this a folder that compile wrote?"
        ) from error
    except UnicodeDecodeError as error:
        raise _refuse(path, f"is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _read_json(path: Path) -> Any:
    text = _read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refuse(path, f"is not JSON: {error}") from error


def _validated(path: Path, adapter: TypeAdapter[Any], data: Any, key: str) -> Any:
    try:
        return adapter.validate_python(data[key])
    except ValidationError as error:
        raise _misfit(path, error, key) from error
    except (KeyError, TypeError) as error:
        raise _refuse(path, f"has no {key}") from error


def _misfit(path: Path, error: ValidationError, *keys: str) -> InputError:
    """The first place of a file whose value is not of the type of its field; `keys` lead to what was looked at."""
    first = error.errors()[0]
    place = "".join(f"/{key}" for key in (*keys, *first["loc"]))
    earlier = "is missing, as in what an earlier release wrote; compile its graph.json again"
    return InputError(str(path), [Problem(place, earlier if first["type"] == "missing" else first["msg"])])


def _verified(
    where: Path, graph: Graph, schedule: Schedule, machine: Machine, certificate: Certificate
) -> VerifiedSchedule:
    """The schedule, checked again; InputError if the graph cannot be cut to its structure."""
    region = find_region(graph)
    # One that the prediction cannot tell from its own would pass the checker, a group of tile rows for instance.
    known = list(structures(region, machine))
    if schedule.structure not in known:
        raise InputError(str(where), [Problem("/schedule/structure", _unlike(schedule.structure, known))])
    conditions = _conditions(where, certificate)
    program = replace(lower(region, schedule.structure, machine), conditions=conditions)
    return verify(schedule, program, machine, certificate.margin)


def _unlike(structure: Structure, known: Sequence[Structure]) -> str:
    """What keeps a graph from being cut to a structure: what the nearest one that it can be cut to has otherwise."""
    own = structure_fields(structure)
    every = (
        {name: value for name, value in structure_fields(one).items() if value != own[name]} for one in known
    )
    nearest = min(every, key=len, default={})
    apart = ", ".join(
        f"{name} {said(own[name])} (the nearest has {said(value)})" for name, value in nearest.items()
    )
    return (
        f"the graph cannot be cut to this structure, for its {apart or 'fields'}; graph.json or schedule.json was "
        "changed after the build was made: compile graph.json again"
    )


def _conditions(where: Path, certificate: Certificate) -> Conditions:
    """The conditions under which a build was made. InputError for a text that no search has written."""
    text = certificate.conditions
    return parse_conditions(text, str(where), "/certificate/conditions") if text else FREE


def read_record(where: Path, adapter: TypeAdapter[_Record], form: str) -> _Record:
    """The record of a build of several kernels in this `form`. InputError for a file that is missing or damaged."""
    try:
        record = adapter.validate_json(where.read_bytes())
    except OSError as error:
        raise _refuse(where, f"cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise _misfit(where, error) from error
    if record.format != form:
        raise InputError(str(where), [Problem("/format", f"is not {form!r}")])
    return record


def one_kernel(path: Path) -> None:
    """Raise InputError for the folder of a build of several kernels."""
    if any((path / name).is_file() for name in (RANGE, CUT)):
        raise _refuse(path, "holds several kernels; give one of them, a folder in it such as kernels/0")


def read_folder(path: Path) -> BuildFolder:
    """Read a build and check its schedule against its graph again.

    Raises InputError for files that are missing or damaged and for a build of several kernels, CheckError for a
    schedule that is not right.
    """
    one_kernel(path)
    if not path.is_dir():
        raise _refuse(path, "is no folder; give one that `wsopt compile` wrote")
    where = path / "schedule.json"
    data = _read_json(where)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(str(where), [Problem("/format", f"is not {FORMAT!r}")])
    graph = load_graph(path / "graph.json")
    machine = _validated(where, _MACHINE, data, "machine")
    schedule = _validated(where, _SCHEDULE, data, "schedule")
    for fault in cross_faults(data["machine"]):
        raise InputError(str(where), [Problem(f"/machine{fault.pointer}", fault.message)])
    certificate = _validated(where, _CERTIFICATE, data, "certificate")
    if certificate.margin < _LEAST_MARGIN:
        told = f"is {certificate.margin}; it is at least {_LEAST_MARGIN}"
        raise InputError(str(where), [Problem("/certificate/margin", told)])
    summary = _validated(where, _SUMMARY, {"summary": {}, **data}, "summary")
    if "tuned" in summary:
        _validated(where, _TUNED, summary, "tuned")
    if "verified" in summary:
        _validated(where, _VERIFIED, summary, "verified")
    verified = _verified(where, graph, schedule, machine, certificate)
    kernel = _read_text(path / "kernel.py")
    return BuildFolder(path, graph, verified, certificate, kernel, summary)
