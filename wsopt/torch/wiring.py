"""What is asked of all nodes again and again while pieces are sought, found once: readers, indices, order."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass, field

from torch import fx

from wsopt.graph.types import Input, Node
from wsopt.torch.lower import Lowered


@dataclass(slots=True)
class Wiring:
    """The nodes of what our graphs say of an FX graph: of each group, and their places; FX's nodes by name (`calls`);
    who reads a tensor; which are made of indices alone; and the groups of whose results FX wants one that is not
    said, with the reason. `inputs` are tensors from outside in shapes in which pieces read them, with the order in
    memory of their dimensions, for pieces that read them so and for others.
    """

    lowered: Lowered
    groups: dict[str, list[Node]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[str, fx.Node] = field(default_factory=dict)
    inputs: dict[tuple[str, tuple[int, ...], bool], tuple[Input, tuple[int, ...] | None]] = field(
        default_factory=dict
    )
    _nodes: list[Node] = field(default_factory=list)
    _place: dict[str, int] = field(default_factory=dict)
    _readers: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _read_by: dict[str, frozenset[str]] = field(default_factory=dict)
    _free: set[str] = field(default_factory=set)
    _unsaid: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        writer = self.lowered.writer
        for place, node in enumerate(writer.nodes.values()):
            self.groups[writer.groups[node.name]].append(node)
            self._place[node.name] = place
            self._nodes.append(node)
            for name in dict.fromkeys(node.tensors):
                self._readers[name].append(node.name)
            if all(name in self._free for name in node.tensors):
                self._free.add(node.name)
        for node in self.lowered.graph.nodes:
            self.calls[node.name] = node
            if node.target is operator.getitem and node.name in self.lowered.refused and node.users:
                self._unsaid[str(node.args[0])] = self.lowered.refused[node.name]
            if node.name in writer.types and self.lowered.owned(node):
                self._unsaid[node.name] = (
                    f"products read {node.name} with all its elements, some of them repeated"
                )

    def nodes_of(self, groups: Iterable[str]) -> frozenset[str]:
        """The names of the nodes of groups."""
        return frozenset(node.name for group in groups for node in self.groups[group])

    def places(self, names: Iterable[str]) -> frozenset[int]:
        """Where nodes stand among all, with all that they read and that is made of indices alone."""
        nodes, wanted = self.lowered.writer.nodes, dict.fromkeys(names)
        waiting = list(wanted)
        while waiting:
            for name in nodes[waiting.pop()].tensors:
                if name in self._free and name not in wanted:
                    wanted[name] = None
                    waiting.append(name)
        return frozenset(self._place[name] for name in wanted)

    def with_indices(self, names: Collection[str]) -> list[Node]:
        """The nodes, in order, with all that they read and that is made of indices alone."""
        return [self._nodes[place] for place in sorted(self.places(names))]

    def is_needed(self, tensor: str, own: Set[str], covered: Set[str]) -> bool:
        """Whether anything but a piece's `own` nodes, which cover FX nodes, reads a tensor."""
        return not self.readers(tensor) <= (own if self.lowered.owners.get(tensor) is None else covered)

    def readers(self, tensor: str) -> frozenset[str]:
        """The FX nodes that read a tensor, as it is or through views; the nodes of ours if it is no FX node's."""
        if tensor not in self._read_by:
            owner = self.lowered.owners.get(tensor)
            found = self._readers[tensor] if owner is None else self._users(owner)
            self._read_by[tensor] = frozenset(found)
        return self._read_by[tensor]

    def _users(self, node: fx.Node) -> Iterator[str]:
        for user in node.users:
            if self.lowered.through(user):
                yield from self._users(user)
            else:
                yield user.name

    def unsaid(self, covered: Iterable[str]) -> str:
        """Why one of these FX nodes is not to be computed: FX wants a result of it that is not said. Else empty."""
        return next((self._unsaid[name] for name in covered if name in self._unsaid), "")
