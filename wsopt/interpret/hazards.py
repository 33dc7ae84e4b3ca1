"""The accesses to one shared-memory allocation, and the rules that each new one must keep.

Every access is an event with a time. A rule is broken where two accesses to the same bytes, one of them a
write, are not ordered by barriers, where an asynchronous one is still outstanding, where data written
by ordinary stores reaches the async proxy (TMA, products) without the writer's `fence_async_shared`, or where
a copy overwrites what threads have read without the reader's: a barrier waits for no load from shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeVar

import numpy as np

from wsopt.interpret.clock import Clock
from wsopt.interpret.dtypes import Array
from wsopt.interpret.faults import RaceError


class Actor(Protocol):
    """Originator of accesses: a partition, or the tensor core for the partition whose products it computes.

    `time` is that of the access under way, in the actor's component; `clock` is what is ordered before it.
    """

    @property
    def name(self) -> str:
        """The partition's name."""

    @property
    def component(self) -> int:
        """The clocks' component that counts this actor's accesses."""

    @property
    def clock(self) -> Clock:
        """Clock of the access: the events that are ordered before it."""

    @property
    def time(self) -> int:
        """The access under way."""


class Reader(Enum):
    """Kind of read access to memory."""

    LOAD = "a load"
    MMA = "a wgmma"
    STORE = "a TMA store"
    PRODUCT = "a tcgen05 product"
    OPERAND = "a tcgen05 product from tensor memory"
    SUM = "the accumulation of a tcgen05 product"

    @property
    def asynchronous(self) -> bool:
        """Is it outstanding until its own partition has waited for it?"""
        return self in (Reader.MMA, Reader.STORE)

    @property
    def by_proxy(self) -> bool:
        """Does it see ordinary stores only after a fence?"""
        return self in (Reader.MMA, Reader.STORE, Reader.PRODUCT)


class Writer(Enum):
    """Kind of write access to memory."""

    COPY = "TMA copy"
    STORE = "store"
    PRODUCT = "tcgen05 product"


@dataclass(frozen=True, slots=True)
class Region:
    """Some bytes of an allocation: the view, its first byte and the end, and its name in messages."""

    view: Array
    low: int
    high: int
    name: str
    dense: bool = field(init=False)  # does it fill all bytes between its ends?

    def __post_init__(self) -> None:
        object.__setattr__(self, "dense", self.high - self.low == self.view.nbytes)

    def overlaps(self, other: Region) -> bool:
        """Do the two share a byte?"""
        if self.high <= other.low or other.high <= self.low:
            return False
        return (self.dense and other.dense) or bool(np.shares_memory(self.view, other.view))

    def covers(self, other: Region) -> bool:
        """Is every byte of `other` surely in this region?"""
        return self.dense and self.low <= other.low and other.high <= self.high


@dataclass(slots=True, eq=False)
class Read:
    """A read; asynchronous ones are outstanding until their partition has waited for them, loads until it has fenced
    them from copies.
    """

    region: Region
    agent: Actor
    reader: Reader
    time: int
    line: int
    outstanding: bool = False
    fenced: int | None = None

    def retire(self) -> None:
        """The partition has waited for it: from now on the read is over."""
        self.outstanding = False
        self.time = self.agent.time

    def __str__(self) -> str:
        return (
            f"the read of {self.region.name} by {self.reader.value} of {self.agent.name} at line {self.line}"
        )


@dataclass(slots=True, eq=False)
class Write:
    """A write: by ordinary stores (fenced or not yet), or by a copy that is in flight until it lands."""

    region: Region
    agent: Actor
    component: int
    time: int
    line: int
    writer: Writer
    in_flight: bool = False
    fenced: int | None = None

    @property
    def copy(self) -> bool:
        """Is it a copy, which is in flight until it lands?"""
        return self.writer is Writer.COPY

    def land(self, component: int, time: int) -> None:
        """The copy is complete; its end is known to those who waited for that phase of the barrier."""
        self.in_flight = False
        self.component = component
        self.time = time

    def __str__(self) -> str:
        return f"the {self.writer.value} into {self.region.name} by {self.agent.name} at line {self.line}"


_Access = TypeVar("_Access", Read, Write)


@dataclass(slots=True)
class History:
    """Accesses to one allocation that later ones can still conflict with."""

    reads: list[Read] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)

    def read(self, agent: Actor, region: Region, reader: Reader, line: int) -> Read:
        """Record a read after checking that what it reads is there and stays there; RaceError if not."""
        for write in _touching(self.writes, region):
            _check_read(agent, region, reader, write)
        read = Read(region, agent, reader, agent.time, line, outstanding=reader.asynchronous)
        if not read.outstanding:
            self.reads = [old for old in self.reads if not _superseded(old, read)]
        self.reads.append(read)
        return read

    def write(self, agent: Actor, region: Region, line: int, writer: Writer) -> Write:
        """Record a write after checking that nobody still needs what it overwrites; RaceError if not."""
        for read in _touching(self.reads, region):
            _check_overwritten_read(agent, read, writer)
        for write in _touching(self.writes, region):
            _check_overwritten_write(agent, write, writer)
        if region.dense:
            self.reads = _without(self.reads, region)
            self.writes = _without(self.writes, region)
        new = Write(region, agent, agent.component, agent.time, line, writer, writer is Writer.COPY)
        self.writes.append(new)
        return new

    def fence(self, agent: Actor) -> None:
        """`fence_async_shared` by an agent: its own earlier stores are now seen by the async proxy, and its loads
        have ended.
        """
        for read in self.reads:
            if read.agent is agent and read.fenced is None:
                read.fenced = agent.time
        for write in self.writes:
            if write.agent is agent and not write.copy and write.fenced is None:
                write.fenced = agent.time


def _touching(accesses: list[_Access], region: Region) -> list[_Access]:
    """The accesses to bytes of a region."""
    low, high = region.low, region.high
    return [
        one
        for one in accesses
        if (other := one.region).low < high and low < other.high and other.overlaps(region)
    ]


def _without(accesses: list[_Access], region: Region) -> list[_Access]:
    """The accesses that are not within a dense region."""
    low, high = region.low, region.high
    return [one for one in accesses if (other := one.region).low < low or high < other.high]


def _superseded(old: Read, new: Read) -> bool:
    """A later read of the same bytes by the same partition is ordered after the old one."""
    return (
        old.agent is new.agent
        and not old.outstanding
        and not new.outstanding
        and new.region.covers(old.region)
    )


def _check_read(agent: Actor, region: Region, reader: Reader, write: Write) -> None:
    if write.in_flight:
        raise RaceError(f"{reader.value} reads {region.name} with a copy in flight: {write}")
    if not agent.clock.knows(write.component, write.time):
        raise RaceError(f"{reader.value} reads {region.name} with no barrier that orders it after {write}")
    if not reader.by_proxy or write.copy:
        return
    if write.fenced is None or not agent.clock.knows(write.component, write.fenced):
        what = "generic store not fenced before the async proxy reads it"
        raise RaceError(f"{region.name}: {what} ({reader.value}): {write}")


def _check_overwritten_read(agent: Actor, read: Read, writer: Writer) -> None:
    what = f"a {writer.value}"
    if read.outstanding:
        raise RaceError(
            f"{what} overwrites {read.region.name} while an asynchronous reader is outstanding: {read}"
        )
    if not agent.clock.knows(read.agent.component, read.time):
        raise RaceError(f"{what} overwrites {read.region.name} with no barrier that orders it after {read}")
    if read.reader is not Reader.LOAD or writer is not Writer.COPY:
        return
    if read.fenced is None or not agent.clock.knows(read.agent.component, read.fenced):
        what = "a load not fenced before a copy overwrites what it reads"
        raise RaceError(f"{read.region.name}: {what} (fence_async_shared): {read}")


def _check_overwritten_write(agent: Actor, write: Write, writer: Writer) -> None:
    what = f"a {writer.value}"
    if write.in_flight:
        raise RaceError(f"{what} overwrites {write.region.name} with a copy in flight: {write}")
    if not agent.clock.knows(write.component, write.time):
        raise RaceError(f"{what} overwrites {write.region.name} with no barrier that orders it after {write}")
