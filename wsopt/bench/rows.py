"""Results of a benchmark: rows and the document that holds them, as frozen data and as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wsopt.errors import InputError, Problem

FORMAT = "wsopt.bench/1"
STATUSES = ("ok", "wrong", "hang", "error")
BASELINE_STATUSES = ("ok", "wrong", "inapplicable", "missing", "error")


@dataclass(frozen=True, slots=True)
class Timing:
    """Time of one launch in microseconds: median and quartiles over `samples` samples."""

    median_us: float
    lower_us: float
    upper_us: float
    samples: int


@dataclass(frozen=True, slots=True)
class BaselineRow:
    """A baseline beside the kernel; `ratio` is its time over the kernel's, so more than 1 is a win.

    `error` is its relative error where it computes the whole graph. `graph_time` and `graph_ratio` are of
    replays of a CUDA graph, for short kernels; `settled_ratio` is of whichever of them where both run at the
    clock that their own power leaves them. A spread is the distance of a ratio's quartiles over the
    rounds. `reason` says why there are no figures.
    """

    name: str
    status: str
    reason: str = ""
    error: float | None = None
    time: Timing | None = None
    ratio: float | None = None
    graph_time: Timing | None = None
    graph_ratio: float | None = None
    spread: float | None = None
    graph_spread: float | None = None
    settled_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One build folder. `errors` are relative, by output, the worse of before and after timing; `row_errors` of rows.

    `flops` of the matmuls and `bytes` read and written at least, a launch, less what masks leave out; rates
    follow from the time in a CUDA graph where there is one. `predicted_us`, `bound_us` (no schedule is faster,
    within the model) and `roofline_us` (neither arithmetic nor compulsory bytes are) are the schedule's;
    `roofline` is `roofline_us` over the time. `message` says what went wrong.
    """

    name: str
    folder: str
    status: str
    message: str = ""
    errors: tuple[tuple[str, float], ...] = ()
    row_errors: tuple[tuple[str, float], ...] = ()
    flops: int | None = None
    bytes: int | None = None
    kernel: Timing | None = None
    kernel_graph: Timing | None = None
    kernel_settled: Timing | None = None
    tflops: float | None = None
    gbs: float | None = None
    predicted_us: float | None = None
    bound_us: float | None = None
    roofline_us: float | None = None
    roofline: float | None = None
    baselines: tuple[BaselineRow, ...] = ()

    @property
    def best_us(self) -> float | None:
        """The median in a CUDA graph where there is one, else that of plain launches."""
        timing = self.kernel_graph or self.kernel
        return timing.median_us if timing else None


@dataclass(frozen=True, slots=True)
class Document:
    """The rows of one run with what they were measured on; `machine` and `versions` are sorted pairs."""

    date: str
    machine: tuple[tuple[str, str | int | float], ...]
    versions: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]


def row_to_json(row: Row) -> dict[str, Any]:
    """A row as JSON data."""
    data = dataclasses.asdict(row)
    data["errors"] = {name: _writable(error) for name, error in row.errors}
    data["row_errors"] = {name: _writable(error) for name, error in row.row_errors}
    for item in data["baselines"]:
        item["error"] = _writable(item["error"])
    return data


def _writable(error: float | None) -> float | str | None:
    # JSON has no infinity.
    return "inf" if error is not None and not math.isfinite(error) else error


def row_from_json(data: Mapping[str, Any]) -> Row:
    """The row of JSON data. Raises KeyError, TypeError or ValueError if it is none."""
    fields = dict(data)
    if fields["status"] not in STATUSES:
        raise ValueError(f"status {fields['status']!r}; allowed: {', '.join(STATUSES)}")
    for key in ("errors", "row_errors"):
        fields[key] = tuple((name, float(error)) for name, error in fields.get(key, {}).items())
    fields["kernel"] = _timing(fields.get("kernel"))
    fields["kernel_graph"] = _timing(fields.get("kernel_graph"))
    fields["kernel_settled"] = _timing(fields.get("kernel_settled"))
    fields["baselines"] = tuple(_baseline(item) for item in fields.get("baselines", ()))
    return Row(**fields)


def _baseline(data: Mapping[str, Any]) -> BaselineRow:
    fields = dict(data)
    if fields["status"] not in BASELINE_STATUSES:
        raise ValueError(f"status {fields['status']!r}; allowed: {', '.join(BASELINE_STATUSES)}")
    fields["error"] = None if fields.get("error") is None else float(fields["error"])
    fields["time"] = _timing(fields.get("time"))
    fields["graph_time"] = _timing(fields.get("graph_time"))
    return BaselineRow(**fields)


def _timing(data: Mapping[str, Any] | None) -> Timing | None:
    return None if data is None else Timing(**data)


def to_text(document: Document) -> str:
    """The document as the text of a JSON file. An error that is not finite is written as "inf"."""
    data = {
        "format": FORMAT,
        "date": document.date,
        "machine": dict(document.machine),
        "versions": dict(document.versions),
        "rows": [row_to_json(row) for row in document.rows],
    }
    return json.dumps(data, indent=1) + "\n"


def load_document(path: Path) -> Document:
    """The document of a file. Raises InputError if it is none, OSError if it cannot be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']!r}; wants {FORMAT!r}")
        rows = tuple(row_from_json(row) for row in data["rows"])
        machine, versions = (tuple(sorted(data[name].items())) for name in ("machine", "versions"))
        return Document(str(data["date"]), machine, versions, rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = Problem("", f"not a benchmark: {type(error).__name__}: {error}")
        raise InputError(str(path), [problem]) from error
