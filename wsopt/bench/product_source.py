"""Baselines that are a part of a graph: its matmuls alone, one f8 matmul with its scales, or the bytes it moves."""

from __future__ import annotations

import math

from wsopt.bench.eager_source import (
    TORCH_NAMES,
    Inapplicable,
    function_source,
    grouped_expression,
    product_expression,
    variable,
)
from wsopt.runtime.raw_graph import Operand, RawGraph, RawInput, RawNode


def matmuls_source(graph: RawGraph) -> str:
    """The matmuls of the graph alone, in the dtype of their operands.

    The function returns a tuple of the products. Raises Inapplicable if an operand is computed.
    """
    products = [node for node in graph.nodes if node.op == "matmul"]
    if any(node.op == "grouped_matmul" for node in graph.nodes):
        raise Inapplicable(
            "cublas has no product of groups whose sizes are on the device; grouped_mm is torch's"
        )
    if not products:
        raise Inapplicable("the graph has no matmul")
    body = []
    for node in products:
        for operand in node.inputs:
            if graph.input(operand) is None:
                raise Inapplicable(f"{node.name}: its operand {operand} is computed by the graph")
        body.append(f"{variable(node.name)} = {product_expression(graph, node)}")
    return function_source(graph, body, [node.name for node in products], "matmuls")


def scaled_mm_source(graph: RawGraph) -> str:
    """An f8 matmul, a scale a row, a scale a column and a cast, as `torch._scaled_mm` does them; or a matmul of f8
    with scales of groups of 128 and of blocks of 128 by 128.

    The function returns a tuple of the one output. Raises Inapplicable if the graph is anything else.
    """
    if len(graph.outputs) != 1:
        raise Inapplicable("scaled_mm has one output")
    cast = graph.node(graph.outputs[0])
    if cast is None or cast.op != "cast" or cast.attrs["dtype"] not in ("bf16", "f16"):
        raise Inapplicable("scaled_mm ends in a cast to bf16 or f16")
    if (blocks := _with_blocks(graph, cast.inputs[0])) is not None:
        line = f"{variable(cast.name)} = torch._scaled_mm({blocks}, out_dtype={TORCH_NAMES[cast.attrs['dtype']]})"
        return function_source(graph, [line], [cast.name], "scaled_mm")
    factors = _factors(graph, cast.inputs[0])
    matmul = _only_product(graph, factors)
    row, column = _scales(graph, matmul, factors)
    x, w = (variable(item) for item in matmul.inputs)
    fast = matmul.attrs.get("accumulate") == "fast"
    line = (
        f"{variable(cast.name)} = torch._scaled_mm({x}, {w}.t(), scale_a={variable(row.name)}, "
        f"scale_b={variable(column.name)}.reshape(1, -1), out_dtype={TORCH_NAMES[cast.attrs['dtype']]}, "
        f"use_fast_accum={fast})"
    )
    return function_source(graph, [line], [cast.name], "scaled_mm")


def grouped_mm_source(graph: RawGraph) -> str:
    """A product of groups of rows and a cast, as `torch._grouped_mm` does them.

    The function returns a tuple of the one output. Raises Inapplicable if the graph is anything else.
    """
    cast = graph.node(graph.outputs[0])
    product = graph.node(cast.inputs[0]) if cast is not None and cast.op == "cast" else None
    if len(graph.nodes) != 2 or product is None or product.op != "grouped_matmul":
        raise Inapplicable("grouped_mm is one grouped product and a cast")
    assert cast is not None, "the product is its operand"
    if cast.attrs["dtype"] != "bf16":
        raise Inapplicable("grouped_mm has results of bf16")
    line = f"{variable(cast.name)} = {grouped_expression(graph, product)}"
    return function_source(graph, [line], [cast.name], "grouped_mm")


def copy_source(graph: RawGraph, nbytes: int) -> str:
    """A copy in device memory that reads and writes `nbytes` together, as a function that returns a launch."""
    if not graph.inputs:
        raise Inapplicable("the graph reads nothing")
    arguments = [variable(item.name) for item in graph.inputs]
    lines = [
        f"def copy({', '.join(arguments)}):",
        f"    source = torch.empty({nbytes // 2}, dtype=torch.uint8, device={arguments[0]}.device)",
        "    target = torch.empty_like(source)",
        "",
        "    def launch():",
        "        return (target.copy_(source),)",
        "",
        "    return launch",
        "",
    ]
    return "\n".join(lines)


def read_source(graph: RawGraph) -> str:
    """A kernel that only reads as many bytes as the graph's inputs have, as a function that returns a launch."""
    if not graph.inputs:
        raise Inapplicable("the graph reads nothing")
    arguments = [variable(item.name) for item in graph.inputs]
    nbytes = sum(item.nbytes for item in graph.inputs)
    return f"def read({', '.join(arguments)}):\n    return reading({nbytes}, {arguments[0]}.device)\n"


def _with_blocks(graph: RawGraph, name: Operand) -> str | None:
    """The arguments of a product of x [m, k], with a scale for each 128 elements of its rows that lie with k first,
    and of w [n, k], with one for each block of 128 by 128; None for what is no product of two computed operands.

    torch takes the scales [m, k / 128] with a stride of 1 along m, and [k / 128, n / 128] with one along k, whose
    other stride is a multiple of 4.
    """
    matmul = graph.node(name)
    if matmul is None or matmul.op != "matmul" or any(graph.node(one) is None for one in matmul.inputs):
        return None
    (x, rows, first), (w, blocks, second) = (_dequantized(graph, one) for one in matmul.inputs)
    turned = graph.node(rows)
    flat = not matmul.flag("transpose_a") and matmul.flag("transpose_b")
    if not flat or (first, second) != ((128,), (128, 128)) or turned is None or turned.op != "transpose":
        raise Inapplicable(
            "scaled_mm takes x [m, k] in groups of 128, with scales [k / 128, m] that are transposed, and w [n, k] "
            "in blocks of 128 by 128"
        )
    if _input(graph, blocks).shape[1] % 4:
        raise Inapplicable("scaled_mm wants a multiple of 4 blocks along the contracted axis")
    scale = variable(turned.inputs[0])
    return f"{variable(x)}, {variable(w)}.t(), scale_a={scale}.t(), scale_b={variable(blocks)}.t()"


def _dequantized(graph: RawGraph, name: Operand) -> tuple[Operand, Operand, tuple[int, ...]]:
    """The elements and scales of an operand, and how many share one along its last axes."""
    node = graph.node(name)
    while node is not None and node.op == "cast":
        name = node.inputs[0]
        node = graph.node(name)
    if node is None or node.op != "dequantize" or len(node.inputs) > 2:
        raise Inapplicable("scaled_mm takes operands of f8 with scales")
    elements = graph.input(node.inputs[0])
    if elements is None or elements.dtype != "f8e4m3":
        raise Inapplicable("scaled_mm wants f8e4m3 matrices that are inputs")
    return node.inputs[0], node.inputs[1], tuple(node.attrs.get("block") or (node.attrs["group"],))


def _factors(graph: RawGraph, name: Operand) -> list[Operand]:
    node = graph.node(name)
    if node is None or node.op != "mul":
        return [name]
    return [factor for operand in node.inputs for factor in _factors(graph, operand)]


def _only_product(graph: RawGraph, factors: list[Operand]) -> RawNode:
    nodes = [node for node in map(graph.node, factors) if node is not None]
    if len(nodes) != 1 or nodes[0].op != "matmul" or len(factors) != 3:
        raise Inapplicable("scaled_mm is one matmul times a row scale and a column scale")
    node = nodes[0]
    operands = [graph.input(item) for item in node.inputs]
    flat = all(item is not None and item.dtype == "f8e4m3" and len(item.shape) == 2 for item in operands)
    if not flat or node.flag("transpose_a") or not node.flag("transpose_b"):
        raise Inapplicable("scaled_mm wants f8e4m3 matrices x [m, k] and w [n, k], both inputs")
    return node


def _scales(graph: RawGraph, matmul: RawNode, factors: list[Operand]) -> tuple[RawInput, RawInput]:
    rows, columns = (_input(graph, item).shape[0] for item in matmul.inputs)
    scales = [item for item in map(graph.input, factors) if item is not None and item.dtype == "f32"]
    row = [item for item in scales if item.shape == (rows, 1)]
    column = [item for item in scales if item.shape[-1:] == (columns,) and math.prod(item.shape) == columns]
    if len(row) != 1 or len(column) != 1 or row == column:
        raise Inapplicable(f"scaled_mm wants f32 scales of shapes [{rows}, 1] and [{columns}]")
    return row[0], column[0]


def _input(graph: RawGraph, name: Operand) -> RawInput:
    found = graph.input(name)
    assert found is not None, name
    return found
