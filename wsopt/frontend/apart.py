"""Concatenated tensors that are reduced along the axis of the concatenation: a reduction of each, and one of those.

`softmax(concat(scores, sink))` without its last column is `exp(scores - m)` over the sum of both exponentials, where
m is the larger of the sink and of the scores' maximum. So no kernel holds joined rows, and a tensor of one element
along the axis is a number of its row.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace

from wsopt.frontend.derived import derived
from wsopt.frontend.kinds import is_pointwise
from wsopt.graph.needed import needed
from wsopt.graph.types import AttrValue, Graph, Node, Operand, TensorType

_TOGETHER = {"reduce_max": "maximum", "reduce_min": "minimum", "reduce_sum": "add"}
"""Reductions, and what makes one of those of two parts."""


def taken_apart(graph: Graph) -> Graph:
    """The graph without joined tensors that end in reductions along their axis and in parts of what is joined; itself
    if there are none.
    """
    for node in graph.nodes:
        if node.op == "concat" and any(_reduces(one, node.attr("axis", int)) for one in graph.nodes):
            found = _Apart(graph, node).rewritten()
            if found is not None:
                return taken_apart(found)
    return graph


def _reduces(node: Node, axis: int) -> bool:
    return (node.op == "softmax" or node.op in _TOGETHER) and node.attr("axis", int) == axis


@dataclass(slots=True)
class _Apart:
    """One `concat` of a graph. `parts` has the tensors that each tensor along its axis is apart, in order, `instead`
    what slices are that are one of them.
    """

    graph: Graph
    joint: Node
    nodes: dict[str, Node] = field(default_factory=dict)
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    instead: dict[str, str] = field(default_factory=dict)

    @property
    def axis(self) -> int:
        return self.joint.attr("axis", int)

    def rewritten(self) -> Graph | None:
        """The graph with it taken apart; None where something reads it as one."""
        self.parts[self.joint.name] = self.joint.tensors
        for node in self.graph.nodes:
            if node is self.joint:
                continue
            if not any(name in self.parts for name in node.tensors):
                inputs = tuple(self.instead.get(str(x), x) for x in node.inputs)
                self.nodes[node.name] = node if inputs == node.inputs else replace(node, inputs=inputs)
            elif not self._take(node):
                return None
        if any(name in self.parts or name in self.instead for name in self.graph.outputs):
            return None
        return needed(replace(self.graph, nodes=tuple(self.nodes.values())))

    def _take(self, node: Node) -> bool:
        """Write a node that reads joined tensors for their parts. Whether that is to be had."""
        if node.op == "softmax" and _reduces(node, self.axis):
            self.parts[node.name] = self._softmax(node)
        elif node.op in _TOGETHER and _reduces(node, self.axis):
            self._reduce(
                node, node.op, self.parts[node.tensors[0]], node.name, keeps=node.attr("keepdims", bool)
            )
        elif node.op == "slice" and node.attr("axis", int) == self.axis:
            return self._slice(node)
        elif (whole := self._less_maximum(node.name)) and self._less_maximum(whole):
            self.parts[node.name] = self.parts[whole]  # whose maximum is zero
        elif is_pointwise(node) and all(map(self._goes_along, node.inputs)):
            self.parts[node.name] = tuple(
                self._write(node.op, tuple(self._part(x, place) for x in node.inputs), node, dict(node.attrs))
                for place in range(len(self.joint.tensors))
            )
        else:
            return False
        return True

    def _goes_along(self, operand: Operand) -> bool:
        """Whether an operand is in parts, or the same for each of them."""
        if not isinstance(operand, str) or operand in self.parts:
            return True
        own = self._type(operand)
        place = self.axis - self.joint.type.rank + own.rank
        return own.rank <= self.joint.type.rank and (place < 0 or own.shape[place] == 1)

    def _part(self, operand: Operand, place: int) -> Operand:
        if not isinstance(operand, str):
            return operand
        return self.parts[operand][place] if operand in self.parts else self.instead.get(operand, operand)

    def _slice(self, node: Node) -> bool:
        """A slice of one of the tensors that are joined, or all of it."""
        start, stop, first = node.attr("start", int), node.attr("stop", int), 0
        for name in self.parts[node.tensors[0]]:
            extent = self._type(name).shape[self.axis]
            if first <= start and stop <= first + extent:
                if node.type.shape == self._type(name).shape:
                    self.instead[node.name] = name
                else:
                    given = dict(node.attrs) | {"start": start - first, "stop": stop - first}
                    self._write("slice", (name,), node, given, node.name)
                return True
            first += extent
        return False

    def _softmax(self, node: Node) -> tuple[str, ...]:
        """The exponentials of parts over their sum. A row of nothing but -inf gives zeros; and no numbers where the
        row's own maximum is subtracted before, which changes nothing else.
        """
        whole = self._less_maximum(node.tensors[0])
        joined, empty = self.parts[whole or node.tensors[0]], math.nan if whole else 1.0
        largest = self._reduce(node, "reduce_max", joined, keeps=True)
        nothing = self._write("equal", (largest, -math.inf), node)
        shift = self._write("where", (nothing, 0.0, largest), node)
        weights = tuple(
            self._write("exp", (self._write("sub", (name, shift), node),), node) for name in joined
        )
        total = self._reduce(node, "reduce_sum", weights, keeps=True)
        divisor = self._write("where", (self._write("equal", (total, 0.0), node), empty, total), node)
        return tuple(self._write("div", (name, divisor), node) for name in weights)

    def _less_maximum(self, name: str) -> str | None:
        """The joined tensor that another is but for its own maximum along the axis, which is subtracted."""
        node = self.graph.producer(name)
        if node is None or node.op != "sub" or not all(isinstance(x, str) for x in node.inputs):
            return None
        whole, least = node.tensors
        largest = self.graph.producer(least)
        same = largest is not None and largest.op == "reduce_max" and largest.tensors == (whole,)
        return whole if same and whole in self.parts else None

    def _reduce(self, node: Node, op: str, names: tuple[str, ...], name: str = "", *, keeps: bool) -> str:
        """A reduction of parts, with the `name` given."""
        found = [self._reduced(node, op, one, keeps=keeps) for one in names]
        result = found[0]
        for place, other in enumerate(found[1:], 2):
            last = name if place == len(found) else ""
            result = self._write(_TOGETHER[op], (result, other), node, {}, last)
        return result

    def _reduced(self, node: Node, op: str, name: str, *, keeps: bool) -> str:
        """The reduction of one part; one of a single element is that element."""
        shape = self._type(name).shape
        if shape[self.axis] > 1:
            return self._write(op, (name,), node, {"axis": self.axis, "keepdims": keeps})
        left = shape[: self.axis] + shape[self.axis + 1 :]
        return name if keeps else self._write("reshape", (name,), node, {"shape": left})

    def _write(
        self,
        op: str,
        inputs: tuple[Operand, ...],
        node: Node,
        given: dict[str, AttrValue] | None = None,
        name: str = "",
    ) -> str:
        """Write a node in the place of another, with a name of its own if none is given; its name."""
        if not name:
            known = (
                {one.name for one in self.graph.inputs}
                | {one.name for one in self.graph.nodes}
                | {*self.nodes}
            )
            tries = (f"{node.name}_{number}" for number in itertools.count(1))
            name = next(one for one in tries if one not in known)
        self.nodes[name] = derived(name, op, inputs, self._type, given)
        return name

    def _type(self, name: str) -> TensorType:
        return self.nodes[name].type if name in self.nodes else self.graph.type_of(name)
