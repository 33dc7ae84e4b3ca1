"""A valid machine file for the tests to break: the shipped H200, written out whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wsopt.machine.document import TABLES
from wsopt.machine.load import DATA, read_tables


def whole_card() -> dict[str, Any]:
    """The tables of the H200 with those of its bases merged in: a file without a base."""
    path = DATA / "h200.toml"
    return read_tables(str(path), path)


def write_toml(path: Path, tables: dict[str, Any]) -> Path:
    """Write plain keys, figures and tables of figures; enough TOML for machine files."""
    plain = {key: item for key, item in tables.items() if key not in TABLES or not isinstance(item, dict)}
    lines = [f"{key_text(key)} = {inline(item)}" for key, item in plain.items()]
    for table in tables.keys() - plain.keys():
        lines.append(f"[{table}]")
        lines += [f"{key_text(key)} = {inline(item)}" for key, item in tables[table].items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def key_text(key: str) -> str:
    """A quoted key: any text may be one."""
    return json.dumps(key)


def inline(item: Any) -> str:
    """One value as inline TOML."""
    if isinstance(item, dict):
        return "{ " + ", ".join(f"{key_text(key)} = {inline(value)}" for key, value in item.items()) + " }"
    return repr(item) if isinstance(item, float) else json.dumps(item)
