"""The report's lines on the simulation that a kernel went through before it was handed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wsopt.report.layout import counted, wrapped


@dataclass(frozen=True, slots=True)
class Lines:
    """How many lines of a kernel's device functions the simulation `run`s, `of` how many."""

    run: int
    of: int


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The simulation's figures in a build's summary."""

    seeds: int
    max_relative_error: float
    lines: Lines | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """The `verified` object of a build's summary, as far as a report reads it."""

    interpreter: Interpreter


def simulated_text(summary: Mapping[str, Any]) -> str:
    """The section of the simulation, from a build's summary; empty if that does not count lines."""
    found = summary.get("verified", {}).get("interpreter", {})
    if "lines" not in found:
        return ""
    lines = found["lines"]
    ran = f"all {lines['of']}" if lines["run"] == lines["of"] else f"{lines['run']} of the {lines['of']}"
    told = (
        f"On the CPU, at reduced extents, {ran} lines of the kernel's device functions ran, under "
        f"{counted(found['seeds'], 'interleaving')}; the largest relative error of an output was "
        f"{found['max_relative_error']:.1e}."
    )
    return "\n".join(["", "Simulated", "---------", *wrapped(told)]) + "\n"
