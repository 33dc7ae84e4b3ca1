"""How tensors lie between kernels: densely, or with room behind each row where TMA could not begin with the next.

A product's kernel writes rows that lie apart as it writes others, so what is computed of a product's elements has
that room. So does what is computed of rows that are reduced, if a product takes it as an operand. Elements alone are
written one behind the other; what a kernel makes of them is dense, whatever its width. A copy for a product may be
made of that, which has the room: a slice that leaves out the zeros behind each row.
"""

from __future__ import annotations

from collections.abc import Callable

from wsopt.frontend.kinds import NORMS, VIEWS, feeding, is_matmul, is_pointwise
from wsopt.frontend.packing import whole_length
from wsopt.graph.types import Graph, Node, TensorType
from wsopt.tensors.views import TMA_BITS

_OF_ROWS = ("softmax", "cumsum", *NORMS)
"""Operations that reduce rows and give a tensor of their shape."""
_TO_ONE = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "logsumexp")
"""Operations that give one value of each row, with which its elements are computed on."""


def maker_of(graph: Graph, name: str) -> str | None:
    """The node whose kernel can write a tensor's rows apart; None if there is none. That is the product from whose
    elements it is computed, each from the one at its place, or for an operand of products the node that reduces rows.
    """
    found = _product_of(graph, name)
    return _rows_of(graph, name) if found is None and _is_operand(graph, name) else found


def _product_of(graph: Graph, name: str) -> str | None:
    node = graph.producer(name)
    if node is None or is_matmul(node):
        return name if node is not None else None
    found = _above(graph, node, _product_of, alike=True)
    # What is reduced of a product's elements and computed with them again comes behind the product's kernel.
    others = (one for one in node.tensors if not _is_alike(graph, one, node))
    return None if found in feeding(graph.nodes, others) else found


def _rows_of(graph: Graph, name: str) -> str | None:
    node = graph.producer(name)
    if node is None or (node.op in (*_OF_ROWS, *_TO_ONE) and _goes_along_rows(graph, node)):
        return name if node is not None else None
    found = _above(graph, node, _rows_of, alike=True)
    return _above(graph, node, _rows_of, alike=False) if found is None else found


def _above(graph: Graph, node: Node, look: Callable[[Graph, str], str | None], *, alike: bool) -> str | None:
    """What is found above an elementwise node, by way of operands of its shape, or of the others."""
    if not is_pointwise(node):
        return None
    ways = (one for one in node.tensors if _is_alike(graph, one, node) is alike)
    return next((found for one in ways if (found := look(graph, one)) is not None), None)


def _is_alike(graph: Graph, name: str, node: Node) -> bool:
    return graph.type_of(name).shape == node.type.shape


def _goes_along_rows(graph: Graph, node: Node) -> bool:
    """Whether a node computes with whole rows: norms do, others along the axis that they name."""
    return node.op in NORMS or node.attr("axis", int) in (-1, graph.type_of(node.tensors[0]).rank - 1)


def _is_operand(graph: Graph, name: str) -> bool:
    """Whether products take a tensor as an operand, as it is or transposed, and nobody sees it in another way."""
    readers = graph.consumers(name)
    seen = [reader.name for reader in readers if reader.op in VIEWS]
    turned = all(reader.op == "transpose" for reader in readers if reader.op in VIEWS)
    own = any(is_matmul(reader) and name in reader.tensors[:2] for reader in readers)
    return turned and (own or any(_is_operand(graph, one) for one in seen))


def room_of(graph: Graph, name: str) -> str | None:
    """The tensor with zeros behind its rows of which another one is what was there before; None if it is none."""
    node = graph.producer(name)
    room = graph.producer(node.tensors[0]) if node is not None and node.op == "slice" else None
    if node is None or room is None or room.op != "pad":
        return None
    before, last = graph.type_of(room.tensors[0]), node.type.rank - 1
    behind = (*(0 for _ in range(last)), room.type.shape[-1] - before.shape[-1])
    padded = (room.attr("low", tuple), room.attr("high", tuple)) == ((0,) * (last + 1), behind)
    kept = node.attr("axis", int) in (last, -1) and (node.attr("start", int), node.type) == (0, before)
    return room.name if padded and kept and node.attr("step", int) == 1 else None


def makes_room(graph: Graph, node: Node) -> bool:
    """Whether a node's result is for nothing but room behind rows: all that read it leave the zeros out."""
    readers = graph.consumers(node.name)
    seen = all(room_of(graph, reader.name) == node.name for reader in readers)
    return node.op == "pad" and bool(readers) and seen and node.name not in graph.outputs


def pitch(graph: Graph, name: str) -> int:
    """Elements from one row to the next of a tensor between kernels, if its rows have room behind them; else 0."""
    type_, copied = graph.type_of(name), room_of(graph, name)
    if graph.input(name) is not None or name in graph.outputs:
        return 0
    if copied is not None:
        return graph.type_of(copied).shape[-1]
    if type_.rank < 2 or not begins_anywhere(type_):
        return 0
    return 0 if maker_of(graph, name) is None else whole_row(type_)


def begins_anywhere(type_: TensorType) -> bool:
    """Whether rows of a dense tensor begin where TMA does not."""
    return type_.shape[-1] * type_.dtype.bits % TMA_BITS > 0


def whole_row(type_: TensorType) -> int:
    """The next length of a row that TMA takes."""
    return whole_length(type_.shape[-1], type_.dtype)


def room(type_: TensorType, pitch: int) -> tuple[int, ...]:
    """The shape of a tensor's memory whose rows are so many elements apart; 0: of a dense one."""
    return (*type_.shape[:-1], pitch) if pitch else type_.shape
