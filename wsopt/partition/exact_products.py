"""Products of f32 in ieee precision, written out as products of bf16, which tensor cores have.

An f32 has 24 significant bits, and a bf16 has 8: x = x0 + x1 + x2, where x0 is x rounded to bf16, x1 what is left of
x, rounded, and x2 what is left then. Of the nine products of parts, x y is the sum of six: the others are 2**-24 of
it and less. The six are one product of matrices whose contracted axis is six times as long, the smallest first, and
sums are promoted, so that the tensor core's cuts of its sums do not add up. Magnitudes from 2**128 - 2**119 on,
which bf16 rounds to infinity, and infinities give no number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from wsopt.frontend.kinds import matmul_dims
from wsopt.frontend.names import free_name, names_of
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import DType, Graph, Node
from wsopt.lowering.reduced_graph import parse_derived

_PARTS = 3
"""Parts of an operand, each with the 8 significant bits of bf16."""

_ORDERS = ((0, 1, 2, 0, 1, 0), (2, 1, 0, 1, 0, 0))
"""The parts of the left and of the right operand, in the order in which their products are added up."""


def written_out(graph: Graph) -> Graph:
    """The graph with its products of f32 in ieee precision as products of bf16; itself if it has none."""
    if not any(map(_is_exact, graph.nodes)):
        return graph
    taken = names_of(graph)
    writer, data = _Writer(taken), graph_to_json(graph)
    nodes = {node.name: node for node in graph.nodes}
    for written in list(data["nodes"]):
        node = nodes[written["name"]]
        if _is_exact(node):
            attrs = {name: value for name, value in written["attrs"].items() if name != "precision"}
            written["attrs"] = attrs | {"accumulate": "promoted"}
            written["inputs"] = [writer.joined(node, side) for side in (0, 1)]
    data["nodes"] += writer.nodes
    return parse_derived(data, graph)


def _is_exact(node: Node) -> bool:
    """Whether a node is such a product."""
    return node.op == "matmul" and dict(node.attrs).get("precision") == "ieee"


@dataclass(slots=True)
class _Writer:
    """Writes the nodes that split operands, each once; `taken` are the names that there are."""

    taken: set[str]
    nodes: list[dict[str, Any]] = field(default_factory=list)
    known: dict[tuple[str, int, int], str] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)

    def joined(self, node: Node, side: int) -> str:
        """The parts of an operand, one behind the other along the axis that the product contracts."""
        tensor, axis = node.tensors[side], matmul_dims(node)[side][1]
        key = (tensor, side, axis)
        if key not in self.known:
            parts = self._parts(tensor)
            inputs = [parts[number] for number in _ORDERS[side]]
            self.known[key] = self._node(f"{tensor}_parts", "concat", inputs, axis=axis)
        return self.known[key]

    def _parts(self, tensor: str) -> list[str]:
        """A tensor's parts, the largest first."""
        if tensor not in self.parts:
            rest, found = tensor, list[str]()
            for number in range(_PARTS):
                found.append(self._node(f"{tensor}_part{number}", "cast", [rest], dtype=DType.BF16.value))
                if number + 1 < _PARTS:
                    rest = self._node(f"{tensor}_rest{number}", "sub", [rest, found[-1]])
            self.parts[tensor] = found
        return self.parts[tensor]

    def _node(self, wish: str, op: str, inputs: list[str], **attrs: object) -> str:
        name = free_name(wish, self.taken)
        self.nodes.append({"name": name, "op": op, "inputs": inputs, **({"attrs": attrs} if attrs else {})})
        return name
