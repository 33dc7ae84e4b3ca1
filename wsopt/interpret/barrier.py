"""One mbarrier: its count, its pending arrivals and bytes, its phase, and what each phase makes known."""

from __future__ import annotations

from wsopt.interpret.agent import Agent
from wsopt.interpret.clock import Clock
from wsopt.interpret.faults import BarrierError, RaceError
from wsopt.interpret.hazards import Actor


class Barrier:
    """The state of one mbarrier in shared memory, from its `init`."""

    def __init__(self, name: str, count: int, component: int, initialiser: Agent) -> None:
        if not 1 <= count < 1 << 20:
            raise BarrierError(f"{name} is initialised with count {count}; 1 is the least")
        self.name = name
        self.count = count
        self.component = component
        self.pending = count
        self.bytes = 0
        self.completed = 0
        self.valid = True
        self._initialised = (initialiser.component, initialiser.time)
        self._fenced: tuple[int, int] | None = None
        self._gathering = Clock()
        self._released: list[Clock] = []

    def fence(self, agent: Agent) -> None:
        """The initialiser makes its `init` visible to the async proxy."""
        if self._fenced is None and self._initialised[0] == agent.component:
            self._fenced = (agent.component, agent.time)

    def check_usable(self, agent: Actor) -> None:
        """BarrierError after `invalidate`; RaceError where the init is not ordered before `agent`."""
        if not self.valid:
            raise BarrierError(f"{self.name} is used after it was invalidated")
        if not agent.clock.knows(*self._initialised):
            raise RaceError(f"the init of {self.name} is not ordered before its use")

    def check_async(self, agent: Actor) -> None:
        """A copy or a commit may signal the barrier only if its init was fenced."""
        self.check_usable(agent)
        if self._fenced is None or not agent.clock.knows(*self._fenced):
            raise RaceError(
                f"the init of {self.name} is not fenced before a copy signals it (fence_async_shared)"
            )

    def arrive(self, agent: Actor, count: int, expected_bytes: int = 0) -> None:
        """`count` arrivals, after adding the bytes that the phase waits for too.

        Who arrives has to know that the phase before has ended, by a wait for it somewhere: or the arrival counts for
        that one by chance, and a waiter can take one phase for the other.
        """
        self.check_usable(agent)
        if count < 1 or expected_bytes < 0:
            raise BarrierError(f"{self.name}: an arrival of count {count} with {expected_bytes} bytes")
        if count > self.pending:
            more = f" and {self.bytes} bytes" if self.bytes else ""
            raise BarrierError(
                f"{self.name} gets {count} arrivals while phase {self.completed} waits for "
                f"{self.pending} of {self.count}{more}"
            )
        if not agent.clock.knows(self.component, self.completed):
            raise BarrierError(
                f"{self.name} gets an arrival for phase {self.completed} that is not ordered after phase "
                f"{self.completed - 1}: it could count for that one"
            )
        self.bytes += expected_bytes
        self.pending -= count
        self._gathering.join(agent.clock)
        self._advance()

    def deliver(self, count: int, behind: int | None = None) -> int:
        """Bytes of a copy arrive; return the phase (counted from 1) whose end makes the copy known.

        The component `behind` is of an event that had ended when the copy was started, and so has for all who wait.
        """
        if count > self.bytes:
            raise BarrierError(
                f"{self.name} gets {count} bytes of a copy while phase {self.completed} expects {self.bytes}"
            )
        self.bytes -= count
        phase = self.completed + 1
        if behind is not None:
            self._gathering.set(behind, 1)
        self._advance()
        return phase

    def passes(self, parity: int) -> bool:
        """Does a wait for the phase of this parity go through now?"""
        return self.completed & 1 != parity

    def acquire(self, agent: Agent, parity: int) -> None:
        """A wait went through: learn what it guarantees.

        The parity of a wait guarantees only the first phase of that parity that the waiter did not know of
        yet, however far the barrier has come by luck; so only that phase's knowledge is joined.
        """
        known = agent.clock.at(self.component)
        guaranteed = known if known & 1 != parity else known + 1
        if guaranteed:
            agent.clock.join(self._released[guaranteed - 1])

    def _advance(self) -> None:
        if self.pending or self.bytes:
            return
        self.completed += 1
        self._gathering.set(self.component, self.completed)
        self._released.append(self._gathering.copy())
        self.pending = self.count

    def __str__(self) -> str:
        more = f" and expects {self.bytes} more bytes" if self.bytes else ""
        needs = f"waits for {self.pending} of {self.count} arrivals{more}"
        return f"{self.name} ({self.completed} phases done, {needs})"
