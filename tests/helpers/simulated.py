"""What simulations find in kernels: of a text, a case and an interleaving that are known the record (`records.py`).

One version of the interpreter and of the reference finds one thing in them, so that most kernels and mutants of the
tests need no simulation until their text changes, or what executes and judges it.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import records

import wsopt.interpret


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


def fault(case: str, source: str, seed: int, find: Callable[[], str | None]) -> str | None:
    """What is wrong with a kernel in a case under one interleaving; None if nothing is. `find` simulates it."""
    key = records.key_of(_code(), np.__version__, sys.version_info[:2], case, source, seed)
    found: str | None = RECORDS.get(key, find)
    return found
