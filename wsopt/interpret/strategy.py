"""Choices of a seed: the role that runs next, and the time at which asynchronous work happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


class Order(Enum):
    """Order in which partitions that can run go on."""

    RANDOM = "any of them"
    STICKY = "the one that ran last, as far as it goes"
    RANKED = "the first of a fixed ranking, so that the last one starves"
    STARVE = "any but one, which runs only when no other can"


class Completion(Enum):
    """When copies, stores and wgmma happen."""

    EAGER = "as soon as they are issued"
    RANDOM = "at any time"
    LATE = "at the last legal moment"


@dataclass(frozen=True)
class Strategy:
    """One kind of interleaving."""

    order: Order
    completion: Completion
    newest_first: bool = False


STRATEGIES = (
    Strategy(Order.RANDOM, Completion.RANDOM),
    Strategy(Order.STICKY, Completion.LATE),
    Strategy(Order.RANKED, Completion.EAGER),
    Strategy(Order.STARVE, Completion.LATE, newest_first=True),
    Strategy(Order.STARVE, Completion.EAGER),
    Strategy(Order.RANKED, Completion.RANDOM, newest_first=True),
    Strategy(Order.STICKY, Completion.EAGER),
    Strategy(Order.RANDOM, Completion.LATE, newest_first=True),
)


def processors(seed: int) -> int:
    """How many blocks share the tiles under a seed: two, or one that has all, and so goes round a deep ring too, or
    three, of which each can be the last at some of the tiles that it shares with another.

    Each strategy comes with all of these.
    """
    return (2, 1, 3)[seed // len(STRATEGIES) % 3]


def sharing_processors(seed: int) -> int:
    """The same where blocks share tiles, or those that are behind all whole waves: any number of tiles but a multiple
    of 30 one of these does not divide, and one block leaves none.

    Each strategy comes with all of these too.
    """
    return (2, 1, 3, 5)[seed % 4]


class Chooser:
    """A strategy with its random numbers; ranks are drawn anew for every program of the grid."""

    def __init__(self, seed: int) -> None:
        self.strategy = STRATEGIES[seed % len(STRATEGIES)]
        self._random = Random(seed)
        self._blocks = Random(f"order of programs, seed {seed}") if seed else None
        self._ranks: dict[int, float] = {}
        self._last = -1

    def programs(self, numbers: Sequence[Item]) -> list[Item]:
        """Return the order in which a grid's programs run, one after the other: as numbered under seed 0."""
        return self._blocks.sample(numbers, len(numbers)) if self._blocks else list(numbers)

    def new_program(self) -> None:
        """Forget the ranking of the previous program."""
        self._ranks = {}
        self._last = -1

    def agent(self, runnable: Sequence[int]) -> int:
        """Return which of the runnable partitions goes next (not empty)."""
        match self.strategy.order:
            case Order.STICKY if self._last in runnable:
                chosen = self._last
            case Order.RANKED:
                chosen = min(runnable, key=self._rank)
            case Order.STARVE if len(runnable) > 1:
                victim = max(runnable, key=self._rank)
                chosen = self._random.choice([agent for agent in runnable if agent != victim])
            case _:
                chosen = self._random.choice(runnable)
        self._last = chosen
        return chosen

    def _rank(self, agent: int) -> float:
        return self._ranks.setdefault(agent, self._random.random())

    def completes_now(self, pending: int) -> bool:
        """Does a piece of asynchronous work happen before the next partition runs?"""
        match self.strategy.completion:
            case Completion.EAGER:
                return True
            case Completion.RANDOM:
                return self._random.random() < pending / (pending + 3)
            case Completion.LATE:
                return False

    def work(self, pending: Sequence[Item]) -> Item:
        """Return which piece of asynchronous work happens (not empty)."""
        if self.strategy.completion is Completion.EAGER:
            return pending[0]
        return pending[-1] if self.strategy.newest_first else self._random.choice(pending)
