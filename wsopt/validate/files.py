"""Files of `wsopt validate-model`: candidates, measurements and the finished validation, as JSON.

The standard library is enough for it, so that the measuring half runs where only torch and triton are.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from wsopt.errors import InputError, Problem

INDEX = "candidates.json"
FIRST = "first choice"
CANDIDATES_FORMAT = "wsopt.truth.candidates/1"
MEASURED_FORMAT = "wsopt.truth.measured/1"
VALIDATION_FORMAT = "wsopt.truth/1"
STATUSES = ("ok", "wrong", "hang", "error")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One schedule: the reason of its choice, its structure, its predicted time by parts.

    `name` is its folder below the graph's. `structure` has the fields of `program.types.Structure`; `slots` is
    the depth that its ring was held to, 0 for as deep as fits, `overlap` what was asked of the order of its K-blocks,
    `store_warps` whether they start its stores. `parts` are `schedule.types.Prediction`'s.
    """

    name: str
    why: str
    what: str
    structure: Mapping[str, Any]
    slots: int
    depth: int
    ii: int
    predicted_us: float
    parts: Mapping[str, Any]
    overlap: str = "any"
    store_warps: bool = False


@dataclass(frozen=True, slots=True)
class GraphCandidates:
    """The candidates of one graph, the model's first choice before all others; `graph` is its document.

    `refused` says what was chosen and not built, and why.
    """

    name: str
    graph: Mapping[str, Any]
    considered: int
    refused: tuple[tuple[str, str], ...]
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """The candidates of several graphs, solved for one machine that has `sms` multiprocessors."""

    machine: str
    sms: int
    graphs: tuple[GraphCandidates, ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of one candidate on a GPU; times are of one launch in microseconds.

    `error` is the worst relative error of its outputs; `in_graph` says that launches were replayed out of a
    CUDA graph. With a `baseline`'s name for `candidate` it is the time of what people use, as a landmark.
    """

    graph: str
    candidate: str
    status: str
    message: str = ""
    error: float | None = None
    median_us: float | None = None
    lower_us: float | None = None
    upper_us: float | None = None
    in_graph: bool = False
    baseline: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of one run, with card and versions."""

    date: str
    card: Mapping[str, Any]
    versions: Mapping[str, str]
    rows: tuple[Measurement, ...]


# --- JSON -----------------------------------------------------------------------------------------------


def candidate_set_to_json(found: CandidateSet) -> dict[str, Any]:
    """Candidates as JSON data."""
    return {"format": CANDIDATES_FORMAT, **dataclasses.asdict(found)}


def measured_to_json(found: Measured) -> dict[str, Any]:
    """Measurements as JSON data."""
    return {"format": MEASURED_FORMAT, **dataclasses.asdict(found)}


def candidates_from_json(data: Iterable[Any]) -> tuple[GraphCandidates, ...]:
    """The candidates of several graphs. Raises KeyError, TypeError or ValueError if the data holds none."""
    return tuple(_graph(item) for item in data)


def _graph(item: Any) -> GraphCandidates:
    rows = tuple(Candidate(**row) for row in item["candidates"])
    if not rows or rows[0].why != FIRST:
        raise ValueError(f"graph {item['name']} does not begin with the model's first choice")
    refused = tuple((str(what), str(why)) for what, why in item["refused"])
    return GraphCandidates(str(item["name"]), item["graph"], int(item["considered"]), refused, rows)


def measurement_from_json(item: Mapping[str, Any]) -> Measurement:
    """One measurement. Raises KeyError, TypeError or ValueError if the data is none."""
    row = Measurement(**item)
    if row.status not in STATUSES:
        raise ValueError(f"status {row.status!r}; allowed: {', '.join(STATUSES)}")
    return row


def timed_from_json(item: Mapping[str, Any]) -> Measurement:
    """One measurement of a finished run: with a time if it is ok. Raises as `measurement_from_json`."""
    row = measurement_from_json(item)
    if row.status == "ok" and not (isinstance(row.median_us, int | float) and row.median_us > 0):
        raise ValueError(f"{row.graph}/{row.candidate} is ok and has no time")
    return row


def _candidate_set(data: Mapping[str, Any]) -> CandidateSet:
    graphs = candidates_from_json(data["graphs"])
    if not graphs:
        raise ValueError("it has no graph")
    return CandidateSet(str(data["machine"]), int(data["sms"]), graphs)


def _measured(data: Mapping[str, Any]) -> Measured:
    rows = tuple(timed_from_json(item) for item in data["rows"])
    return Measured(str(data["date"]), dict(data["card"]), dict(data["versions"]), rows)


def load_candidates(folder: Path) -> CandidateSet:
    """The candidates that were written to a folder. Raises InputError if it holds none."""
    return load_json(folder / INDEX, CANDIDATES_FORMAT, _candidate_set)


def load_measured(path: Path) -> Measured:
    """The measurements of a file. Raises InputError if it is none."""
    return load_json(path, MEASURED_FORMAT, _measured)


def load_json(path: Path, form: str, read: Callable[[Mapping[str, Any]], T]) -> T:
    """Read a file of this format by `read`. Raises InputError, saying what is wrong with the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.get("format") != form:
            raise ValueError(f"it is not of the format {form!r}")
        return read(data)
    except OSError as error:
        told = f"cannot be read: {error.strerror or error}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        told = f"is not what validate-model writes: {type(error).__name__}: {error}"
    raise InputError(str(path), [Problem("", told)])


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON file, whole or not at all. Raises InputError if it cannot be written."""
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all. Raises InputError if it cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise InputError(str(path), [Problem("", f"cannot be written: {error.strerror}")]) from error
