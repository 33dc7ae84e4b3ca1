"""From nodes as a writer has them to a graph: what outputs need, under names that people know from the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wsopt.errors import InternalError
from wsopt.graph.faults import quote
from wsopt.graph.needed import needed
from wsopt.graph.parse import parse_graph
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph, Input, Node
from wsopt.importers.model import Names, Unsaid
from wsopt.torch.repeats import written_out
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer


@dataclass(frozen=True, slots=True)
class Result:
    """An output of a model: its name and where it stands in the file, and its value."""

    name: str
    pointer: str
    value: Value


def finished(
    w: Writer, name: str, given: Sequence[str], constants: Mapping[str, str], results: Sequence[Result]
) -> tuple[Graph, list[Unsaid], dict[str, str]]:
    """The graph of what a writer has, with its inputs as they are called there; outputs that it cannot have; and the
    new name of each input.

    `given` are the model's own inputs, in order, `constants` those whose contents the model brings, each with its
    name in the model.
    """
    tensors: list[tuple[str, str]] = []
    unsaid: list[Unsaid] = []
    for result in results:
        try:
            tensors.append((_output(w, result, [tensor for tensor, _ in tensors]), result.name))
        except Untaken as reason:
            unsaid.append(Unsaid(result.pointer, result.name, "output", str(reason)))
    if unsaid:
        return Graph("none", "", (), (), ()), unsaid, {}
    brought = [tensor for tensor in w.types if tensor in constants]
    order = [*(tensor for tensor in given if tensor in w.types), *brought]
    inputs = tuple(Input(tensor, w.types[tensor], tensor in constants) for tensor in order)
    outputs = tuple(tensor for tensor, _ in tensors)
    graph = needed(Graph("model", "", inputs, tuple(w.nodes.values()), outputs))
    names = _names(graph, w, constants, dict(tensors))
    return _renamed(graph, name, names), [], {item.name: names[item.name] for item in graph.inputs}


def _output(w: Writer, result: Result, taken: Sequence[str]) -> str:
    """The node whose result is an output: a view of it is written, as is another output's value, or an input's."""
    value = result.value
    if not isinstance(value.tensor, str):
        raise Untaken(f"it is the number {value.tensor} in every element; leave it out")
    w.group = f"@{result.name}"
    value = written_out(w, value)
    tensor = str(value.tensor)
    if w.types[tensor].shape == value.shape and tensor in w.nodes and tensor not in taken:
        return tensor
    return w.node("reshape", [tensor], shape=value.shape)


def _names(
    graph: Graph, w: Writer, constants: Mapping[str, str], outputs: Mapping[str, str]
) -> dict[str, str]:
    """The name of each tensor: outputs and inputs as the model has them, then the last node of each group as the
    group, others with what they do behind it.
    """
    names = Names()
    found = {tensor: names.new(wanted) for tensor, wanted in outputs.items()}
    found |= {item.name: names.new(constants.get(item.name, item.name)) for item in graph.inputs}
    last = {w.groups[node.name]: node.name for node in graph.nodes}
    for node in graph.nodes:
        if node.name not in found:
            group = w.groups[node.name]
            found[node.name] = names.new(group if last[group] == node.name else f"{group}_{node.op}")
    return found


def _renamed(graph: Graph, name: str, names: Mapping[str, str]) -> Graph:
    """The graph under other names, read once more as a file would be."""
    inputs = tuple(Input(names[one.name], one.type, one.constant, one.strides) for one in graph.inputs)
    nodes = tuple(
        Node(
            names[one.name],
            one.op,
            tuple(names[x] if isinstance(x, str) else x for x in one.inputs),
            one.attrs,
            one.type,
        )
        for one in graph.nodes
    )
    whole = Graph(name, "", inputs, nodes, tuple(names[one] for one in graph.outputs))
    read = parse_graph(graph_to_json(whole), name)
    if len(read.nodes) != len(nodes):
        raise InternalError(f"{quote(name)}: a graph that was written is not the one that is read")
    return read
