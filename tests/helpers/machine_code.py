"""What the compiler makes of kernels: of a text that is known the record, and of every fourth of these made anew.

One release of Triton, read by one version of `wsopt/codegen`, makes one machine code of one text, so that most tests
of machine code need no compiler until a kernel's text changes. What has no record is compiled. Records, those of the
release that WSOPT_TEST_TRITON_OTHER has among them, are made by

    WSOPT_RECORD_MACHINE_CODE=DIR python -m pytest -n 2 -m compiler && python tests/helpers/machine_code.py DIR
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wsopt.codegen
from wsopt.codegen.compiler_process import ask_child

FILE = Path(__file__).with_suffix(".json")
_ANYWAY = 4
"""Of so many known texts one is compiled anyway."""


@functools.cache
def _records() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


@functools.cache
def _code() -> str:
    """A digest of the code that compiles and reads what a compiler makes."""
    folder = Path(wsopt.codegen.__file__).parent
    code = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    return hashlib.sha256(code).hexdigest()


def key_of(release: str, made_by: str, request: Mapping[str, Any]) -> str:
    """The key of what a release of Triton makes of a request."""
    asked = json.dumps([f"{release} {_code()}", made_by, dict(request)], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()[:32]


def _untimed(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "seconds"}


def _key(module: str, request: Mapping[str, Any]) -> str:
    return key_of(importlib.metadata.version("triton"), module, request)


def answer(module: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """What `ask_child` answers. Raises AssertionError if the compiler makes something else than is recorded."""
    key = _key(module, request)
    return noted(key, ask_child(module, request) if is_made(key) else None)


def is_made(key: str) -> bool:
    """Whether what a key stands for is to be made by the compiler: it is not known, or made anyway."""
    return key not in _records() or int(key, 16) % _ANYWAY == 0


def noted(key: str, found: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the compiler has made, or without it the record. Raises AssertionError if the two are not the same."""
    known = _records().get(key)
    assert None in (known, found) or _untimed(found) == _untimed(known), (
        "the compiler makes other machine code of a text"
    )
    known = dict(found) if found is not None else known
    if folder := os.environ.get("WSOPT_RECORD_MACHINE_CODE"):
        with (Path(folder) / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, known]) + "\n")
    copied: dict[str, Any] = json.loads(json.dumps(known))
    return copied


def main() -> None:
    """Make the records those that tests have left in a folder."""
    lines = [line for path in Path(sys.argv[1]).glob("*.jsonl") for line in path.read_text().splitlines()]
    found = {key: _untimed(made) | {"seconds": 0.0} for key, made in map(json.loads, lines)}
    rows = (f"{json.dumps(key)}: {json.dumps(found[key], separators=(',', ':'))}" for key in sorted(found))
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    print(f"{len(found)} records")


if __name__ == "__main__":
    main()
