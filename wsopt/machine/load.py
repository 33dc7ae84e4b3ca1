"""Reads machine files: those shipped in `data/`, by name, and those of users, by path.

A file may name a shipped card or architecture as its `base`; then it needs only the figures that differ.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from wsopt.errors import InputError, LoweringError, Problem
from wsopt.machine.check import cross_faults
from wsopt.machine.document import NAMES, Document, merge, pointer, read_document, suggest
from wsopt.machine.types import Latency, Machine

DATA = Path(__file__).parent / "data"
ARCHITECTURES = DATA / "architectures"
RATED = DATA / "rated"
"""Cards as they were before they were measured: what those that were are based on."""

_SCHEMA = TypeAdapter(Machine)


def load_machine(name_or_path: str | Path) -> Machine:
    """The card of a shipped name ("h200"), or of a file: a path ends in `.toml` or has a directory.

    Raises InputError for an unknown name, with all names, and for a broken file, with all its faults.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".toml") or "/" in text:
        return _machine(text, read_tables(text, Path(text)))
    return _shipped(text)


def machines() -> tuple[Machine, ...]:
    """Every shipped card, sorted by name."""
    return tuple(_shipped(name) for name in _card_names())


def require_target(machine: Machine) -> str:
    """The architecture that kernels are compiled for on this card. Raises LoweringError, with the reason, if none."""
    if machine.emit_target is None:
        raise LoweringError(
            f"{machine.title} ({machine.architecture}) cannot be compiled for: {machine.refusal}"
        )
    return machine.emit_target


@functools.cache
def _card_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in DATA.glob("*.toml")))


@functools.cache
def _shipped(name: str) -> Machine:
    if name not in _card_names():
        known = ", ".join(_card_names())
        message = (
            f"no machine of this name{suggest(name.lower(), _card_names())} (known: {known}; or a .toml file)"
        )
        raise InputError(name, [Problem("", message)])
    path = DATA / f"{name}.toml"
    return _machine(str(path), read_tables(str(path), path))


def read_tables(source: str, path: Path) -> dict[str, Any]:
    """The tables of a file over those of its bases; InputError, by `source`, if it cannot be read or is not TOML."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(source, [Problem("", f"cannot be read: {error.strerror or error}")]) from error
    except UnicodeDecodeError as error:
        raise InputError(
            source, [Problem("", f"not UTF-8 text: {error.reason} at byte {error.start}")]
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(source, [Problem("", f"not TOML: {error}")]) from error
    return merge(_base(source, raw["base"]), raw) if "base" in raw else raw


def _base(source: str, name: Any) -> dict[str, Any]:
    """The tables of the shipped card or architecture that a file is based on; InputError if there is none."""
    bases = {path.stem: path for folder in (DATA, RATED, ARCHITECTURES) for path in folder.glob("*.toml")}
    if not isinstance(name, str) or name not in bases:
        hint = suggest(str(name).lower(), bases)
        message = f"no card or architecture {name!r}{hint} (known: {', '.join(sorted(bases))})"
        raise InputError(source, [Problem("/base", message)])
    return read_tables(str(bases[name]), bases[name])


def _machine(source: str, raw: Mapping[str, Any]) -> Machine:
    """The record of a parsed file; InputError with every fault of form, of range and between figures."""
    document = read_document(raw)
    problems = list(document.problems)
    machine, faults = _validate(document)
    seen = {problem.pointer for problem in problems}
    problems += [fault for fault in faults if not _explained(fault.pointer, seen)]
    optional: dict[str, Any] = {"emit_target": None, "refusal": None}
    at_fault = {problem.pointer.split("/")[1] for problem in problems}
    problems += cross_faults({k: v for k, v in (optional | document.values).items() if k not in at_fault})
    if problems or machine is None:
        raise InputError(source, problems)
    return machine


def _explained(place: str, seen: set[str]) -> bool:
    """Whether a fault at the pointer `place` only follows from one already noted at, above or below it."""
    return any(place == at or at.startswith(f"{place}/") or place.startswith(f"{at}/") for at in seen)


def _validate(document: Document) -> tuple[Machine | None, list[Problem]]:
    try:
        machine = _SCHEMA.validate_python({**document.values, "sources": document.sources})
    except ValidationError as error:
        return None, [_problem(item) for item in error.errors(include_url=False)]
    return machine, []


def _problem(error: ErrorDetails) -> Problem:
    """One fault of pydantic's in the words of the file: its pointer, what was found, what is allowed."""
    path = [str(part) for part in error["loc"]]
    about = _about(path)
    if error["type"] == "missing":
        return Problem(pointer(*path), f"missing{about}")
    if path[0] == "scalar_unit":
        path = ["scalar", *path[1:], "unit"]
    elif path[0] not in NAMES:
        path.append("value")
    message = error["msg"]
    return Problem(pointer(*path), f"{error['input']!r}: {message[0].lower()}{message[1:]}{about}")


def _about(path: list[str]) -> str:
    """` (what the field is)`, where its description says more than its name."""
    owner: Any = Latency if path[0] == "latency" and len(path) > 1 else Machine
    field = owner.__pydantic_fields__.get(path[-1])
    return f" ({field.description})" if field is not None and field.description else ""
