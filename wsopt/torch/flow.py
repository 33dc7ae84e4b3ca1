"""What depends on what among the nodes of an FX graph, as sets of bits, and which of them can be one kernel's.

A *group* is an FX node for which nodes of ours are written. A group is *free* if it reads no tensor from outside, as
indices and masks made of them do: every piece that needs it computes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from wsopt.graph.order import topological_order


@dataclass(slots=True)
class Flow:
    """Nodes in the order of an FX graph, views left out; each reads earlier ones. `groups` and `free` are sets."""

    names: tuple[str, ...]
    reads: tuple[int, ...]
    groups: int
    free: int
    needs: list[int] = field(init=False)
    feeds: list[int] = field(init=False)
    together: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reach()

    def fuse(self, nodes: int) -> None:
        """Count nodes as one from now on: what one of them needs all need."""
        for number in members(nodes):
            self.together[number] = nodes
        self._reach()

    def _reach(self) -> None:
        """What each node depends on, and what depends on it, with fused nodes as one."""
        wholes = list(dict.fromkeys(self.together.get(n, 1 << n) for n in range(len(self.names))))
        number = {member: at for at, whole in enumerate(wholes) for member in members(whole)}
        reads = [self._sources(whole, number) for whole in wholes]
        order = topological_order(reads)
        needs, feeds = [0] * len(wholes), [0] * len(wholes)
        for at in order:
            for source in reads[at]:
                needs[at] |= needs[source] | wholes[source]
        for at in reversed(order):
            for source in reads[at]:
                feeds[source] |= feeds[at] | wholes[at]
        self.needs = [needs[number[n]] for n in range(len(self.names))]
        self.feeds = [feeds[number[n]] for n in range(len(self.names))]

    def _sources(self, whole: int, number: dict[int, int]) -> list[int]:
        """The numbers of the wholes that one reads."""
        read = 0
        for member in members(whole):
            read |= self.reads[member]
        return list(dict.fromkeys(number[source] for source in members(read & ~whole)))

    def between(self, nodes: int) -> int:
        """The nodes that lie on a way from one of these to another, free ones left out."""
        needs = feeds = 0
        for number in members(nodes):
            needs |= self.needs[number]
            feeds |= self.feeds[number]
        return needs & feeds & ~nodes & ~self.free

    def closed(self, nodes: int, barred: int) -> int | None:
        """These nodes with all between them; None if one of those is barred or is no group."""
        found = nodes | self.between(nodes)
        return None if found & (barred | ~self.groups) else found

    def readers(self, nodes: int) -> Iterator[int]:
        """The nodes that read one of these, in order."""
        for number, reads in enumerate(self.reads):
            if reads & nodes and not nodes >> number & 1:
                yield number

    def sources(self, nodes: int) -> Iterator[int]:
        """The nodes that these read, the last first."""
        read = 0
        for number in members(nodes):
            read |= self.reads[number]
        yield from reversed(list(members(read & ~nodes & ~self.free)))


def flow_of(order: Iterable[str], reads: Mapping[str, Iterable[str]], groups: Iterable[str]) -> Flow:
    """The flow of nodes that read others by name."""
    names = tuple(order)
    number = {name: at for at, name in enumerate(names)}
    bits = [sum({1 << number[one] for one in reads[name]}) for name in names]
    mine, free = sum(1 << number[name] for name in groups), 0
    for at, own in enumerate(bits):
        if mine >> at & 1 and not own & ~free:
            free |= 1 << at
    return Flow(names, tuple(bits), mine, free)


def members(nodes: int) -> Iterator[int]:
    """The numbers in a set, ascending."""
    while nodes:
        low = nodes & -nodes
        yield low.bit_length() - 1
        nodes ^= low
