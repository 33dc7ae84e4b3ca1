"""Nodes of a graph written out as several others, the last of which has the node's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wsopt.frontend.names import free_name, names_of
from wsopt.graph.serialize import graph_to_json, scalar_to_json
from wsopt.graph.types import Graph, Operand
from wsopt.lowering.reduced_graph import parse_derived


@dataclass(slots=True)
class Writer:
    """Writes the nodes that stand for the one of this `name`, under names that are not `taken`."""

    name: str
    taken: set[str]
    nodes: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, what: str, op: str, *inputs: Operand, **attrs: object) -> str:
        """Write a node, and give its name, which says `what` it is of the node that is written out; that one's own
        name where it is nothing.
        """
        name = free_name(f"{self.name}_{what}", self.taken) if what else self.name
        operands = [scalar_to_json(operand) for operand in inputs]
        self.nodes.append({"name": name, "op": op, "inputs": operands, "attrs": attrs})
        return name


def replaced(graph: Graph, wanted: Mapping[str, Callable[[Writer], None]]) -> Graph:
    """The graph with some nodes, by name, written out by functions; itself where there are none."""
    if not wanted:
        return graph
    taken, data = names_of(graph), graph_to_json(graph)
    writers = [Writer(name, taken) for name in wanted]
    for writer, write in zip(writers, wanted.values(), strict=True):
        write(writer)
    kept = [written for written in data["nodes"] if written["name"] not in wanted]
    data["nodes"] = kept + [node for writer in writers for node in writer.nodes]
    return parse_derived(data, graph)
