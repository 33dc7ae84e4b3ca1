"""Keeps the results of ahead-of-time compilations in a folder, each in a file with a checksum."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")
_FORMAT = "wsopt.aot/1"


def key(source: str, architecture: str, triton_version: str) -> str:
    """The name of a result: everything that decides it, as a digest."""
    parts = (_FORMAT, triton_version, architecture, source)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read(folder: Path, name: str, kind: type[_T]) -> _T | None:
    """The kept result as a `kind`, or None if there is none or the file is damaged."""
    try:
        text = _path(folder, name).read_text(encoding="utf-8")
        checksum, body = text.split("\n", 1)
        if checksum != _checksum(body):
            return None
        return kind(**frozen(json.loads(body)))
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def write(folder: Path, name: str, result: Any) -> None:
    """Keep a dataclass of numbers, strings and tuples; the file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    body = json.dumps(dataclasses.asdict(result), sort_keys=True)
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".aot-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{_checksum(body)}\n{body}")
        Path(temporary).replace(_path(folder, name))
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def frozen(value: Any) -> Any:
    """A JSON value with tuples in place of its lists, in objects too."""
    if isinstance(value, dict):
        return {name: frozen(item) for name, item in value.items()}
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value


def _path(folder: Path, name: str) -> Path:
    return folder / f"aot-{name}.json"


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
