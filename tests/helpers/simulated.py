"""What simulations find in kernels: of a text, a case and an interleaving that are known the record (`records.py`).

One version of the interpreter and of the reference finds one thing in them, so that most kernels and mutants of the
tests need no simulation until their text changes, or what executes and judges it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import records

import wsopt.interpret
from wsopt import simulation
from wsopt.agreement.judge import Agreement
from wsopt.graph.serialize import canonical_bytes


def _without_numbers(fault: str | None) -> str | None:
    """What is wrong up to the first number, whose last digits are the machine's."""
    return fault and re.split(r"[-+]?\d", fault, maxsplit=1)[0]


RECORDS = records.Records(
    "simulated", fault="the simulation finds something else in a text", plain=_without_numbers
)
PACKAGE = Path(wsopt.interpret.__file__).parents[1]
ROOMS = ("primitives", "agreement", "graph", "interpret")
FILES = ("entries.py", "errors.py", "exchange.py")
"""What the interpreter and the reference are in, and all that these import."""


@functools.cache
def _code() -> str:
    """A digest of the code that executes kernels and judges their outputs."""
    files = [file for room in ROOMS for file in (PACKAGE / room).rglob("*.py")]
    return records.digest_of([*files, *(PACKAGE / name for name in FILES)])


def _key(*asked: Any) -> str:
    """The key of what the interpreter finds as it is, with this NumPy and this Python."""
    return records.key_of(_code(), np.__version__, sys.version_info[:2], *asked)


def fault(case: str, source: str, seed: int, find: Callable[[], str | None]) -> str | None:
    """What is wrong with a kernel in a case under one interleaving; None if nothing is. `find` simulates it."""
    found: str | None = RECORDS.get(_key(case, source, seed), find)
    return found


WAITS = records.Records("ending_waits", fault="other waits of a text end something")


def ending_waits(case: str, source: str, seed: int, find: Callable[[], set[int]]) -> set[int]:
    """The lines of a kernel's waits that end something in a case under one interleaving. `find` simulates it."""
    return set(WAITS.get(_key(case, source, seed), lambda: sorted(find())))


EXECUTED = simulation._executed
RUNS = records.Records(
    "simulated_runs",
    fault="a run of a simulation finds something else",
    plain=lambda found: (found["seeds"], found["ran"]),  # digits of what is off are a machine's own
)


@functools.cache
def _code_of_runs() -> str:
    """A digest of the code that makes a run's inputs, executes a kernel on them and judges it."""
    return records.digest_of([Path(simulation.__file__)])


def executed(
    run: simulation.Run,
    source: str,
    blocks: Callable[[int], int],
    progress: Callable[[int, int], None],
    ran: set[int],
    enough: Callable[[], bool],
) -> tuple[Agreement, int]:
    """As `simulation._executed`, whose limit in time is none here. A run that finds a fault has no record."""

    def find() -> dict[str, Any]:
        new = set[int]()
        worst, seeds = EXECUTED(run, source, blocks, progress, new, lambda: False)
        return {"seeds": seeds, "ran": sorted(new), "worst": dataclasses.astuple(worst)[:3]}

    assert not enough()
    case = (canonical_bytes(run.graph).decode(), run.seeds, run.given, [*map(blocks, range(run.seeds))])
    key = records.key_of(_code(), _code_of_runs(), np.__version__, sys.version_info[:2], case, source)
    found = RUNS.get(key, find)
    ran |= set(found["ran"])
    return Agreement(*found["worst"]), found["seeds"]


@contextmanager
def known_runs() -> Iterator[None]:
    """A context in which runs that have a record are executed now and then only.

    It is for tests of kernels. What a build says of a run has digits that are a machine's own, and other processes,
    which know no records, may be asked for the same build.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "_executed", executed)
        yield
