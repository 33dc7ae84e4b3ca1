"""Says whether two calibrations agree: every figure within the sum of the two spreads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wsopt.calibrate.fits import Figure, figures
from wsopt.calibrate.samples import Document


@dataclass(frozen=True, slots=True)
class Pair:
    """One figure of two runs."""

    name: str
    first: Figure
    second: Figure

    @property
    def agrees(self) -> bool:
        """Whether the runs differ by no more than both spreads together."""
        return abs(self.first.value - self.second.value) <= self.first.spread + self.second.spread


def compare(first: Document, second: Document) -> tuple[Pair, ...]:
    """Every figure that both runs have."""
    theirs = {figure.name: figure for figure in figures(second)}
    return tuple(Pair(f.name, f, theirs[f.name]) for f in figures(first) if f.name in theirs)


def comparison_text(pairs: Sequence[Pair]) -> str:
    """A line for every figure that differs, and how many agree."""
    lines = [
        f"{pair.name}: {pair.first.value:.4g} +- {pair.first.spread:.2g} and "
        f"{pair.second.value:.4g} +- {pair.second.spread:.2g}"
        for pair in pairs
        if not pair.agrees
    ]
    agreeing = sum(pair.agrees for pair in pairs)
    return "\n".join([*lines, f"{agreeing} of {len(pairs)} figures agree within the stated spreads"])
