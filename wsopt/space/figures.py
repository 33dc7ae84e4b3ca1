"""Gains of lifting each limit, over graphs, as plain data and as the JSON file that `docs/space.md` is made from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from wsopt.errors import InputError, Problem
from wsopt.program.limits import Limit
from wsopt.runtime.json_file import read_json

KIND = "space"
NOTHING = 5e-5
"""A smaller share of the time is no gain: predictions are written with four digits."""


@dataclass(frozen=True, slots=True)
class Gain:
    """A limit lifted for one graph: `structures` that it is about; microseconds of the best schedule without it, and
    what none is faster than; the `structure` of a faster schedule, if there is one. `decided` is whether the search
    came to its end. `ii` is the least interval of the row's structure without it, in cycles; 0 if that is not known.
    """

    limit: Limit
    structures: int
    best_us: float
    least_us: float
    decided: bool
    structure: str = ""
    ii: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """A graph with all limits: its best time in microseconds, by the model, and without each that applies to it."""

    name: str
    base_us: float
    structure: str
    ii: int
    gains: tuple[Gain, ...]

    def share(self, gain: Gain) -> float:
        """Share of the time that lifting a limit saves."""
        saved = 1 - gain.best_us / self.base_us
        return saved if saved > NOTHING else 0.0

    def most(self, gain: Gain) -> float:
        """Share of the time that it saves at most, where the search was not decided."""
        return max(self.share(gain), 1 - gain.least_us / self.base_us)


@dataclass(frozen=True, slots=True)
class Figures:
    """All graphs on one machine, with versions, the day, and the deterministic time that each search had."""

    machine: str
    date: str
    versions: dict[str, str]
    work: float
    rows: tuple[Row, ...]

    def of(self, limit: Limit) -> tuple[tuple[Row, Gain], ...]:
        """The graphs that a limit applies to."""
        return tuple((row, gain) for row in self.rows for gain in row.gains if gain.limit is limit)


_FIGURES = TypeAdapter(Figures)


def mean_ratio(found: Sequence[tuple[Row, Gain]]) -> float:
    """Geometric mean of the time with a limit over that without it."""
    return math.exp(math.fsum(math.log(row.base_us / gain.best_us) for row, gain in found) / len(found))


def to_json(figures: Figures) -> dict[str, Any]:
    """The figures as JSON data."""
    return {"kind": KIND, **dataclasses.asdict(figures)}


def load_figures(path: Path) -> Figures:
    """The figures of a file; InputError if it holds none."""
    found = read_json(path)
    if not isinstance(found, dict) or found.pop("kind", None) != KIND:
        raise InputError(str(path), [Problem("/kind", f'no figures of the space, whose kind is "{KIND}"')])
    try:
        return _FIGURES.validate_python(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"/{part}" for part in first["loc"])
        raise InputError(str(path), [Problem(where, first["msg"])]) from error
