"""Products that feed another product, with operands written out so that one kernel's loop may compute both.

A loop between two products holds one contracted axis of the first, of elements of 16 bits. Scores that are a sum of
two products, as those of a part of each head that is turned by its position and one that is not, are one product of
joined operands; scores of operands of f8 are those of the same numbers in 16 bits. Another kernel makes these
operands, which are small beside scores that would lie in memory. Whether that pays is asked by the rooflines of both
graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wsopt.frontend.kinds import F8, feeding, is_matmul, producer
from wsopt.frontend.names import free_name, names_of
from wsopt.graph.needed import needed
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import DType, Graph, Node
from wsopt.lowering.reduced_graph import parse_derived


def with_one_loop(graph: Graph) -> Graph:
    """The graph with such operands written out; itself without any."""
    writer, data = _Writer(graph), graph_to_json(graph)
    reach = feeding(graph.nodes, (name for node in graph.nodes if is_matmul(node) for name in node.tensors))
    written: dict[str, list[dict[str, Any]]] = {}
    plain = {node["name"]: node for node in data["nodes"]}
    for node in graph.nodes:
        if node.name in reach and node.op == "add" and _are_summed(graph, node):
            written[node.name] = writer.joined(node, plain[node.tensors[0]])
        elif node.name in reach and is_matmul(node) and graph.type_of(node.tensors[0]).dtype in F8:
            written[node.name] = writer.widened(node, plain[node.name])
    if not written:
        return graph
    data["nodes"] = [one for node in data["nodes"] for one in written.get(node["name"], [node])]
    return needed(parse_derived(data, graph))


def _are_summed(graph: Graph, node: Node) -> bool:
    """Whether a node adds two products, and nobody else reads them, whose operands can be joined."""
    made = [graph.producer(name) for name in node.tensors]
    if len(made) != 2 or len(set(node.tensors)) != 2:
        return False
    first, second = made
    if first is None or second is None or not (first.op == second.op == "matmul"):
        return False
    alone = all(
        graph.consumers(one.name) == (node,) and one.name not in graph.outputs for one in (first, second)
    )
    types = [[graph.type_of(name).dtype for name in one.tensors] for one in (first, second)]
    same = dict(first.attrs) == dict(second.attrs) and types[0] == types[1]
    return alone and same and first.type.shape[-2:] == second.type.shape[-2:]


@dataclass(slots=True)
class _Writer:
    """Writes nodes under names that are free."""

    graph: Graph
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.taken = names_of(self.graph)

    def joined(self, node: Node, first: dict[str, Any]) -> list[dict[str, Any]]:
        """A product of joined operands, in the place and under the name of a sum of two products."""
        one, other = (producer(self.graph, name) for name in node.tensors)
        turned = [one.attr("transpose_a", bool), not one.attr("transpose_b", bool)]
        nodes, operands = list[dict[str, Any]](), list[str]()
        for place in (0, 1):
            pair = one.tensors[place], other.tensors[place]
            operands.append(self._side_by_side(pair, 2 if turned[place] else 1, nodes))
        return [*nodes, {**first, "name": node.name, "inputs": operands}]

    def _side_by_side(self, pair: tuple[str, str], back: int, nodes: list[dict[str, Any]]) -> str:
        """Two tensors one behind the other along an axis from the end, each seen wherever the other one is."""
        shapes = [self.graph.type_of(name).shape for name in pair]
        lengths = [shape[-back] for shape in shapes]
        places = (sum(lengths), *(1,) * (back - 1))
        seen = []
        for name, shape, zeros in zip(pair, shapes, ((0, lengths[1]), (lengths[0], 0)), strict=True):
            low, high = (
                [zero if dim == len(shape) - back else 0 for dim in range(len(shape))] for zero in zeros
            )
            seen.append(self._node(f"{name}_beside", "pad", [name], {"low": low, "high": high}, nodes))
        index = self._node("place", "iota", [], {"shape": list(places), "axis": 0}, nodes)
        inside = self._node("in_first", "less", [index, lengths[0]], {}, nodes)
        chosen = self._node("_and_".join(pair), "where", [inside, *seen], {}, nodes)
        dtype = {"dtype": self.graph.type_of(pair[0]).dtype.value}
        return self._node(f"{chosen}_joined", "cast", [chosen], dtype, nodes)

    def widened(self, node: Node, plain: dict[str, Any]) -> list[dict[str, Any]]:
        """A product of the same numbers in 16 bits."""
        nodes, attrs = list[dict[str, Any]](), dict(plain.get("attrs", {}))
        attrs.pop("accumulate", None)
        wide = {"dtype": _beside(self.graph).value}
        operands = [self._node(f"{name}_wide", "cast", [name], wide, nodes) for name in node.tensors]
        return [*nodes, {**plain, "inputs": operands, "attrs": attrs}]

    def _node(
        self, wish: str, op: str, inputs: Sequence[Any], attrs: dict[str, Any], nodes: list[dict[str, Any]]
    ) -> str:
        name = free_name(wish, self.taken)
        nodes.append({"name": name, "op": op, "inputs": list(inputs), **({"attrs": attrs} if attrs else {})})
        return name


def _beside(graph: Graph) -> DType:
    """The 16-bit type that other products of a graph have; both have all numbers of f8."""
    types = {
        graph.type_of(name).dtype for node in graph.nodes if is_matmul(node) for name in node.tensors[:2]
    }
    return DType.F16 if DType.F16 in types and DType.BF16 not in types else DType.BF16
