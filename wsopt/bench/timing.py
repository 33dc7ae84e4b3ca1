"""Times kernels against each other in rounds. Needs no GPU: a clock is an argument.

A large product runs into the power limit, so a time alone depends on what ran before it. Contestants take
turns within a round, rounds go through them in changing order, and ratios are taken round by round. The clock
follows the power of the last tenth of a second: contestants that take short turns share one. Where each settles,
untimed, before its samples, it is timed at the clock that its own power leaves it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from wsopt.bench.rows import Timing

Launch = Callable[[], object]


class Clock(Protocol):
    """Measures on a device."""

    def sample(self, launches: Sequence[Launch], count: int) -> float:
        """Milliseconds that the device takes for `count` launches, going round the given ones."""
        ...


@dataclass(frozen=True, slots=True)
class Contestant:
    """Something to time: one launch for each set of inputs."""

    name: str
    launches: tuple[Launch, ...]


@dataclass(frozen=True, slots=True)
class TimingOptions:
    """Rounds, least milliseconds of a sample and of settling before it, and of warm-up over all contestants."""

    rounds: int = 21
    sample_ms: float = 10.0
    settle_ms: float = 0.0
    warm_up_ms: float = 500.0
    most_launches: int = 2000


def measure(
    contestants: Sequence[Contestant], clock: Clock, options: TimingOptions
) -> dict[str, tuple[float, ...]]:
    """Microseconds a launch in every round, by contestant; the rounds of all belong together."""
    counts = calibrate(contestants, clock, options)
    _warm_up(contestants, counts, clock, options)
    samples: dict[str, list[float]] = {item.name: [] for item in contestants}
    for number in range(options.rounds):
        for item in round_order(contestants, number):
            _settle(item, counts[item.name], clock, options)
            elapsed = clock.sample(item.launches, counts[item.name])
            samples[item.name].append(1e3 * elapsed / counts[item.name])
    return {name: tuple(times) for name, times in samples.items()}


def calibrate(contestants: Sequence[Contestant], clock: Clock, options: TimingOptions) -> dict[str, int]:
    """Launches a sample, so that a sample lasts long enough, going round all sets where it can."""
    counts = {}
    for item in contestants:
        sets = len(item.launches)
        clock.sample(item.launches, sets)
        count, elapsed = sets, clock.sample(item.launches, sets)
        while elapsed < options.sample_ms and count < options.most_launches:
            growth = min(10.0, 1.2 * options.sample_ms / max(elapsed, 1e-3))
            count = min(options.most_launches, sets * math.ceil(max(growth, 1.01) * count / sets))
            elapsed = clock.sample(item.launches, count)
        counts[item.name] = count
    return counts


def round_order(contestants: Sequence[Contestant], number: int) -> list[Contestant]:
    """Every contestant starts a round as often as any other, and comes before and after any other."""
    start = (number // 2) % len(contestants)
    order = [*contestants[start:], *contestants[:start]]
    return order[::-1] if number % 2 else order


def summary(samples: Sequence[float]) -> Timing:
    """Median and quartiles of microseconds."""
    if len(samples) < 2:
        return Timing(samples[0], samples[0], samples[0], len(samples))
    lower, median, upper = statistics.quantiles(samples, n=4, method="inclusive")
    return Timing(median, lower, upper, len(samples))


def ratios(samples: Mapping[str, Sequence[float]], baseline: str, kernel: str) -> tuple[float, float]:
    """The baseline's time over the kernel's, round by round: the median, and the distance of the quartiles.

    A median of more than 1 is a win.
    """
    pairs = zip(samples[baseline], samples[kernel], strict=True)
    found = summary([theirs / ours for theirs, ours in pairs])
    return found.median_us, found.upper_us - found.lower_us


def _settle(item: Contestant, count: int, clock: Clock, options: TimingOptions) -> None:
    spent = 0.0
    while spent < options.settle_ms:
        spent += max(1e-3, clock.sample(item.launches, count))


def _warm_up(
    contestants: Sequence[Contestant], counts: Mapping[str, int], clock: Clock, options: TimingOptions
) -> None:
    spent = 0.0
    while spent < options.warm_up_ms:
        for item in contestants:
            # At least a microsecond, so that a clock that stands still does not hold us here.
            spent += max(1e-3, clock.sample(item.launches, counts[item.name]))
