"""What depends on what among the nodes of an FX graph, as sets of bits, and which of them can be one kernel's.

A *group* is an FX node for which nodes of ours are written. A group is *free* if it reads no tensor from outside, as
indices and masks made of them do: every piece that needs it computes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from wsopt.partition.web import bits, members, union


@dataclass(slots=True)
class Flow:
    """Nodes in the order of an FX graph, views left out; each reads earlier ones. `groups` and `free` are sets,
    `ends` those that nothing reads: the results of the whole graph. Each is `read_by` later ones; it `needs` all that
    it depends on, and `feeds` all that depends on it.
    """

    names: tuple[str, ...]
    reads: tuple[int, ...]
    groups: int
    free: int
    ends: int = field(init=False)
    read_by: list[int] = field(init=False)
    needs: list[int] = field(init=False)
    feeds: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.ends = ((1 << len(self.names)) - 1) & ~union(self.reads)
        self.read_by = [0] * len(self.names)
        self.needs = [0] * len(self.names)
        self.feeds = [0] * len(self.names)
        for number, reads in enumerate(self.reads):
            for source in members(reads):
                self.read_by[source] |= 1 << number
                self.needs[number] |= self.needs[source] | 1 << source
        for number in reversed(range(len(self.names))):
            for reader in members(self.read_by[number]):
                self.feeds[number] |= self.feeds[reader] | 1 << reader

    def fuse(self, nodes: int) -> None:
        """Count nodes as one from now on: what one of them needs all need, and so does whoever needs one of them."""
        needs, feeds = (union(of[n] for n in members(nodes)) & ~nodes for of in (self.needs, self.feeds))
        for number in members(nodes):
            self.needs[number], self.feeds[number] = needs, feeds
        for number in members(feeds):
            self.needs[number] |= needs | nodes
        for number in members(needs):
            self.feeds[number] |= feeds | nodes

    def between(self, nodes: int) -> int:
        """The nodes that lie on a way from one of these to another, free ones left out."""
        needs, feeds = (union(of[n] for n in members(nodes)) for of in (self.needs, self.feeds))
        return needs & feeds & ~nodes & ~self.free

    def closed(self, nodes: int, barred: int) -> int | None:
        """These nodes with all between them; None if one of those is barred or is no group."""
        found = nodes | self.between(nodes)
        return None if found & (barred | ~self.groups) else found

    def readers(self, nodes: int) -> Iterator[int]:
        """The nodes that read one of these, in order."""
        return members(union(self.read_by[number] for number in members(nodes)) & ~nodes)

    def sources(self, nodes: int) -> Iterator[int]:
        """The nodes that these read, the last first."""
        read = union(self.reads[number] for number in members(nodes)) & ~nodes & ~self.free
        yield from reversed(list(members(read)))


def flow_of(order: Iterable[str], reads: Mapping[str, Iterable[str]], groups: Iterable[str]) -> Flow:
    """The flow of nodes that read others by name."""
    names = tuple(order)
    number = {name: at for at, name in enumerate(names)}
    read = [bits(number[one] for one in reads[name]) for name in names]
    mine, free = bits(number[name] for name in groups), 0
    for at, own in enumerate(read):
        if mine >> at & 1 and not own & ~free:
            free |= 1 << at
    return Flow(names, tuple(read), mine, free)
