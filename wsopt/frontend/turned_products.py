"""Transposed results of products, written as the products of their operands the other way round.

`(w @ x).T` is `x.T @ w.T`, and a transposed input costs a kernel nothing. What is computed of the product, element by
element, is computed in the other order as well. So the channels of an image may lie together in a result though they
are the rows of its product. A reshape may stand between: of columns, as those of heads, and of rows, as the tokens of
all sequences, of which each sequence is a batch of the product then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from wsopt.frontend.derived import derived
from wsopt.frontend.kinds import input_path, is_matmul, is_pointwise, reduces_rows
from wsopt.frontend.names import free_name, names_of
from wsopt.frontend.reshapes import reshaped_factor, reshaped_groups
from wsopt.graph.needed import needed
from wsopt.graph.types import AttrValue, Graph, Node, Operand, TensorType

Shape = tuple[int, ...]
Perm = tuple[int, ...]


def with_turned_products(graph: Graph) -> Graph:
    """The graph with its transposed results computed in their order; itself where there are none, where they cannot
    be, and where a product would be computed both ways.
    """
    products = sum(map(is_matmul, graph.nodes))
    if not products or any(map(reduces_rows, graph.nodes)):
        return graph
    found = graph
    for node in graph.nodes:
        if node.op == "transpose" and input_path(graph, node.name) is None:
            found = _Writer(found, names_of(found)).without(node)
    found = needed(found)
    return found if sum(map(is_matmul, found.nodes)) == products else graph


@dataclass(slots=True)
class _Writer:
    """Writes nodes beside those of a graph. `known` has the tensors that are others in another shape and order."""

    graph: Graph
    taken: set[str]
    made: dict[str, Node] = field(default_factory=dict)
    known: dict[tuple[str, Shape, Perm], str | None] = field(default_factory=dict)

    def without(self, node: Node) -> Graph:
        """The graph with what a transpose gives computed in its order; itself where it cannot be."""
        (source,) = node.tensors
        found = self._turned(source, self._type(source).shape, node.attr("perm", tuple))
        if found is None or (found not in self.made and node.name in self.graph.outputs):
            return self.graph
        if found not in self.made:  # it was transposed before
            return self._reading(found, node.name)
        self.made[found] = replace(self.made[found], name=node.name)
        nodes = (
            own
            for one in self.graph.nodes
            for own in (self.made.values() if one.name == node.name else (one,))
        )
        return replace(self.graph, nodes=tuple(nodes))

    def _reading(self, name: str, instead: str) -> Graph:
        """The graph with one tensor read instead of another."""
        nodes = (
            replace(one, inputs=tuple(name if x == instead else x for x in one.inputs))
            for one in self.graph.nodes
        )
        return replace(self.graph, nodes=tuple(nodes))

    def _turned(self, name: str, shape: Shape, perm: Perm) -> str | None:
        """The tensor that is another one, reshaped to `shape`, in this order; None where it cannot be computed so."""
        if perm == tuple(range(len(perm))):
            same = shape == self._type(name).shape
            return name if same else self._node(name, "reshape", (name,), {"shape": shape})
        key = name, shape, perm
        if key not in self.known:
            self.known[key] = self._written(name, shape, perm)
        return self.known[key]

    def _written(self, name: str, shape: Shape, perm: Perm) -> str | None:
        node = self.graph.producer(name)
        if node is None or input_path(self.graph, name) is not None:
            return self._seen(name, shape, perm)
        if node.op == "iota":
            return self._counted(node, shape, perm)
        if is_pointwise(node):
            return self._elements(node, shape, perm)
        if node.op == "reshape":
            return self._turned(node.tensors[0], shape, perm)
        if node.op == "transpose" and shape == node.type.shape:
            own, (source,) = node.attr("perm", tuple), node.tensors
            return self._turned(source, self._type(source).shape, tuple(own[axis] for axis in perm))
        return self._product(node, shape, perm) if is_matmul(node) else None

    def _seen(self, name: str, shape: Shape, perm: Perm) -> str:
        """A view of an input."""
        if shape != self._type(name).shape:
            name = self._node(name, "reshape", (name,), {"shape": shape})
        return self._node(name, "transpose", (name,), {"perm": perm})

    def _counted(self, node: Node, shape: Shape, perm: Perm) -> str | None:
        """Places along an axis, which is another one in another order; None where a reshape cuts or merges it."""
        axis = node.attr("axis", int)
        after = next(after for before, after in reshaped_groups(node.type.shape, shape) if axis in before)
        along = [dim for dim in after if shape[dim] > 1]
        if len(along) > 1 or any(shape[dim] != node.type.shape[axis] for dim in along):
            return None
        place = perm.index((along or after)[0])
        return self._node(node.name, "iota", (), {"shape": tuple(shape[one] for one in perm), "axis": place})

    def _elements(self, node: Node, shape: Shape, perm: Perm) -> str | None:
        """An elementwise operation in another order, and so all that it reads."""
        inputs = list[Operand]()
        for one in node.inputs:
            turned = self._read(one, node.type.shape, shape, perm) if isinstance(one, str) else one
            if turned is None:
                return None
            inputs.append(turned)
        return self._node(node.name, node.op, tuple(inputs), dict(node.attrs))

    def _read(self, name: str, old: Shape, new: Shape, perm: Perm) -> str | None:
        """What elements of shape `old` read, where these are reshaped to `new` and then turned."""
        own = self._type(name).shape
        seen = reshaped_factor(old, (1,) * (len(old) - len(own)) + own, new)
        return None if seen is None else self._turned(name, seen, perm)

    def _product(self, node: Node, shape: Shape, perm: Perm) -> str | None:
        """A product whose rows and columns change places: that of its operands, each for the other."""
        rows = self._parted_rows(node, shape, perm)
        if rows is None or len(node.inputs) != 2:
            return None
        left, right = node.tensors
        if any(input_path(self.graph, name) is None for name in (left, right)):
            return None
        if rows != node.type.shape[:-1]:
            wide = (*rows, self._type(left).shape[-1])
            left = self._node(left, "reshape", (left,), {"shape": wide})
        if not node.attr("transpose_b", bool):
            *outer, inner, across = range(self._type(right).rank)
            right = self._node(right, "transpose", (right,), {"perm": (*outer, across, inner)})
        turns = {"transpose_a": False, "transpose_b": not node.attr("transpose_a", bool)}
        made = self._node(node.name, node.op, (right, left), dict(node.attrs) | turns)
        turned = tuple(shape[axis] for axis in perm)
        same = turned == self._type(made).shape
        return made if same else self._node(made, "reshape", (made,), {"shape": turned})

    def _parted_rows(self, node: Node, shape: Shape, perm: Perm) -> Shape | None:
        """The batches and the rows of a product that has this shape and order when both change places with columns:
        all that comes before columns is batches then, and all behind them is rows. None where it is another order, or
        where its operands cannot be seen so.
        """
        *_, (before, columns) = reshaped_groups(node.type.shape, shape)
        first, count = perm.index(columns[0]), len(columns)
        rest = (*perm[:first], *perm[first + count :])
        if len(before) != 1 or perm[first : first + count] != tuple(columns) or list(rest) != sorted(rest):
            return None
        parts = perm[:first], perm[first + count :]
        outer, rows = (tuple(shape[axis] for axis in part) for part in parts)
        found = (*outer, math.prod(rows))
        if found == node.type.shape[:-1]:
            return found
        one_matrix = self._type(node.tensors[1]).rank == 2 and not node.attr("transpose_a", bool)
        return found if one_matrix else None

    def _node(self, wish: str, op: str, inputs: tuple[Operand, ...], given: dict[str, AttrValue]) -> str:
        name = free_name(f"{wish}_turned", self.taken)
        self.made[name] = derived(name, op, inputs, self._type, given)
        return name

    def _type(self, name: str) -> TensorType:
        return self.made[name].type if name in self.made else self.graph.type_of(name)
