"""Bytes that a kernel reads of a graph's inputs: of a tensor of which it sees parts or rows, no more than those."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from wsopt.frontend.kinds import VIEWS
from wsopt.graph.types import Graph, Node


def bytes_read(graph: Graph, name: str) -> int:
    """Bytes of a tensor that are read at most: all, or those of the slices through which all that read it do so."""
    whole = int(graph.type_of(name).nbytes)
    readers = graph.consumers(name)
    if not readers or name in graph.outputs or not all(_sees_parts(reader, name) for reader in readers):
        return whole
    parts = (
        int(graph.type_of(reader.name).nbytes) if reader.op == "gather" else bytes_read(graph, reader.name)
        for reader in readers
    )
    return min(whole, sum(parts))


def _sees_parts(reader: Node, name: str) -> bool:
    """Whether a node sees a tensor in another way, or rows of it that indices name."""
    return reader.op in VIEWS or (reader.op == "gather" and reader.tensors[0] == name != reader.tensors[1])


def read_by(nodes: Sequence[Node], outputs: Collection[str]) -> list[Node]:
    """The nodes, in order, of which outputs are made: a product may read a tensor in another shape than the turned
    one that FX has of it, which nothing reads then.
    """
    read, found = set(outputs), list[Node]()
    for node in reversed(nodes):
        if node.name in read:
            read.update(node.tensors)
            found.append(node)
    return found[::-1]
