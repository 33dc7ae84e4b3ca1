"""Choice among a graph's candidates by measured races; pure arithmetic.

The model's first choice stays unless another one beats it by more than the spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wsopt.tune.races import Race


@dataclass(frozen=True, slots=True)
class Pace:
    """Speed relative to the first choice (2 is twice as fast), and the interquartile range of that."""

    ratio: float
    spread: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidate taken, by its place among the candidates, and what is known of each of them.

    `paces` and `races` have None for a candidate without result; `noise` is what the first choice was seen
    to differ from itself by.
    """

    index: int
    paces: tuple[Pace | None, ...]
    races: tuple[Race | None, ...]
    noise: float

    @property
    def measured(self) -> int:
        """Number of candidates with a result on the card, good or bad."""
        return sum(race is not None and race.status != "error" for race in self.races)


def choose(sources: Sequence[str], races: Sequence[Race]) -> Choice:
    """The fastest of the candidates with these kernels, best first by the model, or the first of them.

    The races are of one graph on one card under one Triton release.
    """
    table = {(race.source, race.against): race for race in races}
    first = sources[0]
    paces = tuple(_pace(source, first, table) for source in sources)
    own = table.get((first, first))
    noise = max(own.spread or 0.0, abs((own.ratio or 1.0) - 1.0)) if own and own.status == "ok" else 0.0
    index, best = 0, 1.0
    for place, pace in enumerate(paces):
        if place and pace is not None and pace.ratio > max(best, 1.0 + pace.spread, 1.0 + noise):
            index, best = place, pace.ratio
    known = tuple(_result(source, first, table) for source in sources)
    return Choice(index, paces, known, noise)


def _pace(source: str, first: str, table: Mapping[tuple[str, str], Race]) -> Pace | None:
    """Speed against the first choice: of a race with it, or of the races of both with a third, whose spreads add up.

    The third is another version's first choice: its races stay good as long as the kernels are the same.
    """
    direct = _ratio(table.get((source, first)))
    if source == first:
        return Pace(1.0, direct.spread if direct else 0.0)
    if direct is not None or (source, first) in table:
        return direct
    through = []
    for third in sorted({against for _, against in table}):
        ours, theirs = _ratio(table.get((source, third))), _ratio(table.get((first, third)))
        if ours is not None and theirs is not None:
            ratio = ours.ratio / theirs.ratio
            through.append(Pace(ratio, ratio * (ours.spread / ours.ratio + theirs.spread / theirs.ratio)))
    return min(through, key=lambda pace: pace.spread, default=None)


def _ratio(race: Race | None) -> Pace | None:
    """Speed of a race's candidate against the first choice; None unless both kernels were timed."""
    if race is None or race.status != "ok" or not race.ratio or race.spread is None:
        return None
    return Pace(race.ratio, race.spread)


def _result(source: str, first: str, table: Mapping[tuple[str, str], Race]) -> Race | None:
    """The race that a candidate is shown by: against the first, else against any."""
    found = [table[key] for key in sorted(table) if key[0] == source]
    return table.get((source, first)) or (found[0] if found else None)
