"""Writes the figures of a calibration as a machine file on top of the file of the card they were made on.

Figures of the base that were fitted to whole kernels stay, for the model's predictions rest on them together;
the file notes what was measured in their place. Imports no pydantic: it also runs where only torch is.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wsopt.calibrate.fits import Figure
from wsopt.calibrate.samples import Document
from wsopt.errors import InputError, Problem

DATA = Path(__file__).parent.parent / "machine" / "data"
FOLDERS = (DATA, DATA / "rated", DATA / "architectures")

CARDS = {"h200": "h200_rated", "h20": "h20", "h100": "h100_sxm"}
"""The file to start from by the chip's word in a device's name: the card as it was before it was measured."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure that the base has otherwise; `kept` if the file keeps the base's."""

    name: str
    base: float
    measured: float
    spread: float
    kept: bool


def base_name(device: str) -> str:
    """The file to start from for a device name ("NVIDIA H200"); InputError if none is meant."""
    words = {part.lower() for part in device.replace("-", " ").split()}
    if {"h100", "pcie"} <= words:
        return "h100_pcie"
    for chip, card in CARDS.items():
        if chip in words:
            return card
    known = ", ".join(sorted(["h100_pcie", *CARDS.values()]))
    raise InputError(
        "calibrate", [Problem("", f"no machine file to start from for {device!r}; have {known}")]
    )


def base_figures(card: str) -> dict[str, dict[str, Any]]:
    """Value, source and unit of every figure of a shipped file by name ("scalar.exp2"), its bases' included."""
    path = next(folder / f"{card}.toml" for folder in FOLDERS if (folder / f"{card}.toml").is_file())
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    return {**(base_figures(raw["base"]) if "base" in raw else {}), **_flat(raw)}


def _flat(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = {}
    for key, item in tables.items():
        if isinstance(item, dict) and "source" in item:
            found[key] = item
        elif isinstance(item, dict):
            found |= {f"{key}.{inner}": figure for inner, figure in item.items()}
    return found


def differences(measured: Sequence[Figure], base: Mapping[str, dict[str, Any]]) -> tuple[Difference, ...]:
    """Where a measurement lies further from the base's figure than its spread."""
    found = []
    for figure in measured:
        there = base.get(figure.name)
        if there is not None and abs(there["value"] - figure.value) > figure.spread:
            kept = is_fitted(there)
            found.append(Difference(figure.name, there["value"], figure.value, figure.spread, kept))
    return tuple(found)


def is_fitted(figure: Mapping[str, Any]) -> bool:
    """Whether a figure of the base was fitted to whole kernels."""
    return "fitted" in figure["source"]


def machine_text(document: Document, measured: Sequence[Figure], name: str, card: str) -> str:
    """The TOML text of the machine file: the base, the measured figures, and notes on those it keeps."""
    base = base_figures(card)
    device, driver = document.machine.get("device", "?"), document.machine.get("driver", "?")
    triton = document.versions.get("triton", "?")
    day = document.date[:10]
    source = f"measured: wsopt calibrate, {day}"
    lines = [
        f"# {device}, measured by wsopt calibrate on {document.date}; driver {driver}, Triton {triton}.",
        "# A source ends in the spread of its figure: half the range over rounds and processes.",
        "",
        f'base = "{card}"',
        f"name = {json.dumps(name)}",
        f"title = {json.dumps(f'{device}, calibrated {day}')}",
    ]
    tables: dict[str, list[str]] = {"": []}
    for figure in measured:
        there = base.get(figure.name, {})
        table, _, key = figure.name.rpartition(".")
        value = _number(figure.value)
        if there and is_fitted(there):
            note = f"# {key}: {value} +- {figure.spread:.2g} by itself; the base's {there['value']:g} stays"
            tables.setdefault(table, []).append(f"{note}, fitted to whole kernels")
            continue
        unit = f'unit = "{there["unit"]}", ' if "unit" in there else ""
        text = f'{key} = {{ value = {value}, {unit}source = "{source}, +- {figure.spread:.2g}" }}'
        tables.setdefault(table, []).append(text)
    for table, entries in tables.items():
        lines += ["", *([f"[{table}]"] if table else []), *entries]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return f"{value:.4g}"
