"""Slices of what is computed, written as the same computation of slices of inputs.

The gate of a product with packed weights is `(x @ w)[:, :n]`. That is `x @ w[:, :n]`, and a slice of an input costs
a kernel nothing: its copies begin further inside the tensor. So the two halves of such a product are two products of
one loop, and what is computed with both is computed on their tiles. One element of what is computed along an axis,
such as the last running sum of a chunk, is the sum of what is left when all others are zero: a value of its row.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from wsopt.frontend.derived import derived
from wsopt.frontend.kinds import NORMS, input_path, is_matmul, is_pointwise, matmul_dims
from wsopt.frontend.names import free_name, names_of
from wsopt.frontend.steps import takes_whole_steps
from wsopt.graph.infer import places
from wsopt.graph.needed import needed
from wsopt.graph.types import AttrValue, DType, Graph, Node, Operand, TensorType

_TO_ONE = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "logsumexp", "reduce_argmax")
"""Operations that leave one element, or none, of the axis that they name."""
_ALONG = ("softmax", "cumsum")
"""Operations that keep the axis along which they compute."""


class _Part(NamedTuple):
    """What a slice has of an axis, which counts from the front: each `step`-th place from `start` to `stop`."""

    axis: int
    start: int
    stop: int
    step: int = 1

    @property
    def length(self) -> int:
        """How many places it has."""
        return len(range(self.start, self.stop, self.step))


def with_sliced_inputs(graph: Graph) -> Graph:
    """The graph with slices of computed tensors taken of inputs, where what computes them allows that; itself where
    there are none. The others stay as they are.
    """
    if not any(_is_of_computed(graph, node) for node in graph.nodes):
        return graph
    writer = _Writer(graph, names_of(graph))
    for node in graph.nodes:
        writer.write(node)
    if writer.normed:
        return with_sliced_inputs(_with_norms_written(graph, writer.normed))
    if not writer.instead:
        return graph
    # A slice of a slice along another axis has moved above that, which moves next.
    return with_sliced_inputs(needed(replace(graph, nodes=tuple(writer.nodes.values()))))


def _with_norms_written(graph: Graph, names: Collection[str]) -> Graph:
    """The graph with some norms written out: a part of their rows is that of the elements, normed by what whole rows
    give.
    """
    taken = names_of(graph)
    nodes = (
        one
        for node in graph.nodes
        for one in (_norm_written(graph, node, taken) if node.name in names else (node,))
    )
    return replace(graph, nodes=tuple(nodes))


def _norm_written(graph: Graph, node: Node, taken: set[str]) -> Iterator[Node]:
    """The nodes that a norm is made of, the last of which has its name."""
    nodes, vectors = dict[str, Node](), zip(("mul", "add"), node.inputs[1:], strict=False)

    def write(op: str, *inputs: Operand, **given: AttrValue) -> str:
        name = free_name(f"{node.name}_{op}", taken)
        nodes[name] = derived(
            name, op, inputs, lambda one: nodes[one].type if one in nodes else graph.type_of(one), given
        )
        return name

    axis, made = node.type.rank - 1, node.tensors[0]
    if node.op == "layer_norm":
        made = write("sub", made, write("reduce_mean", made, axis=axis, keepdims=True))
    power = write("reduce_mean", write("mul", made, made), axis=axis, keepdims=True)
    made = write("mul", made, write("rsqrt", write("add", power, node.attr("eps", float))))
    for op, vector in vectors:
        made = write(op, made, vector)
    last = nodes.pop(made)
    yield from nodes.values()
    yield replace(last, name=node.name)


def _is_of_computed(graph: Graph, node: Node) -> bool:
    """Whether a node is a slice of what is computed: of whole steps if it has a step, for others are not lowered."""
    if node.op != "slice" or input_path(graph, node.name) is not None:
        return False
    return node.attr("step", int) == 1 or takes_whole_steps(graph, node)


@dataclass(slots=True)
class _Writer:
    """Writes a graph's nodes anew. `known` has the parts of tensors that are written already, `instead` what is read
    in the place of slices, `normed` the norms of whose rows slices have a part.
    """

    graph: Graph
    taken: set[str]
    nodes: dict[str, Node] = field(default_factory=dict)
    known: dict[tuple[str, _Part], str | None] = field(default_factory=dict)
    instead: dict[str, str] = field(default_factory=dict)
    normed: set[str] = field(default_factory=set)

    def write(self, node: Node) -> None:
        """Write a node; a slice of what is computed as the computation of slices, which others read instead."""
        before = {*self.nodes}
        found = self._sliced(node) if _is_of_computed(self.graph, node) else None
        if found is None:
            inputs = tuple(self._whole(one) if isinstance(one, str) else one for one in node.inputs)
            self.nodes[node.name] = node if inputs == node.inputs else replace(node, inputs=inputs)
            return
        self.instead[node.name] = found
        if node.name in self.graph.outputs:
            self._name(found, node.name, anew=found not in before)

    def _name(self, found: str, name: str, *, anew: bool) -> None:
        """Give a part the name of an output, under which others read it too if it is written `anew`. One that is an
        input of the graph is handed on by a view of it.
        """
        if found not in self.nodes:
            self.nodes[name] = derived(
                name, "reshape", (found,), self._type, {"shape": self._type(found).shape}
            )
            return
        self.nodes[name] = replace(self.nodes[found], name=name)
        if anew:
            del self.nodes[found]
            self.instead[name] = name
            self.known |= {key: name for key, known in self.known.items() if known == found}

    def _sliced(self, node: Node) -> str | None:
        along, source = node.attr("axis", int), node.tensors[0]
        found = places(dict(node.attrs), self._type(source).shape[along])
        part = _Part(along, found.start, found.stop, found.step)
        return None if found.start == 0 and node.type == self._type(source) else self._part(source, part)

    def _part(self, name: str, part: _Part) -> str | None:
        """The tensor that is so much of another one; None where it cannot be computed by itself."""
        if (part.start, part.length) == (0, self._type(name).shape[part.axis]):
            return self._whole(name)
        key = name, part
        if key not in self.known:
            of_input = input_path(self.graph, name) is not None
            node = self.graph.producer(name)
            self.known[key] = (
                self._slice(name, part) if node is None or of_input else self._computed(node, part)
            )
        return self.known[key]

    def _whole(self, name: str) -> str:
        """What is read where a tensor is read whole, which may be a slice that is written already."""
        return self.instead.get(name, name)

    def _slice(self, name: str, part: _Part) -> str:
        return self._node(name, "slice", (name,), dict(part._asdict()))

    def _computed(self, node: Node, part: _Part) -> str | None:
        """A part of a node's result."""
        if node.op == "iota":
            return self._counted(node, part)
        if node.op == "reshape":
            return self._reshaped(node, part)
        if node.op == "slice" and node.attr("axis", int) == part.axis:
            return self._sliced_again(node, part)
        if node.op == "concat" and node.attr("axis", int) == part.axis:
            return self._of_joined(node, part)
        if node.op in NORMS and part.axis == node.type.rank - 1:
            self.normed.add(node.name)
            return None
        wanted = _operands(self.graph, node, part)
        if wanted is None:
            return self._one_element(node, part)
        inputs = list[Operand]()
        for operand, own in zip(node.inputs, wanted, strict=True):
            made: Operand | None = operand
            if isinstance(operand, str):
                made = self._whole(operand) if own is None else self._part(operand, own)
            if made is None:
                return None
            inputs.append(made)
        return self._node(node.name, node.op, tuple(inputs), dict(node.attrs))

    def _one_element(self, node: Node, part: _Part) -> str | None:
        """One element of each row of f32 that a node computes along an axis; None where it is another part."""
        axis = part.axis
        along = node.op in _ALONG and node.attr("axis", int) == axis
        if part.length != 1 or not along or node.type.dtype is not DType.F32:
            return None
        shape = tuple(n if dim == axis else 1 for dim, n in enumerate(node.type.shape))
        index = self._node(node.name, "iota", (), {"shape": shape, "axis": axis})
        inside = self._node(node.name, "equal", (index, part.start))
        chosen = self._node(node.name, "where", (inside, self._whole(node.name), 0.0))
        return self._node(node.name, "reduce_sum", (chosen,), {"axis": axis, "keepdims": True})

    def _counted(self, node: Node, part: _Part) -> str:
        """A part of an index along an axis."""
        shape = list(node.type.shape)
        shape[part.axis] = part.length
        name = self._node(node.name, "iota", (), dict(node.attrs) | {"shape": tuple(shape)})
        if node.attr("axis", int) != part.axis:
            return name
        apart = self._node(node.name, "mul", (name, part.step)) if part.step > 1 else name
        return self._node(node.name, "add", (apart, part.start)) if part.start else apart

    def _sliced_again(self, node: Node, part: _Part) -> str | None:
        """A part of a slice along its axis: one of what it is a slice of."""
        own = places(dict(node.attrs), self._type(node.tensors[0]).shape[part.axis])
        found = own[part.start : part.stop : part.step]
        return self._part(node.tensors[0], _Part(part.axis, found[0], found[-1] + 1, found.step))

    def _of_joined(self, node: Node, part: _Part) -> str | None:
        """A part of joined tensors along their axis that is one of one of them; None where it is of several."""
        begin = 0
        for name in node.tensors:
            end = begin + self._type(name).shape[part.axis]
            if begin <= part.start and part.stop <= end:
                return self._part(name, part._replace(start=part.start - begin, stop=part.stop - begin))
            begin = end
        return None

    def _reshaped(self, node: Node, part: _Part) -> str | None:
        """A part of a tensor that is seen in another shape: of the axis before that begins at the same place."""
        (source,), shape = node.tensors, node.type.shape
        before, outer = self._type(source).shape, math.prod(shape[: part.axis])
        inner = math.prod(shape[part.axis + 1 :])
        for axis in range(len(before)):
            own = math.prod(before[axis + 1 :])
            ends = [place * inner for place in (part.start, part.stop)]
            if math.prod(before[:axis]) != outer or any(end % own for end in ends):
                continue
            if part.step > 1 and own != inner:
                continue
            start, stop = (end // own for end in ends)
            made = self._part(source, _Part(axis, start, stop, part.step))
            seen = (*shape[: part.axis], part.length, *shape[part.axis + 1 :])
            return None if made is None else self._node(node.name, "reshape", (made,), {"shape": seen})
        return None

    def _node(
        self, wish: str, op: str, inputs: tuple[Operand, ...], given: dict[str, AttrValue] | None = None
    ) -> str:
        name = free_name(f"{wish}_part", self.taken)
        self.taken.add(name)
        self.nodes[name] = derived(name, op, inputs, self._type, given)
        return name

    def _type(self, name: str) -> TensorType:
        return self.nodes[name].type if name in self.nodes else self.graph.type_of(name)


def _operands(graph: Graph, node: Node, part: _Part) -> tuple[_Part | None, ...] | None:
    """For each operand of a node what of it makes a part of the node's result: None is all of it. No tuple at all
    where parts of operands do not make it.
    """
    if is_pointwise(node):
        return tuple(_broadcast(graph, node, one, part) for one in node.inputs)
    if is_matmul(node):
        return _of_product(graph, node, part)
    axis = part.axis
    if node.op in NORMS:
        return (part, *(None for _ in node.inputs[1:])) if axis < node.type.rank - 1 else None
    if node.op in _ALONG:
        return (part,) if axis != node.attr("axis", int) else None
    if node.op in _TO_ONE:
        goes = node.attr("axis", int) <= axis and not node.attr("keepdims", bool)
        return (part._replace(axis=axis + goes),)
    match node.op:
        case "transpose":
            return (part._replace(axis=node.attr("perm", tuple)[axis]),)
        case "slice" | "concat":
            return tuple(part for _ in node.inputs)
        case "gather" if node.attr("axis", int) == 0 and axis < graph.type_of(node.tensors[1]).rank:
            return None, part  # other places, of the same table
        case "dequantize" if axis < node.type.rank - 1 and not node.attr("block"):
            return tuple(part for _ in node.inputs)
    return None


def _broadcast(graph: Graph, node: Node, operand: Operand, part: _Part) -> _Part | None:
    """A part of an operand that is broadcast to a node's shape: nothing less where it is the same everywhere."""
    if not isinstance(operand, str):
        return None
    shape = graph.type_of(operand).shape
    axis = part.axis - node.type.rank + len(shape)
    return part._replace(axis=axis) if axis >= 0 and shape[axis] > 1 else None


def _of_product(graph: Graph, node: Node, part: _Part) -> tuple[_Part | None, ...] | None:
    """What of a product's operands makes a part of its rows, of its columns, or of a batch."""
    left, right = node.tensors[:2]
    back = part.axis - node.type.rank
    (rows, _), (columns, _) = matmul_dims(node)
    if back == -1:
        return (
            None,
            part._replace(axis=graph.type_of(right).rank + columns),
            *[None] * len(node.tensors[2:]),
        )
    if len(node.tensors) > 2:  # rows of groups that are cut elsewhere
        return None
    if back == -2:
        return part._replace(axis=graph.type_of(left).rank + rows), None
    return _broadcast(graph, node, left, part), _broadcast(graph, node, right, part)
