"""How tensors lie between kernels: densely, or with room behind each row where TMA could not begin with the next.

A product's kernel writes rows that lie apart as it writes others, so what is computed of a product's elements has
that room. A kernel without a product writes rows one behind the other; what it makes is dense, whatever its width.
"""

from __future__ import annotations

import math

from wsopt.frontend.kinds import is_matmul, is_pointwise
from wsopt.graph.types import Graph, TensorType
from wsopt.tensors.views import TMA_BITS


def product_of(graph: Graph, name: str) -> str | None:
    """The product from whose elements a tensor is computed, each from the one at its place; None if there is none."""
    node, shape = graph.producer(name), graph.type_of(name).shape
    if node is None or is_matmul(node):
        return name if node is not None else None
    if not is_pointwise(node):
        return None
    alike = (one for one in node.tensors if graph.type_of(one).shape == shape)
    return next((found for one in alike if (found := product_of(graph, one)) is not None), None)


def pitch(graph: Graph, name: str) -> int:
    """Elements from one row to the next of a tensor between kernels, if its rows have room behind them; else 0."""
    type_ = graph.type_of(name)
    if graph.input(name) is not None or name in graph.outputs or type_.rank < 2 or not _is_odd(type_):
        return 0
    return 0 if product_of(graph, name) is None else _whole(type_)


def _is_odd(type_: TensorType) -> bool:
    return type_.shape[-1] * type_.dtype.bits % TMA_BITS > 0


def _whole(type_: TensorType) -> int:
    """The next length of a row that TMA takes."""
    step = math.lcm(TMA_BITS, type_.dtype.bits) // type_.dtype.bits
    return -(-type_.shape[-1] // step) * step


def room(type_: TensorType, pitch: int) -> tuple[int, ...]:
    """The shape of a tensor's memory whose rows are so many elements apart; 0: of a dense one."""
    return (*type_.shape[:-1], pitch) if pitch else type_.shape
