"""Operands of products whose rows TMA could not begin with, written out as copies whose rows have room behind them.

A row of such a tensor is no multiple of 16 bytes, or rows are no such multiple apart. Zeros behind each (`pad`) make
both one, and a slice of that has what was there before: to a product it is the operand, with rows that lie apart. A
kernel of its own copies it, and the tensor lies in the workspace (`between.py`). A dense constant matrix that is read
once is not copied at every call: its kernel has it padded before the first launch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from wsopt.frontend.kinds import is_matmul, is_pointwise
from wsopt.frontend.names import free_name, names_of
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph, Node, TensorType, row_major_strides
from wsopt.lowering.reduced_graph import parse_derived
from wsopt.partition.between import begins_anywhere, pitch, whole_row
from wsopt.tensors.views import TMA_BITS


def with_pitched_copies(graph: Graph) -> Graph:
    """The graph with a copy of each operand of products whose rows TMA could not begin with; itself without any."""
    edges = dict(_edges(graph))
    if not edges:
        return graph
    taken = names_of(graph)
    data, nodes, rows = graph_to_json(graph), list[dict[str, Any]](), dict[str, str]()
    for tensor in dict.fromkeys(edges.values()):
        rows[tensor] = _copied(graph, tensor, taken, nodes)
    for written in data["nodes"]:
        read = enumerate(written.get("inputs", ()))
        written["inputs"] = [
            rows[edges[written["name"], place]] if (written["name"], place) in edges else name
            for place, name in read
        ]
    data["nodes"] += nodes
    return parse_derived(data, graph)


def _edges(graph: Graph) -> Iterator[tuple[tuple[str, int], str]]:
    """Where tensors that are to be copied are read: a node, the place among its operands, and the tensor.

    A product does, or a transposition before it. Where there is a copy, what computes element by element reads it
    too, for that may be a product's epilogue.
    """
    found = list[str]()
    for node in filter(is_matmul, graph.nodes):
        for place, name in enumerate(node.tensors[:2]):
            reader, at, tensor = node, place, name
            while (view := graph.producer(tensor)) is not None and view.op == "transpose":
                reader, at, tensor = view, 0, view.tensors[0]
            if _is_unpitched(graph, tensor, reader):
                found.append(tensor)
                yield (reader.name, at), tensor
    for node in filter(is_pointwise, graph.nodes):
        yield from (((node.name, at), name) for at, name in enumerate(node.inputs) if name in found)


def _is_unpitched(graph: Graph, tensor: str, reader: Node) -> bool:
    """Whether TMA could not begin with the rows of a tensor, and nobody else makes room behind them."""
    type_, given = graph.type_of(tensor), graph.input(tensor)
    if type_.rank < 2:
        return False
    if given is None:
        return begins_anywhere(type_) and not pitch(graph, tensor)
    # Strides may put rows where TMA does not begin, whatever their length.
    dense = given.strides is None
    packed = dense and given.constant and type_.rank == 2 and graph.consumers(tensor) == (reader,)
    *steps, near = given.strides or row_major_strides(type_.shape)
    odd = any(step * type_.dtype.bits % TMA_BITS for step in steps)
    return odd and near == 1 and not packed


def _step(type_: TensorType) -> int:
    """The fewest elements at whose multiples TMA begins."""
    return math.lcm(TMA_BITS, type_.dtype.bits) // type_.dtype.bits


def _copied(graph: Graph, tensor: str, taken: set[str], nodes: list[dict[str, Any]]) -> str:
    """Writes a tensor with room behind its rows, and what is seen of it; the name of that."""
    type_ = graph.type_of(tensor)
    length = type_.shape[-1]
    # Rows of strides may be whole: they get room too, for without any there is nothing to copy.
    behind = (whole_row(type_) - length) or _step(type_)
    none = [0] * (type_.rank - 1)
    pads = {"low": [*none, 0], "high": [*none, behind]}
    sees = {"axis": type_.rank - 1, "start": 0, "stop": length}
    found, read = list[str](), tensor
    for wish, op, attrs in ((f"{tensor}_with_room", "pad", pads), (f"{tensor}_copied", "slice", sees)):
        name = free_name(wish, taken)
        nodes.append({"name": name, "op": op, "inputs": [read], "attrs": attrs})
        found, read = [*found, name], name
    return read
