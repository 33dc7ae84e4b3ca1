"""Timing against a clock of our own, on which the speed drifts as on a card at its power limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from wsopt.bench.timing import (
    Contestant,
    Launch,
    TimingOptions,
    calibrate,
    measure,
    ratios,
    round_order,
    summary,
)


class DriftingClock:
    """Every sample is slower than the one before; a launch adds its own milliseconds to `spent`."""

    def __init__(self, drift: float) -> None:
        self.spent, self.speed, self.drift = 0.0, 1.0, drift

    def launch(self, milliseconds: float) -> Launch:
        def run() -> None:
            self.spent += milliseconds * self.speed

        return run

    def sample(self, launches: Sequence[Launch], count: int) -> float:
        self.speed *= self.drift
        before = self.spent
        for number in range(count):
            launches[number % len(launches)]()
        return self.spent - before


def contestants(clock: DriftingClock, *milliseconds: float) -> list[Contestant]:
    return [Contestant(f"c{i}", (clock.launch(ms),) * 3) for i, ms in enumerate(milliseconds)]


def test_ratios_outlive_drift() -> None:
    clock = DriftingClock(1.001)
    samples = measure(contestants(clock, 1.0, 1.1, 0.9), clock, TimingOptions(rounds=21))
    assert {len(series) for series in samples.values()} == {21}
    assert ratios(samples, "c1", "c0")[0] == pytest.approx(1.1, rel=3e-3)
    assert ratios(samples, "c2", "c0")[0] == pytest.approx(0.9, rel=3e-3)


def test_samples_last_long_enough() -> None:
    clock = DriftingClock(1.0)
    entries = contestants(clock, 0.004, 0.3, 25.0)
    counts = calibrate(entries, clock, TimingOptions())
    assert counts["c2"] == 3
    for entry, milliseconds in zip(entries, (0.004, 0.3, 25.0), strict=True):
        assert counts[entry.name] % 3 == 0 or counts[entry.name] == 2000
        assert 8.0 <= counts[entry.name] * milliseconds <= 80.0


def test_order_is_fair() -> None:
    entries = contestants(DriftingClock(1.0), 1.0, 1.0, 1.0)
    orders = [[item.name for item in round_order(entries, number)] for number in range(6)]
    assert Counter(order[0] for order in orders) == {"c0": 2, "c1": 2, "c2": 2}
    for first, second in (("c0", "c1"), ("c1", "c2"), ("c0", "c2")):
        assert sum(order.index(first) < order.index(second) for order in orders) == 3


def test_summary() -> None:
    timing = summary([3.0, 1.0, 2.0, 5.0, 4.0])
    assert (timing.lower_us, timing.median_us, timing.upper_us, timing.samples) == (2.0, 3.0, 4.0, 5)
    assert summary([2.0]).median_us == 2.0


class LaggingClock(DriftingClock):
    """The speed is that of what ran in the last 100 ms: a contestant finds that of the one before it."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self.behind: list[tuple[float, float]] = []

    def power(self, milliseconds: float, slower: float) -> Launch:
        def run() -> None:
            recent, past = 0.0, 0.0
            for spent, factor in reversed(self.behind):
                if past < 100.0:
                    recent, past = recent + spent * factor, past + spent
            took = milliseconds * (recent / past if past else 1.0)
            self.behind.append((took, slower))
            self.spent += took

        return run


def test_only_who_settles_is_timed_at_its_own_clock() -> None:
    """One takes twice the other's power, which halves its clock: by themselves they are 2 to 1, in turns alike."""
    clock = LaggingClock()
    entries = [Contestant(f"c{i}", (clock.power(1.0, slower),)) for i, slower in enumerate((1.0, 2.0))]
    turns = ratios(measure(entries, clock, TimingOptions(rounds=9)), "c1", "c0")[0]
    own = ratios(measure(entries, clock, TimingOptions(rounds=9, settle_ms=150.0)), "c1", "c0")[0]
    assert turns == pytest.approx(1.0, abs=0.1)
    assert own == pytest.approx(2.0, abs=0.1)
