"""Operands of products that lie across the axis that is contracted, of types that the tensor core does not transpose.

It transposes elements of 16 bits as it reads them. Of f32 and of f8 the contracted axis lies together, so a kernel of
its own turns what lies the other way, such as weights `[in, out]`, or what weights of a softmax multiply.
"""

from __future__ import annotations

from wsopt.frontend.kinds import F8, VIEWS, is_matmul, matmul_dims
from wsopt.frontend.names import free_name, names_of
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import DType, Graph, Node
from wsopt.lowering.reduced_graph import parse_derived

_AS_IT_LIES = (DType.F32, *F8)
"""Types of operands that the tensor core reads along the contracted axis alone."""

_SIDES = ("transpose_a", "transpose_b")


def with_turned_operands(graph: Graph) -> Graph:
    """The graph with such operands transposed for their products; itself without any."""
    wanted = [
        (node, side)
        for node in graph.nodes
        if is_matmul(node)
        for side in (0, 1)
        if matmul_dims(node)[side][1] == -2 and _lies_across(graph, node.tensors[side])
    ]
    if not wanted:
        return graph
    taken, data = names_of(graph), graph_to_json(graph)
    written, turned = {node["name"]: node for node in data["nodes"]}, dict[str, str]()
    for node, side in wanted:
        tensor, product = node.tensors[side], written[node.name]
        if tensor not in turned:
            turned[tensor] = free_name(f"{tensor}_turned", taken)
            *batch, row, column = range(graph.type_of(tensor).rank)
            perm = {"perm": [*batch, column, row]}
            data["nodes"].append(
                {"name": turned[tensor], "op": "transpose", "inputs": [tensor], "attrs": perm}
            )
        product["inputs"][side] = turned[tensor]
        turns = {_SIDES[side]: not node.attr(_SIDES[side], bool)}
        product["attrs"] = product.get("attrs", {}) | turns
    return parse_derived(data, graph)


def is_turned_operand(graph: Graph, node: Node) -> bool:
    """Whether a node's result is for nothing but products that contract its last axis, which another one lies along
    in what it transposes.
    """
    if node.op != "transpose" or node.type.dtype not in _AS_IT_LIES or node.name in graph.outputs:
        return False
    readers = graph.consumers(node.name)
    read = [
        matmul_dims(one)[side][1] == -1
        for one in readers
        if is_matmul(one)
        for side in (0, 1)
        if one.tensors[side] == node.name
    ]
    products = bool(read) and all(read) and all(map(is_matmul, readers))
    return products and _near(graph, node.name) not in (None, node.type.rank - 1)


def _lies_across(graph: Graph, name: str) -> bool:
    """Whether a tensor of such a type lies along its last axis, and not along the one before."""
    type_ = graph.type_of(name)
    return type_.dtype in _AS_IT_LIES and _near(graph, name) == type_.rank - 1


def _near(graph: Graph, name: str) -> int | None:
    """The axis along which a tensor's elements lie together, from the front; None where that is not known."""
    node, given, last = graph.producer(name), graph.input(name), graph.type_of(name).rank - 1
    if given is not None:
        steps = given.strides
        return last if steps is None else next((axis for axis, step in enumerate(steps) if step == 1), None)
    if node is None or node.op not in VIEWS:
        return last
    (source,) = node.tensors
    below = _near(graph, source)
    if node.op == "transpose" and below is not None:
        return node.attr("perm", tuple).index(below)
    if node.op == "reshape":
        return last if below == graph.type_of(source).rank - 1 else None
    return below
