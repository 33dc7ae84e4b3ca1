"""From the tables of a machine file to plain values and their sources, with every fault and its pointer.

A figure is written `{ value = ..., source = "origin: where from" }`; one of the `scalar` table also names
its `unit`. What a figure's value may be is left to the fields of `Machine`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from wsopt.errors import Problem
from wsopt.machine.types import INSTRUCTION_KINDS, OPERAND_DTYPES, TILE_KINDS, Latency, Machine, Origin

NAMES = ("name", "title", "architecture", "emit_target", "refusal")
"""Keys that hold a plain text instead of a figure."""

TABLES: Mapping[str, tuple[str, ...]] = {
    "tensor": OPERAND_DTYPES,
    "power_tensor": OPERAND_DTYPES,
    "dense_tflops": OPERAND_DTYPES,
    "scalar": INSTRUCTION_KINDS,
    "scalar_alone": INSTRUCTION_KINDS,
    "tile_start": TILE_KINDS,
    "tile_alone": TILE_KINDS,
    "tile_crowded": TILE_KINDS,
    "latency": tuple(item.name for item in fields(Latency)),
}
"""Tables of figures, each with all keys that it may have."""

FIGURES = tuple(
    item.name for item in fields(Machine) if item.name not in {*NAMES, *TABLES, "scalar_unit", "sources"}
)
"""Keys of the top level that hold one figure each."""


@dataclass(slots=True)
class Document:
    """Contents of a machine file: values by field of `Machine`, sources by figure, and faults of its form."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def fault(self, pointer: str, message: str) -> None:
        """Note one fault."""
        self.problems.append(Problem(pointer, message))


def merge(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A file over the one it is based on: figure by figure, except that a card never inherits its names."""
    inherited = {key: item for key, item in base.items() if key not in ("name", "title")}
    if own.keys() & {"emit_target", "refusal"}:
        inherited = {k: item for k, item in inherited.items() if k not in ("emit_target", "refusal")}
    merged = {**inherited, **{key: item for key, item in own.items() if key != "base"}}
    for table in TABLES:
        ours, theirs = own.get(table), inherited.get(table)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            merged[table] = {**theirs, **ours}
    return merged


def read_document(raw: Mapping[str, Any]) -> Document:
    """Split the tables of a parsed file into values and sources; faults of form go to `problems`."""
    document = Document()
    for key, item in raw.items():
        if key in NAMES:
            document.values[key] = item
        elif key in TABLES:
            _read_table(document, key, item)
        elif key in FIGURES:
            _read_figure(document, (key,), item, document.values)
        else:
            document.fault(pointer(key), f"unknown key{suggest(key, (*NAMES, *TABLES, *FIGURES, 'base'))}")
    document.values.setdefault("scalar_unit", {})
    return document


def pointer(*path: str) -> str:
    """The JSON pointer (RFC 6901) of a place in a file."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the known words that `word` begins, else the nearest; empty if none is near."""
    words = sorted(known)
    near = [item for item in words if word and item.startswith(word)]
    near = near or difflib.get_close_matches(word, words, n=1)
    return f"; did you mean {' or '.join(near[:3])}?" if near else ""


def _read_table(document: Document, table: str, item: Any) -> None:
    if not isinstance(item, dict):
        document.fault(f"/{table}", f"expected a table of figures, found {item!r}")
        return
    values: dict[str, Any] = {}
    if table == "scalar":
        units = {key: figure["unit"] for key, figure in item.items() if _has_unit(key, figure)}
        document.values["scalar_unit"] = units
    for key, figure in item.items():
        if key in TABLES[table]:
            _read_figure(document, (table, key), figure, values)
        else:
            known = ", ".join(TABLES[table])
            document.fault(pointer(table, key), f"unknown key{suggest(key, TABLES[table])} (known: {known})")
    document.values[table] = values


def _has_unit(key: str, figure: Any) -> bool:
    return key in INSTRUCTION_KINDS and isinstance(figure, dict) and "unit" in figure


def _read_figure(document: Document, path: tuple[str, ...], item: Any, into: dict[str, Any]) -> None:
    wanted = ("value", "source", "unit") if path[0] == "scalar" else ("value", "source")
    if not isinstance(item, dict):
        form = ", ".join(f"{key} = ..." for key in wanted)
        document.fault(pointer(*path), f"expected {{ {form} }}, found {item!r}")
        return
    for key in sorted(item.keys() - set(wanted)):
        document.fault(pointer(*path, key), f"unknown key of a figure; it has {', '.join(wanted)}")
    for key in wanted:
        if key not in item:
            document.fault(pointer(*path, key), "missing")
    if "value" in item:
        into[path[-1]] = item["value"]
    if "source" in item:
        _read_source(document, path, item["source"])


def _read_source(document: Document, path: tuple[str, ...], source: Any) -> None:
    origin, colon, text = source.partition(":") if isinstance(source, str) else ("", "", "")
    if not (colon and text.strip() and origin in {*Origin}):
        origins = ", ".join(f"{item}:" for item in Origin)
        message = f"{source!r} does not say where the figure is from; start it with one of {origins}"
        document.fault(pointer(*path, "source"), message)
        return
    document.sources[".".join(path)] = source
