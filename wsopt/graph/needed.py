"""The part of a graph that its outputs depend on. Other nodes are checked as input and left out of the kernel."""

from __future__ import annotations

from dataclasses import replace

from wsopt.graph.types import Graph, Node


def live_nodes(graph: Graph) -> tuple[Node, ...]:
    """The nodes that an output depends on, in the graph's order."""
    wanted = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.name in wanted:
            wanted.update(node.tensors)
    return tuple(node for node in graph.nodes if node.name in wanted)


def needed(graph: Graph) -> Graph:
    """The graph without the nodes and inputs that no output depends on; itself where there are none."""
    nodes = live_nodes(graph)
    read = {name for node in nodes for name in node.tensors}
    inputs = tuple(item for item in graph.inputs if item.name in read)
    if (inputs, nodes) == (graph.inputs, graph.nodes):
        return graph
    return replace(graph, inputs=inputs, nodes=nodes)
