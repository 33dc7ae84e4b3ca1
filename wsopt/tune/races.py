"""Results of races between two kernels of one graph: frozen data, key, and file.

A race's figures hold as long as both kernels' code, the graph, the Triton release and the card are the same;
what changes anything else (model, machine file, comments of the emitter) leaves them valid.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wsopt.errors import InputError, Problem
from wsopt.runtime.json_file import read_json

FORMAT = "wsopt.tune/1"
STATUSES = ("ok", "wrong", "hang", "error")


@dataclass(frozen=True, slots=True)
class Race:
    """A candidate's kernel against that of the model's first choice, in turns in one run.

    `graph` is a digest of what is computed, `machine` the name of the machine that was compiled for, `card`
    what the driver calls the GPU; `source` and `against` are digests of the two kernels' code. `keep` is how
    many candidates the search kept, `rank` which of them this is. `ratio` is the median over the rounds of
    the first choice's time over the candidate's, more than 1 if the candidate is faster, and `spread` the
    distance of its quartiles. Times are medians in microseconds, in a CUDA graph where kernels are short.
    """

    graph: str
    machine: str
    source: str
    against: str
    triton: str
    card: str
    status: str
    graph_name: str
    keep: int
    rank: int
    predicted_us: float
    date: str
    wsopt: str
    torch: str
    driver: str
    message: str = ""
    time_us: float | None = None
    against_us: float | None = None
    ratio: float | None = None
    spread: float | None = None


KEY = ("graph", "machine", "source", "against", "triton", "card")
"""The fields that name a race; a later one of the same key replaces an earlier one."""

Key = tuple[str, ...]


def key(race: Race) -> Key:
    """The key that identifies a race: kernels, graph, Triton release, card."""
    return tuple(getattr(race, name) for name in KEY)


_FIELDS = {item.name: str(item.type) for item in dataclasses.fields(Race)}
_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "float | None": (int, float, type(None)),
}


@functools.lru_cache(maxsize=256)  # a session asks for those of the same kernels at every step
def code_digest(source: str) -> str:
    """A digest of a kernel.py that comments, blank lines and its docstring are no part of."""
    first = ast.parse(source).body[0]
    begins = first.end_lineno or 0 if isinstance(first, ast.Expr) else 0
    lines = (line.rstrip() for line in source.splitlines()[begins:])
    code = "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))
    return hashlib.sha256(code.encode()).hexdigest()


def races_text(races: Iterable[Race]) -> str:
    """The text of a file of races, in the order of their keys."""
    rows = [dataclasses.asdict(race) for race in sorted(races, key=key)]
    return json.dumps({"format": FORMAT, "races": rows}, indent=1) + "\n"


def write_races(path: Path, races: Iterable[Race]) -> None:
    """Write a file of races, whole or not at all. Raises InputError if it cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(races_text(races), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise InputError(str(path), [Problem("", f"cannot be written: {error.strerror}")]) from error


def load_races(path: Path) -> tuple[Race, ...]:
    """The races of a file. Raises InputError, with every fault, if it is no such file."""
    data = read_json(path)
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        told = f"is {found!r}; this version reads {FORMAT!r}"
        raise InputError(str(path), [Problem("/format", told)])
    rows = data.get("races")
    if not isinstance(rows, list):
        raise InputError(str(path), [Problem("/races", "is no list")])
    problems = [
        problem for number, row in enumerate(rows) for problem in race_faults(f"/races/{number}", row)
    ]
    if problems:
        raise InputError(str(path), problems)
    return tuple(Race(**row) for row in rows)


def race_faults(where: str, row: Any) -> Iterator[Problem]:
    """Why JSON data is no race, each fault with its pointer."""
    if not isinstance(row, dict):
        yield Problem(where, "is no object")
        return
    for name in sorted(row.keys() ^ _FIELDS.keys()):
        yield Problem(f"{where}/{name}", "missing" if name in _FIELDS else "unknown field")
    for name in _FIELDS.keys() & row.keys():
        value, kinds = row[name], _KINDS[_FIELDS[name]]
        if not isinstance(value, kinds) or isinstance(value, bool):
            yield Problem(f"{where}/{name}", f"{value!r} is no {_FIELDS[name]}")
    status = row.get("status")
    times = [row.get(name) for name in ("ratio", "spread", "time_us", "against_us")]
    if status not in STATUSES:
        yield Problem(f"{where}/status", f"{status!r}; allowed: {', '.join(STATUSES)}")
    elif status == "ok" and not all(isinstance(time, int | float) and 0 <= time < 1e12 for time in times):
        yield Problem(where, "is ok and lacks a time, a ratio or a spread")
