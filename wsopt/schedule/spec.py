"""Conditions as text: `field=value`, separated by commas, such as `consumers=2,sharing=ping_pong,ring=3`.

Fields are those of a structure and of an epilogue's buffers, by their names; `ring` for the slots of every ring, or a
ring's own name; `loaders` and `overlap`. A field that those records gain is known here without a change.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, get_type_hints

from wsopt.errors import InputError, Problem
from wsopt.program.conditions import EVERY_RING, OVERLAPS, Conditions, Overlap, Setting
from wsopt.program.types import Structure
from wsopt.schedule.types import EpilogueBuffers

_RING = f"_{EVERY_RING}"
"""The end of a ring's name where a loop has more than one."""

_LOADERS, _OVERLAP = "loaders", "overlap"
_TRUTH = {"yes": True, "no": False}


class _WrongError(Exception):
    """What is wrong with one condition."""


def fields_of(record: type) -> dict[str, type]:
    """The fields of a record of plain values, each with its type."""
    hints = get_type_hints(record)
    return {field.name: hints[field.name] for field in dataclasses.fields(record)}


STRUCTURE = fields_of(Structure)
BUFFERS = fields_of(EpilogueBuffers)
FIELDS = (*STRUCTURE, *BUFFERS, EVERY_RING, _LOADERS, _OVERLAP)
"""Names of the fields that conditions may name, besides those of single rings."""


def parse_conditions(text: str, source: str, pointer: str = "") -> Conditions:
    """The conditions that a text asks for. InputError, which names `source` and the place of the text in it, tells
    of all that is wrong with it.
    """
    problems: list[Problem] = []
    found: dict[str, Setting] = {}
    for part in text.split(","):
        try:
            name, value = _setting(part)
            if name in found:
                raise _WrongError(f"{name} is given twice; give it once")
            found[name] = value
        except _WrongError as error:
            problems.append(Problem(pointer, str(error)))
    if problems:
        raise InputError(source, problems)
    return _conditions(found)


def _conditions(found: Mapping[str, Setting]) -> Conditions:
    """The record of settings that are right, each kind in the order of its fields."""
    rings = sorted(name for name in found if _is_ring(name))
    return Conditions(
        structure=tuple((name, found[name]) for name in STRUCTURE if name in found),
        buffers=tuple((name, found[name]) for name in BUFFERS if name in found),
        slots=tuple((name, int(found[name])) for name in rings),
        overlap=OVERLAPS[str(found[_OVERLAP])] if _OVERLAP in found else Overlap.ANY,
        loaders=int(found.get(_LOADERS, 0)),
    )


def _setting(part: str) -> tuple[str, Setting]:
    """One `field=value`, its value as the field has it."""
    name, equals, word = (piece.strip() for piece in part.partition("="))
    if not equals or not name or not word:
        raise _WrongError(f"{part.strip()!r} is not field=value; write it like consumers=2,ring=3")
    return name, _reader(name)(name, word)


def _is_ring(name: str) -> bool:
    return name == EVERY_RING or name.endswith(_RING)


def _reader(name: str) -> Callable[[str, str], Setting]:
    """The function that reads the value of a field."""
    kind: Any = {**STRUCTURE, **BUFFERS}.get(name)
    if kind is bool:
        return lambda name, word: _TRUTH[_one_of(name, word, list(_TRUTH))]
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        words = [str(value) for value in kind]
        return lambda name, word: kind(_one_of(name, word, words))
    if name == _OVERLAP:
        return lambda name, word: _one_of(name, word, list(OVERLAPS))
    if _is_ring(name) or name == _LOADERS:
        return lambda name, word: _count(name, word, least=1)
    if kind is int:
        return lambda name, word: _count(name, word, least=0)
    near = difflib.get_close_matches(name, FIELDS, n=1)
    nearest = f"did you mean {near[0]}? " if near else ""
    known = f"the fields are {', '.join(FIELDS)}, and rings by name, such as k{_RING}"
    raise _WrongError(f"there is no field {name!r}; {nearest}{known}")


def _one_of(name: str, word: str, words: list[str]) -> str:
    """The word, if it is one of those that the field takes."""
    if word not in words:
        near = difflib.get_close_matches(word.lower().replace("-", "_"), words, n=1)
        nearest = f", perhaps {near[0]}" if near else ""
        raise _WrongError(f"{name}={word}: give {' or '.join(words)}{nearest}")
    return word


def _count(name: str, word: str, least: int) -> int:
    """A number of the field."""
    if not (word.isascii() and word.isdecimal()) or int(word) < least:
        raise _WrongError(f"{name}={word}: give a whole number, {least} or more")
    return int(word)
