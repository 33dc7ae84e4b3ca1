"""The register margin: what a consumer needs beyond its live tiles, learned from what ptxas made of kernels.

`margin.json` is written by `python -m wsopt.learn`. Of each kernel in it the least limit was found with which
ptxas still fits a consumer without a spill; `excess` is how far that lies above the live tiles.
"""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = "wsopt.margin/1"
DATA = Path(__file__).with_name("margin.json")

_FIGURES = ("accumulators", "epilogue", "least", "limit")
_GRANULARITY = 8


@dataclass(frozen=True, slots=True)
class Margin:
    """Registers a thread to keep beyond the live tiles, and how far off that was for `kernels` different ones.

    A kernel needs between `registers + low` and `registers + high` beyond its live tiles, `deviation` off in
    the root mean square. `solved_again` times in `graphs` graphs the oracle had the search go on.
    """

    registers: int
    low: int
    high: int
    deviation: float
    kernels: int
    graphs: int
    solved_again: int


def margin_of(data: Mapping[str, Any]) -> Margin:
    """The margin that a file's kernels ask for: the median of their excess, up to the next granule.

    Kernels that are alike in all figures count once: there are many plain products among problems. Half of
    them fit it; a structure that does not is found by the oracle, at the price of one more solve,
    while one that a larger margin shuts out is lost without a word.
    """
    alike = {tuple(row[name] for name in _FIGURES) for row in data["kernels"]}
    excess = [least - accumulators - epilogue for accumulators, epilogue, least, _ in alike]
    registers = -(-round(statistics.median(excess)) // _GRANULARITY) * _GRANULARITY
    off = [one - registers for one in excess]
    return Margin(
        registers=registers,
        low=min(off),
        high=max(off),
        deviation=round(statistics.fmean(sorted(one * one for one in off)) ** 0.5, 1),
        kernels=len(excess),
        graphs=data["oracle"]["graphs"],
        solved_again=data["oracle"]["solved_again"],
    )


@functools.cache
def learned() -> Margin:
    """The margin of the committed data."""
    return margin_of(json.loads(DATA.read_text(encoding="utf-8")))
