"""Operands of products, and masks of scores, whose rows TMA could not begin with, as copies with room behind rows.

A row of such a tensor is no multiple of 16 bytes, or rows are no such multiple apart. Zeros behind each (`pad`) make
both one, and a slice of that has what was there before: to a product it is the operand, with rows that lie apart. A
kernel of its own copies it, and the tensor lies in the workspace (`between.py`). A dense constant matrix that is read
once is not copied at every call: its kernel has it padded before the first launch.

What is computed with scores streams beside them, and comes by TMA too, as a mask of 1,500 keys for each batch does.
Without room behind its rows scores would lie in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from wsopt.frontend.kinds import VIEWS, feeding, is_matmul, is_pointwise
from wsopt.frontend.names import free_name, names_of
from wsopt.frontend.packing import whole_length
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph, Node, TensorType, row_major_strides
from wsopt.lowering.reduced_graph import parse_derived
from wsopt.partition.between import begins_anywhere, pitch, whole_row
from wsopt.tensors.views import TMA_BITS


def with_pitched_copies(graph: Graph) -> Graph:
    """The graph with a copy of each operand of products whose rows TMA could not begin with; itself without any."""
    return _with_copies(graph, dict(_edges(graph)))


def with_pitched_masks(graph: Graph) -> Graph:
    """The graph with a copy of each tensor beside scores whose rows TMA could not begin with; itself without any."""
    return _with_copies(graph, dict(_beside_scores(graph)))


def _with_copies(graph: Graph, edges: Mapping[tuple[str, int], str]) -> Graph:
    """The graph with copies of tensors where they are read; itself where none are."""
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


def turns_masks(graph: Graph) -> bool:
    """Whether what is computed with scores is a tensor of which other elements lie together than keys."""
    return any(_is_turned(graph, name) for _, _, name, _ in _operands_beside(graph))


def _is_turned(graph: Graph, name: str) -> bool:
    """Whether a tensor is a transpose, seen in another shape or as it is, whose last axis was another one before."""
    node = graph.producer(name)
    if node is None or node.op not in VIEWS:
        return False
    last = node.type.rank - 1
    moved = node.op == "transpose" and node.attr("perm", tuple)[last] != last
    return moved or _is_turned(graph, node.tensors[0])


def _beside_scores(graph: Graph) -> Iterator[tuple[tuple[str, int], str]]:
    """The same of what is computed with scores, along the axis that streams."""
    for reader, place, name, scores in _operands_beside(graph):
        if _streams_unpitched(graph, name, reader, scores):
            yield (reader.name, place), name


def _operands_beside(graph: Graph) -> Iterator[tuple[Node, int, str, Node]]:
    """What is computed with scores, of products and before other products: the node that reads it, the place among
    its operands, its name, and the scores.
    """
    operands = (name for node in graph.nodes if is_matmul(node) for name in node.tensors[:2])
    before, behind = feeding(graph.nodes, operands), set[str]()
    for node in graph.nodes:
        if is_matmul(node) or not behind.isdisjoint(node.tensors):
            behind.add(node.name)
    scores = [node for node in graph.nodes if is_pointwise(node) and node.name in before & behind]
    for node in scores:
        beside = feeding(graph.nodes, set(node.tensors) - behind)
        for reader in (node, *(one for one in graph.nodes if is_pointwise(one) and one.name in beside)):
            for place, name in enumerate(reader.inputs):
                if isinstance(name, str) and name in beside:
                    yield reader, place, name, node


def _streams_unpitched(graph: Graph, tensor: str, reader: Node, scores: Node) -> bool:
    """Whether a tensor of several rows, which no elementwise node computes, has the keys of scores along them."""
    shape, node = graph.type_of(tensor).shape, graph.producer(tensor)
    several = math.prod(shape[:-1]) > 1 and shape[-1:] == scores.type.shape[-1:]
    return several and not (node and is_pointwise(node)) and _is_unpitched(graph, tensor, reader)


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
    return whole_length(1, type_.dtype)


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
