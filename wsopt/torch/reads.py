"""Bytes that a kernel reads of a graph's inputs: of a tensor of which it sees parts, no more than those."""

from __future__ import annotations

from wsopt.frontend.kinds import VIEWS
from wsopt.graph.types import Graph


def bytes_read(graph: Graph, name: str) -> int:
    """Bytes of a tensor that are read at most: all, or those of the slices through which all that read it do so."""
    whole = int(graph.type_of(name).nbytes)
    readers = graph.consumers(name)
    if not readers or name in graph.outputs or any(reader.op not in VIEWS for reader in readers):
        return whole
    return min(whole, sum(bytes_read(graph, reader.name) for reader in readers))
