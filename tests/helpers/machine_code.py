"""What the compiler makes of kernels: of a text that is known the record (`records.py`).

One release of Triton, read by one version of `wsopt/codegen`, makes one machine code of one text, so that most tests
of machine code need no compiler until a kernel's text changes. The release that WSOPT_TEST_TRITON_OTHER has is one
with records of its own.
"""

from __future__ import annotations

import base64
import functools
import importlib.metadata
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import records

import wsopt.codegen
from wsopt.codegen.compiler_process import ask_child
from wsopt.export import binary_child


def _untimed(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {**answer, "seconds": 0.0} if "seconds" in answer else dict(answer)


RECORDS = records.Records(
    "machine_code", fault="the compiler makes other machine code of a text", plain=_untimed, kept=_untimed
)


@functools.cache
def _code() -> str:
    """A digest of the code that compiles and reads what a compiler makes."""
    return records.digest_of(Path(wsopt.codegen.__file__).parent.glob("*.py"))


def read() -> None:
    """Read what is known, for forks of this process."""
    _code()
    RECORDS.read()
    BINARIES.read()


def key_of(release: str, made_by: str, request: Mapping[str, Any]) -> str:
    """The key of what a release of Triton makes of a request."""
    return records.key_of(release, _code(), made_by, dict(request))


def answer(module: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """What `ask_child` answers. Raises AssertionError if the compiler makes something else than is recorded."""
    key = key_of(importlib.metadata.version("triton"), module, request)
    found: dict[str, Any] = RECORDS.get(key, lambda: ask_child(module, request))
    return found


# --- kernels that are exported ------------------------------------------------------------------------------


def _facts(packed: Mapping[str, Any]) -> dict[str, Any]:
    """What is the same whenever it is compiled: all but the time that it took, and the cubin, which has the name of
    the folder that it was made in.
    """
    return {**packed, "cubin": "", "compiled": _untimed(packed["compiled"])}


BINARIES = records.Records("binaries", fault="the compiler makes another binary of a text", plain=_facts)


def binary(module: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """What `ask_child` answers to an export; a record keeps the cubin deflated.

    Raises AssertionError if the compiler makes something else than is recorded.
    """

    def find() -> dict[str, Any]:
        found = ask_child(module, request)
        cubin = zlib.compress(base64.b64decode(found["cubin"]), 9)
        return {**found, "cubin": base64.b64encode(cubin).decode("ascii")}

    reads = records.digest_of([Path(binary_child.__file__)])
    packed = BINARIES.get(key_of(importlib.metadata.version("triton"), f"{module} {reads}", request), find)
    cubin = zlib.decompress(base64.b64decode(packed["cubin"]))
    return {**packed, "cubin": base64.b64encode(cubin).decode("ascii")}
