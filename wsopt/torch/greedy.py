"""Cuts what our graphs say of an FX graph into pieces: from each product, and then each reduction, as far as it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from wsopt.frontend.kinds import is_matmul, reduces_rows
from wsopt.graph.types import Node
from wsopt.torch.flow import Flow, members

PATIENCE = 12
"""Groups by which a part that is refused may grow before it is given up."""
RESTARTS = 4
"""Ways on that are tried from a part that a kernel takes."""

Accept = Callable[[frozenset[str]], str]
"""Why no kernel is made of the nodes of these groups; empty if one is."""


@dataclass(slots=True)
class Greedy:
    """A search for pieces. `reasons` says of each seed of which none came why."""

    flow: Flow
    accept: Accept
    nodes: dict[str, list[Node]]
    taken: int = 0
    reasons: dict[str, str] = field(default_factory=dict)
    _known: dict[int, str] = field(default_factory=dict)

    def pieces(self) -> Iterator[frozenset[str]]:
        """The groups of each piece."""
        for is_seed in (is_matmul, reduces_rows):
            for number in members(self.flow.groups & ~self.flow.free):
                name = self.flow.names[number]
                if self.taken >> number & 1 or not any(map(is_seed, self.nodes[name])):
                    continue
                found = self._grown(1 << number)
                if found is None:
                    self.reasons.setdefault(name, self._refusal(1 << number))
                    continue
                self.taken |= found
                self.flow.fuse(found)
                for member in members(found):
                    self.reasons.pop(self.flow.names[member], None)
                yield self._names(found)

    def _names(self, nodes: int) -> frozenset[str]:
        return frozenset(self.flow.names[number] for number in members(nodes))

    def _refusal(self, nodes: int) -> str:
        if nodes not in self._known:
            self._known[nodes] = self.accept(self._names(nodes))
        return self._known[nodes]

    def _grown(self, seed: int) -> int | None:
        """The largest part found that holds the seed and is one kernel; None if there is none."""
        best = None if self._refusal(seed) else seed
        shut = 0
        for _ in range(RESTARTS):
            found, first = self._forward(seed if best is None else best, shut)
            if found is None:
                if not first:
                    break
                shut |= first
            else:
                best = found
        return None if best is None else self._backward(best)

    def _forward(self, start: int, shut: int) -> tuple[int | None, int]:
        """A part beyond `start` that is one kernel, the largest on one way on, and the group that the way began with."""
        current, found, left, first = start, None, PATIENCE, 0
        barred = self.taken | shut
        while left:
            step = self._next(current, barred)
            if step is None:
                break
            grown, reader = step
            first = first or reader
            if grown is None:
                barred |= reader
                continue
            with_sources = self._with_sources(grown, barred)
            if with_sources != grown and not self._refusal(with_sources):
                grown = with_sources
            current = grown
            if self._refusal(current):
                left -= 1
            else:
                found, left = current, PATIENCE
        return found, first

    def _next(self, nodes: int, barred: int) -> tuple[int | None, int] | None:
        """The nodes with the first group that reads them and all between; None in its place if those are barred."""
        for number in self.flow.readers(nodes):
            if self.flow.groups >> number & ~(barred >> number) & 1 and not self.flow.free >> number & 1:
                return self.flow.closed(nodes | 1 << number, barred), 1 << number
        return None

    def _with_sources(self, nodes: int, barred: int) -> int:
        """The nodes with the groups that feed them and that no piece has, up to products and reductions."""
        found, again = nodes, True
        while again:
            again = False
            for number in self.flow.sources(found):
                if not self._open(number, barred) or not self._feeds_only(number, found):
                    continue
                grown = self.flow.closed(found | 1 << number, barred)
                if grown is not None:
                    found, again = grown, True
                    break
        return found

    def _backward(self, nodes: int) -> int:
        """A part with the groups that feed it alone, as long as it is one kernel."""
        again = True
        while again:
            again = False
            for number in self.flow.sources(nodes):
                if not self._open(number, self.taken) or not self._feeds_only(number, nodes):
                    continue
                grown = self.flow.closed(nodes | 1 << number, self.taken)
                if grown is not None and not self._refusal(grown):
                    nodes, again = grown, True
                    break
        return nodes

    def _open(self, number: int, barred: int) -> bool:
        return bool(self.flow.groups >> number & ~(barred >> number) & 1)

    def _feeds_only(self, number: int, nodes: int) -> bool:
        return all(nodes >> reader & 1 for reader in self.flow.readers(1 << number))
