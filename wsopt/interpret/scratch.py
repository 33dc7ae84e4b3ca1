"""Global memory that one launch both writes and reads: partial results, and counters at which blocks arrive.

Of two accesses to an element, one of them a write, the earlier must happen before the later: in one partition by a
`thread_barrier` between them (its threads hold different elements), in one block by mbarriers, and between blocks by
`thread_barrier`, an atomic that releases, and one of the same address that acquires.

One thread of a partition does a scalar atomic or store. An atomic's result, where it is used, goes to the other
threads through shared memory and a barrier behind it, so all of them know what it acquired (3.6 has no barrier behind
one whose result is not used; that is not looked at). Before the atomic Triton 3.9 has a barrier of its own, 3.6 none
(PTX of both for sm_90): so it releases what its partition did before its last `thread_barrier`, and the scalar
accesses of that one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wsopt.interpret.clock import Knowledge, merged
from wsopt.interpret.dtypes import Array
from wsopt.interpret.faults import InterpreterError, RaceError

if TYPE_CHECKING:
    from wsopt.interpret.agent import Agent
    from wsopt.interpret.program import Program

SCOPES = ("cta", "gpu", "sys")
_RELEASING, _ACQUIRING = ("release", "acq_rel"), ("acquire", "acq_rel")
SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")


class Kind(Enum):
    """Kind of access."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"


@dataclass(frozen=True, slots=True)
class Access:
    """An access of an agent: event `time` of a component of the clocks of block `block`."""

    kind: Kind
    block: int
    agent: Agent
    component: int
    time: int
    line: int
    scope: str

    def __str__(self) -> str:
        return f"the {self.kind.value} by {self.agent.name} of block {self.block} at line {self.line}"


class Scratch:
    """The accesses of one launch to a tensor that is neither an input nor an output.

    `accesses` are in order of time; of each element the number of its last store is kept, and the chain of its loads
    and atomics since. A chain is the number of its last access and of the chain before; 0 is none.
    """

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._accesses: list[Access] = []
        self._chains: list[tuple[int, int]] = [(0, 0)]
        self._stored: NDArray[np.int32] = np.zeros(size, np.int32)
        self._since: NDArray[np.int32] = np.zeros(size, np.int32)
        self._released: dict[int, Knowledge] = {}  # by element: what an acquire there learns

    def load(self, program: Program, elements: Array) -> None:
        """All threads read; RaceError where a write is not ordered before."""
        number = self._begin(program, Kind.LOAD)
        self._check(program, elements, {Kind.STORE, Kind.ATOMIC})
        self._note(number, elements)

    def store(self, program: Program, elements: Array, *, scalar: bool) -> None:
        """All threads write their elements, or one a scalar; RaceError where an access is not ordered before."""
        number = self._begin(program, Kind.STORE, alone=scalar)
        self._check(program, elements, set(Kind))
        self._stored[elements] = number
        self._since[elements] = 0
        for element in self._released.keys() & set(elements.tolist()) if self._released else ():
            del self._released[element]  # who reads this store acquires nothing

    def atomic(self, program: Program, elements: Array, semantics: str, scope: str) -> None:
        """One thread reads and writes an element; RaceError where a load or a store is not ordered before.

        Atomics race with one another only where their scope leaves out the other's block.
        """
        if semantics not in SEMANTICS or scope not in SCOPES:
            raise InterpreterError(f"an atomic of semantics {semantics!r} and scope {scope!r}")
        agent, (element,) = program.agent, (int(at) for at in elements)
        before = self._released.get(element)
        if before is not None and semantics in _ACQUIRING:
            agent.clock.learn(program.number, before)
        number = self._begin(program, Kind.ATOMIC, alone=True, scope=scope)
        self._check(program, elements, {Kind.LOAD, Kind.STORE})
        self._check_scopes(number, element)
        self._note(number, elements)
        if semantics in _RELEASING:  # an atomic goes on with what those before it have released
            self._released[element] = merged(before or {}, _published(program))

    def add(self, program: Program, elements: Array, semantics: str, scope: str) -> None:
        """All threads add to their elements, in no order; RaceError where a load or a store is not ordered before.

        Nothing is told and nothing learned: InterpreterError where that is asked for.
        """
        if semantics != "relaxed" or scope not in SCOPES:
            raise InterpreterError(f"an atomic of a tensor with semantics {semantics!r} and scope {scope!r}")
        number = self._begin(program, Kind.ATOMIC, scope=scope)
        self._check(program, elements, {Kind.LOAD, Kind.STORE})
        for chain in _distinct(self._since[elements]):
            self._check_scopes(number, int(elements[self._since[elements] == chain][0]))
        self._note(number, elements)

    def _begin(self, program: Program, kind: Kind, *, alone: bool = False, scope: str = "gpu") -> int:
        """Number the access that begins; one of a single thread is an event of a component of its own."""
        agent = program.agent
        component = agent.component
        if alone:
            component = agent.alone = program.components.new() if agent.alone is None else agent.alone
            agent.clock.set(component, agent.time)
        access = Access(kind, program.number, agent, component, agent.time, agent.line, scope)
        self._accesses.append(access)
        return len(self._accesses)

    def _check(self, program: Program, elements: Array, kinds: set[Kind]) -> None:
        """RaceError where an access of these kinds to the elements does not happen before the one that begins."""
        new = self._accesses[-1]
        for number in _distinct(self._stored[elements]):
            if number and not _ordered(program, new, self._accesses[number - 1]):
                self._race(new, self._accesses[number - 1], elements[self._stored[elements] == number])
        for chain in _distinct(self._since[elements]):
            for old in self._chain(chain):
                if old.kind in kinds and not _ordered(program, new, old):
                    self._race(new, old, elements[self._since[elements] == chain])

    def _check_scopes(self, number: int, element: int) -> None:
        new = self._accesses[number - 1]
        for old in self._chain(int(self._since[element])):
            if old.kind is Kind.ATOMIC and old.block != new.block and "cta" in (old.scope, new.scope):
                raise RaceError(f"{self._name}[{element}]: {new} and {old} are atomic within a block only")

    def _note(self, number: int, elements: Array) -> None:
        """Lengthen the elements' chains by an access."""
        chains = self._since[elements]
        for chain in _distinct(chains):
            self._chains.append((number, chain))
            self._since[elements[chains == chain]] = len(self._chains) - 1

    def _chain(self, chain: int) -> Iterator[Access]:
        while chain:
            number, chain = self._chains[chain]
            yield self._accesses[number - 1]

    def _race(self, new: Access, old: Access, elements: Array) -> None:
        if new.block != old.block:
            missing = "no thread_barrier, release and acquire"
        else:
            missing = "no thread_barrier" if new.agent is old.agent else "no mbarrier"
        raise RaceError(
            f"{self._name}[{int(elements[0])}]: {missing} between {old} and the {new.kind.value} that follows"
        )


def _ordered(program: Program, new: Access, old: Access) -> bool:
    """Does the old access happen before the new one?"""
    if old.block != new.block:
        return new.agent.clock.knows_of(old.block, old.component, old.time)
    if old.agent is not new.agent:
        return new.agent.clock.knows(old.component, old.time)
    one_thread = old.component == new.component == new.agent.alone
    return one_thread or old.time <= new.agent.joined


def _published(program: Program) -> Knowledge:
    """What the one thread of an atomic can tell: its own accesses, and its partition's up to the last barrier."""
    agent = program.agent
    clock = agent.clock.copy()
    clock.set(agent.component, agent.joined)
    return clock.published(program.number)


def _distinct(numbers: Array) -> list[int]:
    """The numbers that occur; in most accesses it is one."""
    if numbers.size and (numbers == numbers[0]).all():
        return [int(numbers[0])]
    return [int(number) for number in np.unique(numbers)]
