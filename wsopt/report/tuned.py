"""The report's lines on a schedule that measurements chose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wsopt.report.layout import clean, wrapped


@dataclass(frozen=True, slots=True)
class Tuned:
    """A tuned build's summary: of how many candidates, measured where, it is the one of this rank, so
    many times as fast as the first.
    """

    card: str
    triton: str
    date: str
    measured: int
    candidates: int
    rank: int
    ratio: float | None = None
    spread: float | None = None


def tuned_text(note: Mapping[str, Any]) -> str:
    """The section of a tuned build, from the `tuned` object of its summary; ends in a newline."""
    where = (
        f"on {clean(str(note['card']))} with Triton {clean(str(note['triton']))}, {clean(str(note['date']))}"
    )
    among = f"{note['measured']} of {note['candidates']} candidates were measured {where}"
    if note["rank"] == 1:
        told = f"The model's first choice: {among}, and none beat it by more than the spread."
    else:
        told = (
            f"Number {note['rank']} of the model's candidates: {among}, and this one was "
            f"{note['ratio']:.4f} times as fast as the first (quartiles {note['spread']:.4f} apart)."
        )
    return "\n".join(["", "Tuned", "-----", *wrapped(told)]) + "\n"
