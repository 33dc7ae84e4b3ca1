"""What is asked of all nodes again and again while pieces are sought, found once: readers, indices, order."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from torch import fx

from wsopt.graph.types import Node
from wsopt.torch.lower import Lowered


@dataclass(slots=True)
class Wiring:
    """The nodes of what our graphs say of an FX graph: of each group, and their places; who reads a tensor; which are
    made of indices alone; and the groups of whose results FX wants one that is not said, with the reason.
    """

    lowered: Lowered
    groups: dict[str, list[Node]] = field(default_factory=lambda: defaultdict(list))
    _place: dict[str, int] = field(default_factory=dict)
    _readers: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _free: set[str] = field(default_factory=set)
    _unsaid: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        writer = self.lowered.writer
        for place, node in enumerate(writer.nodes.values()):
            self.groups[writer.groups[node.name]].append(node)
            self._place[node.name] = place
            for name in dict.fromkeys(node.tensors):
                self._readers[name].append(node.name)
            if all(name in self._free for name in node.tensors):
                self._free.add(node.name)
        for node in self.lowered.graph.nodes:
            if node.target is operator.getitem and node.name in self.lowered.refused and node.users:
                self._unsaid[str(node.args[0])] = self.lowered.refused[node.name]

    def nodes_of(self, groups: Iterable[str]) -> frozenset[str]:
        """The names of the nodes of groups."""
        return frozenset(node.name for group in groups for node in self.groups[group])

    def with_indices(self, names: Collection[str]) -> list[Node]:
        """The nodes, in order, with all that they read and that is made of indices alone."""
        nodes, wanted = self.lowered.writer.nodes, dict.fromkeys(names)
        waiting = list(names)
        while waiting:
            for name in nodes[waiting.pop()].tensors:
                if name in self._free and name not in wanted:
                    wanted[name] = None
                    waiting.append(name)
        return [nodes[name] for name in sorted(wanted, key=self._place.__getitem__)]

    def is_needed(self, tensor: str, own: Collection[str], covered: Collection[str]) -> bool:
        """Whether anything but a piece's `own` nodes, which cover FX nodes, reads a tensor."""
        owner = self.lowered.owners.get(tensor)
        if owner is None:
            return any(name not in own for name in self._readers[tensor])
        return self._read_outside(owner, covered)

    def _read_outside(self, node: fx.Node, covered: Collection[str]) -> bool:
        return any(
            self._read_outside(user, covered) if self.lowered.through(user) else user.name not in covered
            for user in node.users
        )

    def unsaid(self, covered: Iterable[str]) -> str:
        """Why one of these FX nodes is not to be computed: FX wants a result of it that is not said. Else empty."""
        return next((self._unsaid[name] for name in covered if name in self._unsaid), "")
