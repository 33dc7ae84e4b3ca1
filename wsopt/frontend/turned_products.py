"""Transposed results of products, written as the products of their operands the other way round.

`(w @ x).T` is `x.T @ w.T`, and a transposed input costs a kernel nothing. What is computed of the product, element by
element, is computed in the other order as well. So the channels of an image may lie together in a result though they
are the rows of its product.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from wsopt.frontend.derived import derived
from wsopt.frontend.kinds import input_path, is_matmul, is_pointwise, reduces_rows
from wsopt.frontend.names import free_name, names_of
from wsopt.graph.needed import needed
from wsopt.graph.types import AttrValue, Graph, Node, Operand, TensorType

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
    """Writes nodes beside those of a graph. `known` has the tensors that are others in another order."""

    graph: Graph
    taken: set[str]
    made: dict[str, Node] = field(default_factory=dict)
    known: dict[tuple[str, Perm], str | None] = field(default_factory=dict)

    def without(self, node: Node) -> Graph:
        """The graph with what a transpose gives computed in its order; itself where it cannot be."""
        found = self._turned(node.tensors[0], node.attr("perm", tuple))
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

    def _turned(self, name: str, perm: Perm) -> str | None:
        """The tensor that is another one in this order; None where it cannot be computed so."""
        if perm == tuple(range(len(perm))):
            return name
        if (name, perm) not in self.known:
            self.known[name, perm] = self._written(name, perm)
        return self.known[name, perm]

    def _written(self, name: str, perm: Perm) -> str | None:
        node = self.graph.producer(name)
        if node is None or input_path(self.graph, name) is not None:
            return self._node(name, "transpose", (name,), {"perm": perm})
        if node.op == "iota":
            return self._counted(node, perm)
        if is_pointwise(node):
            return self._elements(node, perm)
        if node.op == "transpose":
            own = node.attr("perm", tuple)
            return self._turned(node.tensors[0], tuple(own[axis] for axis in perm))
        return self._product(node, perm) if is_matmul(node) else None

    def _counted(self, node: Node, perm: Perm) -> str:
        """Places along an axis, which is another one in another order."""
        shape, axis = node.attr("shape", tuple), perm.index(node.attr("axis", int))
        return self._node(node.name, "iota", (), {"shape": tuple(shape[one] for one in perm), "axis": axis})

    def _elements(self, node: Node, perm: Perm) -> str | None:
        """An elementwise operation in another order, and so all that it reads."""
        inputs = list[Operand]()
        for one in node.inputs:
            operand = self._as_wide(one, len(perm)) if isinstance(one, str) else one
            turned = self._turned(operand, perm) if isinstance(operand, str) else operand
            if turned is None:
                return None
            inputs.append(turned)
        return self._node(node.name, node.op, tuple(inputs), dict(node.attrs))

    def _as_wide(self, name: str, rank: int) -> str | None:
        """A tensor with so many axes, those in front of one element; None for one that is computed with fewer."""
        shape = self._type(name).shape
        if len(shape) == rank:
            return name
        if input_path(self.graph, name) is None:
            return None
        wide = (1,) * (rank - len(shape)) + shape
        return self._node(name, "reshape", (name,), {"shape": wide})

    def _product(self, node: Node, perm: Perm) -> str | None:
        """A product whose rows and columns change places: that of its operands, each for the other."""
        *batches, rows, columns = range(len(perm))
        if perm != (*batches, columns, rows) or len(node.inputs) != 2:
            return None
        left, right = node.tensors
        if any(input_path(self.graph, name) is None for name in (left, right)):
            return None
        if not node.attr("transpose_b", bool):
            *outer, inner, across = range(self._type(right).rank)
            right = self._node(right, "transpose", (right,), {"perm": (*outer, across, inner)})
        turns = {"transpose_a": False, "transpose_b": not node.attr("transpose_a", bool)}
        return self._node(node.name, node.op, (right, left), dict(node.attrs) | turns)

    def _node(self, wish: str, op: str, inputs: tuple[Operand, ...], given: dict[str, AttrValue]) -> str:
        name = free_name(f"{wish}_turned", self.taken)
        self.made[name] = derived(name, op, inputs, self._type, given)
        return name

    def _type(self, name: str) -> TensorType:
        return self.made[name].type if name in self.made else self.graph.type_of(name)
