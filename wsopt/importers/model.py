"""What an imported model is: a graph, the contents of its constants, and the words of what could not be said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from wsopt.errors import InputError, LoweringError, Problem
from wsopt.graph.faults import hint, quote
from wsopt.graph.types import Graph

Array = npt.NDArray[Any]
_WORDS = ("inf", "nan")
"""Names that graphs keep for numbers."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A model's graph, the name that the model has for each constant input, and what reads their contents: arrays by
    the inputs' names, in the inputs' types.
    """

    graph: Graph
    origins: Mapping[str, str]
    contents: Callable[[], dict[str, Array]]


@dataclass(frozen=True, slots=True)
class Unsaid:
    """An operation that no graph of ours says: where it stands in the file, its name there, what it is, and why."""

    pointer: str
    name: str
    op: str
    reason: str

    def __str__(self) -> str:
        return f"{self.pointer}: {self.op} ({quote(self.name)}): {self.reason}"


def refuse(source: str, unsaid: Sequence[Unsaid]) -> None:
    """Raise LoweringError with all operations that could not be said, if there are any."""
    if unsaid:
        raise LoweringError("\n".join(f"{source}: {one}" for one in unsaid))


@dataclass(slots=True)
class Names:
    """Names of a graph: those of a model, with the letters that a graph allows, each once."""

    taken: set[str] = field(default_factory=set)

    def new(self, wanted: str) -> str:
        """A name that nobody has, as close to the wanted one as may be."""
        plain = plain_name(wanted)
        found, number = plain, 1
        while found in self.taken:
            number += 1
            found = f"{plain}_{number}"
        self.taken.add(found)
        return found


def plain_name(wanted: str) -> str:
    """A name in the letters, digits and single underscores that a graph's names have."""
    plain = re.sub(r"[^0-9A-Za-z]+", "_", wanted).strip("_") or "value"
    return f"_{plain}" if plain[0].isdigit() or plain in _WORDS else plain


# --- extents that a model leaves open -------------------------------------------------------------------


def check_extents(source: str, wanted: Iterable[tuple[str, str]], given: Mapping[str, int]) -> None:
    """Raise InputError for open extents, each a name with where it stands, that have no value, and for values of
    others.
    """
    places: dict[str, list[str]] = {}
    for name, place in wanted:
        places.setdefault(name, []).append(place)
    problems = [
        Problem(
            where[0],
            f"the extent {quote(name)} is open; a graph's are fixed, so give it: --dim {name}=128, for instance",
        )
        for name, where in places.items()
        if name not in given
    ]
    problems += [
        Problem("", f"--dim {name}={extent}: the model has no open extent of this name{_there(name, places)}")
        for name, extent in given.items()
        if name not in places
    ]
    if problems:
        raise InputError(source, problems)


def _there(name: str, places: Mapping[str, Any]) -> str:
    near = hint(name, list(places))
    return near or (f"; there are {', '.join(places)}" if places else "; all of its extents are fixed")


def parse_extents(words: Sequence[str]) -> dict[str, int]:
    """Extents by name from words such as `batch=4`. Raises InputError with all that are no such words."""
    found: dict[str, int] = {}
    problems = []
    for word in words:
        name, equals, digits = word.rpartition("=")
        if not (equals and name and digits.isascii() and digits.isdecimal() and 0 < int(digits) < 2**31):
            problems.append(Problem("", f"{word!r}; wants a name and an extent from 1 on, such as batch=4"))
        elif found.setdefault(name, int(digits)) != int(digits):
            problems.append(Problem("", f"{name} is given two extents, {found[name]} and {digits}"))
    if problems:
        raise InputError("--dim", problems)
    return found
