"""Collects the faults of one file and words them: what was found, where, and the nearest known name."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection
from dataclasses import dataclass

from wsopt.errors import InputError, Problem

MAX_FAULTS = 1000
_MAX_SHOWN = 60
MAX_CANDIDATES = 200
_ALIKE = 0.6


@dataclass(frozen=True, slots=True)
class BadLiteral:
    """A word that Python's JSON reader takes for a number and JSON does not: NaN, Infinity, -Infinity."""

    text: str


class Faults:
    """The faults of `source` found so far. Reading ends at the thousandth: such a file is no graph."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._problems: list[Problem] = []

    def __len__(self) -> int:
        return len(self._problems)

    def add(self, pointer: str, message: str) -> None:
        """Note a fault at a JSON pointer. Raises InputError if it is one too many."""
        self._problems.append(Problem(pointer, message))
        if len(self._problems) == MAX_FAULTS:
            self._problems.append(Problem("", f"more than {MAX_FAULTS} faults; the rest was not read"))
            self.raise_any()

    def wants(self, pointer: str, wanted: str, found: object) -> None:
        """Note that something of another kind or value stands there."""
        self.add(pointer, f"found {describe(found)}; wants {wanted}")

    def raise_any(self) -> None:
        """Raise InputError with all faults, if there are any."""
        if self._problems:
            raise InputError(self._source, self._problems)


def join(pointer: str, key: str | int) -> str:
    """The JSON pointer (RFC 6901) of a member; what cannot be printed in it is escaped, long keys are cut."""
    text = json.dumps(str(key))[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return f"{pointer}/{_cut(text).replace('~', '~0').replace('/', '~1')}"


def quote(text: str) -> str:
    """A string in JSON's quotes, in ASCII, cut if long."""
    return json.dumps(_cut(text))


def bare(text: str) -> str:
    """A text as `quote` shows it, without the quotes."""
    return quote(text)[1:-1]


def describe(value: object) -> str:
    """A JSON value in a few words: literals as they are, containers by kind and length."""
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            return f"the string {quote(value)}"
        case int() if abs(value) >= 10**20:
            return "an integer of more than 20 digits"
        case int():
            return str(value)
        case float() if abs(value) == float("inf"):
            return "a number beyond the range of f32"
        case float():
            return repr(value)
        case list():
            return f"an array of {len(value)}"
        case dict():
            return "an object"
        case BadLiteral():
            return f"{value.text}, which JSON does not have"
    return f"a Python {type(value).__name__}"


def nearest(word: str, known: Collection[str], likeness: float = _ALIKE) -> str | None:
    """The known name that is most like the word, or None; not sought for among very many.

    `likeness` is how much of both is alike at least, 0 to 1: twice the letters in common over all letters.
    """
    if len(word) > _MAX_SHOWN or len(known) > MAX_CANDIDATES:
        return None
    for spelling in (word, word.lower()):
        if close := difflib.get_close_matches(spelling, known, n=1, cutoff=likeness):
            return close[0]
    return None


def hint(word: str, known: Collection[str], likeness: float = _ALIKE) -> str:
    """`; did you mean "x"?`, or nothing."""
    name = nearest(word, known, likeness)
    return f"; did you mean {quote(name)}?" if name else ""


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
