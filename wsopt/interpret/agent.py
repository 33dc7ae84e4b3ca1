"""A partition while it runs: one coroutine with its clock and the asynchronous work it has issued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import greenlet
import numpy as np

from wsopt.interpret.clock import Clock


class AsyncWork(Protocol):
    """A copy, a store, a product or a commit between its issue and the moment it happens."""

    line: int
    agent: Agent
    wakes: bool  # can it let a waiting partition go on?

    def possible(self) -> bool:
        """May it happen now? (Products of one partition happen in order.)"""

    def perform(self) -> None:
        """Let it happen."""


@dataclass(frozen=True)
class Waiting:
    """The condition that a partition waits for: it goes on once `ready` says so."""

    ready: Callable[[], bool]
    describe: Callable[[], str]
    line: int


@dataclass(eq=False)
class Agent:
    """One partition of one program, or of one of its blocks where these are a pair."""

    index: int
    name: str
    num_warps: int
    component: int
    clock: Clock
    coroutine: Any = None
    waiting: Waiting | None = None
    finished: bool = False
    result: Any = None
    line: int = 0
    block: int = 0
    joined: int = 0  # its time at its last `thread_barrier`
    alone: int | None = None  # component of what one of its threads does alone, once there is any
    mmas: list[Any] = field(default_factory=list)
    stores: list[Any] = field(default_factory=list)
    tensor_core: Any = None  # its `tcgen05.TensorCore`, once it has issued a product or a commit
    passes: dict[int, int] = field(default_factory=dict)

    def tick(self) -> int:
        """Start the next operation; return its time."""
        return self.clock.tick(self.component)

    @property
    def time(self) -> int:
        """The time of the operation under way."""
        return self.clock.at(self.component)

    def pause(self) -> None:
        """Let others run; return when the scheduler comes back to this partition."""
        self.coroutine.parent.switch()

    def wait_until(self, waiting: Waiting) -> None:
        """Give up control until `waiting` is ready."""
        self.waiting = waiting
        self.pause()
        self.waiting = None

    def start(self, body: Callable[[], Any]) -> None:
        """Make the coroutine that will run `body` under the caller."""

        def run() -> None:
            with np.errstate(all="ignore"):  # a coroutine has a context of its own
                self.result = body()
            self.finished = True

        self.coroutine = greenlet.greenlet(run)

    def stop(self) -> None:
        """Unwind a coroutine that will not be run any more."""
        if self.coroutine is not None and self.coroutine:
            self.coroutine.throw()


def all_finished(agents: Sequence[Agent]) -> bool:
    """Have all of these ended? A plain loop: this is asked at every step of a program."""
    for agent in agents:  # noqa: SIM110
        if not agent.finished:
            return False
    return True
