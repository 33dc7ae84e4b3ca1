"""Channels of a kernel: memory and barriers through which one role hands tiles to another.

From the list of channels follow what a kernel allocates, how its barriers are set up, and which names each role is
given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from wsopt.emit.tensors import Box
from wsopt.program.types import Space
from wsopt.schedule.types import PartitionRole


@dataclass(frozen=True, slots=True)
class Buffer:
    """Shared or tensor memory: element type, extents and layout as the kernel's text says them."""

    name: str
    dtype: str
    shape: tuple[str, ...]
    layout: str
    space: Space = Space.SHARED

    @property
    def allocate(self) -> str:
        """The function that allocates it."""
        return "gl.allocate_shared_memory" if self.space is Space.SHARED else "allocate_tensor_memory"


@dataclass(frozen=True, slots=True)
class Barrier:
    """Barriers of one name, of which so many `arrivals` complete a phase; a copy's bytes are one."""

    name: str
    arrivals: int


@dataclass(frozen=True, slots=True)
class Channel:
    """Buffers that are handed over together, `versions` of each barrier. `roles` are those that see it.

    Each consumer has an instance of its `own`, or all share one.
    """

    versions: str
    roles: frozenset[PartitionRole]
    buffers: tuple[Buffer, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    own: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which a role knows it."""
        return (*(one.name for one in self.buffers), *(one.name for one in self.barriers))


def box_buffer(name: str, box: Box, count: str) -> Buffer:
    """A buffer for so many boxes."""
    return Buffer(name, box.gluon, (count, *map(str, box.shape)), box.layout)


def instance(name: str, consumer: int) -> str:
    """The name of what a consumer has of its own, where all consumers' are seen."""
    return f"{name}_{consumer}"


def _instances(channels: Iterable[Channel], consumers: int) -> Iterator[tuple[Channel, str]]:
    """Every channel with the ending of its names: those that all share first, then consumer by consumer."""
    every = tuple(channels)
    yield from ((channel, "") for channel in every if not channel.own)
    for consumer in range(consumers):
        yield from ((channel, instance("", consumer)) for channel in every if channel.own)


def allocations(channels: Iterable[Channel], consumers: int) -> Iterator[Buffer]:
    """All that a kernel allocates, in order; barriers are buffers of one word each."""
    for channel, ending in _instances(channels, consumers):
        for one in channel.buffers:
            yield replace(one, name=one.name + ending)
        for barrier in channel.barriers:
            words = (channel.versions, "1")
            yield Buffer(barrier.name + ending, "gl.int64", words, "mbarrier.MBarrierLayout()")


def barrier_groups(channels: Iterable[Channel], consumers: int) -> list[tuple[str, list[Barrier]]]:
    """The barriers that are set up in one loop: those of which there are equally many."""
    found: dict[str, list[Barrier]] = {}
    for channel, ending in _instances(channels, consumers):
        found.setdefault(channel.versions, []).extend(
            Barrier(one.name + ending, one.arrivals) for one in channel.barriers
        )
    return [(versions, barriers) for versions, barriers in found.items() if barriers]
