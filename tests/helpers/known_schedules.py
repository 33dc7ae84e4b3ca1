"""What the search for a program's schedule finds: of a program that is known the record (`records.py`).

One version of the model, of the prices in it and of OR-Tools finds one schedule of one tile program on one machine,
so that most tests of what is made of schedules build no model until one of these changes; from then on the records of
single models (`solver_answers.py`) still spare the solver. Tests of the search itself are in `tests/solve`, where all
is found.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import math
import os
import re
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import records

from wsopt import solve
from wsopt.entries import extended
from wsopt.machine.types import Machine
from wsopt.program.program import TileProgram
from wsopt.schedule.types import Schedule
from wsopt.solve import optimum, worker
from wsopt.targets import target_of

SEARCHED = optimum._searched
_DIGITS = 9
"""Digits of a float that are no machine's own."""


def rounded(told: Any) -> Any:
    """Plain data whose floats have as many digits as are the same everywhere."""
    if isinstance(told, list):
        return [*map(rounded, told)]
    return float(f"{told:.{_DIGITS}g}") if isinstance(told, float) else told


RECORDS = records.Records(
    "known_schedules",
    fault="the search finds another schedule of a program",
    plain=lambda found: rounded(found[1]),  # work is less where the process knows loops already
)
PACKAGE = Path(solve.__file__).parents[1]
ROOMS = ("machine", "perf", "primitives", "program", "schedule", "solve", "targets", "tensors")
FILES = ("checker.py", "entries.py", "errors.py", "graph/types.py")
"""What the search is in, and all that it imports."""
_SET = re.compile(r"frozenset\(\{([^{}]*)\}\)")


@functools.cache
def _code() -> str:
    """A digest of the code that finds schedules."""
    files = [file for room in ROOMS for file in (PACKAGE / room).rglob("*.py")]
    return records.digest_of([*files, *(PACKAGE / name for name in FILES)])


@functools.cache
def _release() -> str:
    return importlib.metadata.version("ortools")


def read() -> None:
    """Read what is known, for forks of this process."""
    _code()
    _release()
    RECORDS.read()


def text_of(value: object) -> str:
    """The text of frozen data, with the members of sets in one order, which is each process's own otherwise."""
    return _SET.sub(lambda found: f"frozenset({sorted(found[1].split(', '))})", repr(value))


def searched(
    program: TileProgram, machine: Machine, margin: int, found: tuple[Schedule, ...]
) -> optimum.Solved:
    """As `optimum._searched`. Raises AssertionError if the schedule is not the one that is recorded.

    What is found with entries that were added to tables, or within a time, is found each time. While records are
    made, a schedule is found although it is known, for the answers that its models take have records too.
    """
    if extended() or worker._WORK.end < math.inf:
        return SEARCHED(program, machine, margin, found)
    target = target_of(machine)
    key = records.key_of(_release(), _code(), *map(text_of, (program, machine, target, margin, found)))

    def find() -> list[Any]:
        before = worker.spent()
        solved = SEARCHED(program, machine, margin, found)
        plain: list[Any] = json.loads(json.dumps([worker.spent() - before, dataclasses.astuple(solved)]))
        return plain

    if os.environ.get("WSOPT_RECORD") and key not in RECORDS.found:
        RECORDS.found[key] = find()
    before = worker.spent()
    work, told = RECORDS.get(key, find)
    worker._WORK.spent = before + work
    worker.check()
    solved: optimum.Solved = remade(optimum.Solved, told)
    return solved


@functools.cache
def _fields(kind: type) -> tuple[Any, ...]:
    """Types of the fields of a dataclass, in their order."""
    hints = typing.get_type_hints(kind)
    return tuple(hints[field.name] for field in dataclasses.fields(kind))


def remade(kind: Any, told: Any) -> Any:
    """The value of a type that `dataclasses.astuple` and JSON have made plain."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return kind(*map(remade, _fields(kind), told))
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        (one,) = (each for each in inner if each is not type(None))
        return None if told is None else remade(one, told)
    if origin is tuple:
        each = [inner[0]] * len(told) if inner[-1] is Ellipsis else inner
        return tuple(map(remade, each, told))
    return kind(told) if isinstance(kind, type) and issubclass(kind, Enum) else told


@contextmanager
def all_is_searched() -> Iterator[None]:
    """A context in which every schedule is found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimum, "_searched", SEARCHED)
        yield
