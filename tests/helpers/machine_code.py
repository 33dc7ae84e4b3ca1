"""What the compiler makes of kernels: of a text that is known the record (`records.py`).

One release of Triton, read by one version of `wsopt/codegen`, makes one machine code of one text, so that most tests
of machine code need no compiler until a kernel's text changes. The release that WSOPT_TEST_TRITON_OTHER has is one
with records of its own.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import records

import wsopt.codegen
from wsopt.codegen.compiler_process import ask_child


def _untimed(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {**answer, "seconds": 0.0} if "seconds" in answer else dict(answer)


RECORDS = records.Records(
    "machine_code", fault="the compiler makes other machine code of a text", plain=_untimed, kept=_untimed
)


@functools.cache
def _code() -> str:
    """A digest of the code that compiles and reads what a compiler makes."""
    return records.digest_of(Path(wsopt.codegen.__file__).parent.glob("*.py"))


def key_of(release: str, made_by: str, request: Mapping[str, Any]) -> str:
    """The key of what a release of Triton makes of a request."""
    return records.key_of(release, _code(), made_by, dict(request))


def answer(module: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """What `ask_child` answers. Raises AssertionError if the compiler makes something else than is recorded."""
    key = key_of(importlib.metadata.version("triton"), module, request)
    found: dict[str, Any] = RECORDS.get(key, lambda: ask_child(module, request))
    return found
