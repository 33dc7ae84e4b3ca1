"""Which sets of groups are alike: what makes their piece, told without where in the FX graph they stand.

The layers of a model are mostly alike. What is found out of a set of groups, that it is no piece or which kernel it
is, is as true of every set of the same form, so that a model of many layers asks hardly more than one of two.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from wsopt.graph.types import Node
from wsopt.torch.lying import is_made_here, memory_order, repeating
from wsopt.torch.wiring import Wiring

_INSIDE = -1
"""In the place of what an output is: the node is none."""


@dataclass(frozen=True, slots=True)
class Form:
    """A number, equal for sets that are alike, and the FX nodes of a set's outputs, in the order of its piece."""

    number: int
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Told:
    """A node: its group, a number equal for those that do the same, and the tensors that it reads."""

    name: str
    group: str
    kind: int
    sources: tuple[str, ...]


@dataclass(slots=True)
class Forms:
    """The forms of sets of groups: all that `piece_of` asks of one, but for names, which are in its reasons alone.

    The nodes of a form are told in order: what each does, its operands by where they come from, and what an output
    is. Tensors from outside are numbered as they are met, and told what they are then.
    """

    wiring: Wiring
    _nodes: list[_Told] = field(default_factory=list)
    known: dict[frozenset[str], Form] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _places: dict[str, frozenset[int]] = field(default_factory=dict)
    _inputs: dict[str, int] = field(default_factory=dict)
    _outputs: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        writer = self.wiring.lowered.writer
        for node in writer.nodes.values():
            group = writer.groups[node.name]
            kind = self._number(_without_names(node), self.wiring.unsaid((group,)) != "")
            self._nodes.append(_Told(node.name, group, kind, node.tensors))

    def of(self, groups: frozenset[str]) -> Form:
        """The form of groups."""
        found = self.known.get(groups)
        if found is None:
            found = self.known[groups] = self._found(groups)
        return found

    def _found(self, groups: frozenset[str]) -> Form:
        nodes = [self._nodes[place] for place in self._in_order(groups)]
        own, covered = {node.name for node in nodes}, {node.group for node in nodes}
        told, outputs = list[int](), list[str]()
        known, outside = dict[str, int](), dict[str, int]()
        for number, node in enumerate(nodes):
            told.append(node.kind)
            for source in node.sources:
                if source not in known:
                    owner = self._owner(source)
                    if owner not in outside:
                        outside[owner] = -1 - len(outside)
                        told.append(self._input(source))
                    known[source] = outside[owner]
                told.append(known[source])
            known[node.name] = number
            if node.group in groups and self.wiring.is_needed(node.name, own, covered):
                told.append(self._output(node.name))
                outputs.append(self._owner(node.name))
            else:
                told.append(_INSIDE)
        return Form(self._number(*told), tuple(outputs))

    def _in_order(self, groups: Iterable[str]) -> list[int]:
        """The places of groups' nodes, with the indices that they read, ascending."""
        for group in groups:
            if group not in self._places:
                self._places[group] = self.wiring.places(self.wiring.nodes_of((group,)))
        return sorted(frozenset[int]().union(*(self._places[group] for group in groups)))

    def _number(self, *told: Hashable) -> int:
        """The number of what is told, a new one if it is."""
        return self._numbers.setdefault(told, len(self._numbers))

    def _owner(self, tensor: str) -> str:
        """The FX node that a tensor is; its own name where it is none."""
        owner = self.wiring.lowered.owners.get(tensor)
        return tensor if owner is None else owner.name

    def _input(self, tensor: str) -> int:
        """The number of all that matters of a tensor from outside, which is positive."""
        if tensor not in self._inputs:
            self._inputs[tensor] = self._number("input", *self._as_input(tensor))
        return self._inputs[tensor]

    def _as_input(self, tensor: str) -> tuple[Hashable, ...]:
        lowered = self.wiring.lowered
        owner = lowered.owners.get(tensor)
        if owner is None:
            return ()
        shape, strides = (of(owner.meta["val"]) for of in (lowered.symbols.shape, lowered.symbols.strides))
        kind, fixed = lowered.writer.types[tensor], owner.name in lowered.constants
        copied = tensor in lowered.copied
        return kind, shape, strides, fixed, copied, repeating(lowered, tensor), is_made_here(owner)

    def _output(self, tensor: str) -> int:
        """The number of all that matters of a result."""
        if tensor not in self._outputs:
            self._outputs[tensor] = self._number("output", *self._as_output(tensor))
        return self._outputs[tensor]

    def _as_output(self, tensor: str) -> tuple[Hashable, ...]:
        lowered = self.wiring.lowered
        owner = lowered.owners.get(tensor)
        if owner is None:
            return ()
        val, value = owner.meta["val"], lowered.values[owner.name]
        whole = not isinstance(value, tuple) and value.whole
        return val.dtype, lowered.symbols.shape(val), whole, memory_order(lowered.symbols, owner)


def _without_names(node: Node) -> str:
    """What a node does, in words: of numbers alone, 1 would be as good as 1.0 and True."""
    operands = tuple("" if isinstance(one, str) else one for one in node.inputs)
    return f"{node.op} {operands} {node.attrs} {node.type}"
