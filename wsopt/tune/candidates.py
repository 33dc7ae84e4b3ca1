"""A folder of candidates: the builds of a graph's best schedules, and a list of them that needs no solver to read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wsopt.errors import InputError, Problem
from wsopt.tune.races import code_digest

FORMAT = "wsopt.candidates/1"
MANIFEST = "candidates.json"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One build: its folder's name, the digest of its kernel's code, and what the model says of it.

    No schedule that is not among those of lower rank takes less than `bound_us`, within the model.
    """

    rank: int
    folder: str
    source: str
    predicted_us: float
    bound_us: float


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of one graph on one machine, best first; `graph` and sources as in `races.Race`.

    `sms` is how many multiprocessors the machine has; `keep` how many candidates were asked for.
    """

    graph: str
    graph_name: str
    machine: str
    sms: int
    keep: int
    candidates: tuple[Candidate, ...]


def candidates_text(found: Candidates) -> str:
    """The text of candidates.json."""
    return json.dumps({"format": FORMAT, **dataclasses.asdict(found)}, indent=1, ensure_ascii=False) + "\n"


def load_candidates(path: Path) -> Candidates:
    """The candidates of a folder; their kernels have to be those that were listed. Raises InputError."""
    where = path / MANIFEST
    try:
        data = json.loads(where.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']!r}; wants {FORMAT!r}")
        found = _candidates({name: data[name] for name in data if name != "format"})
        for one in found.candidates:
            source = (path / one.folder / "kernel.py").read_text(encoding="utf-8")
            if code_digest(source) != one.source:
                raise ValueError(f"{one.folder}/kernel.py is not the kernel that was listed")
    except OSError as error:
        told = f"{error.filename or where} cannot be read: {error.strerror}"
        raise InputError(str(path), [Problem("", f"holds no candidates: {told}")]) from error
    except (ValueError, KeyError, TypeError, SyntaxError) as error:
        told = f"{type(error).__name__}: {error}"
        raise InputError(str(where), [Problem("", f"not a list of candidates: {told}")]) from error
    return found


def _candidates(data: Mapping[str, Any]) -> Candidates:
    rows = tuple(Candidate(**row) for row in data["candidates"])
    if not rows or [row.rank for row in rows] != sorted({row.rank for row in rows}):
        raise ValueError("no candidates, or not in the order of their ranks")
    return Candidates(**{**data, "candidates": rows})
