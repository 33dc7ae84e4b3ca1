"""Kinds of nodes and of graphs: the one place where graphs are told apart."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from enum import Enum
from functools import partial

from wsopt.graph.ops import OPS, CostClass
from wsopt.graph.types import DType, Graph, Node
from wsopt.tensors.views import Role

VIEWS = ("reshape", "transpose", "slice", "pad")
"""Operations that compute nothing: their result is their operand, seen in another way, with zeros around it."""

MOVES = ("transpose", "slice", "pad")
"""Those of them after which elements are next to others than before."""

NORMS = ("rms_norm", "layer_norm")
"""Composite operations over their operand's last axis."""

F8 = (DType.F8E4M3, DType.F8E5M2)
"""Element types whose products' sums the tensor cores keep in less than f32."""

QUANTIZING = ("quantize", "quantize_scale")
"""Composite operations over groups of their operand's last axis."""


MAX_HEAD = 256
"""Elements of the axes that a block holds whole: the widest tensor instruction, and the largest TMA box."""


class Kind(Enum):
    """Kind of a graph, by how its products and reductions depend on each other."""

    PRODUCTS = "products"
    """Products over one streamed axis, with elementwise operations after them."""
    COMPUTED = "computed"
    """An operand of the products is computed, element by element, from tensors that stream through the loop."""
    FACTORED = "factored"
    """Both operands of the products are tensors of f8 times factors, which leave the products of their elements."""
    CHAIN = "chain"
    """Products feed products, or a softmax does: the loop computes values between the two."""
    SCALED = "scaled"
    """A reduction of its own rows scales the left operand of the products."""
    REDUCED = "reduced"
    """The rows of products are reduced after the loop."""
    ROWS = "rows"
    """Rows are reduced, and there is no product: tiles of whole rows stream."""
    LONG_ROWS = "long rows"
    """The same of rows that no SM holds: parts of rows stream, and their reductions run on from part to part."""
    ELEMENTWISE = "elementwise"
    """Nothing is multiplied or reduced: tiles stream, and each element is computed from those at its place."""

    @property
    def plain(self) -> bool:
        """Whether nothing is reduced but by products that no other product feeds."""
        return self in (Kind.PRODUCTS, Kind.COMPUTED, Kind.FACTORED)

    @property
    def along(self) -> Role:
        """The axis that reductions go along: the streamed one, or rows that a tile holds whole."""
        return (
            Role.COLUMN
            if self in (Kind.REDUCED, Kind.ROWS, Kind.LONG_ROWS, Kind.ELEMENTWISE)
            else Role.STREAM
        )

    @property
    def runs_on(self) -> bool:
        """Whether reductions run on from iteration to iteration, so that none is complete before the last."""
        return self.along is Role.STREAM or self is Kind.LONG_ROWS

    @property
    def as_written(self) -> bool:
        """Whether no identity is applied to values: none would spare a pass over a loop or over a row."""
        return self.plain or self is Kind.ELEMENTWISE


def is_pointwise(node: Node) -> bool:
    """Whether a node computes each element from elements at the same place."""
    return OPS[node.op].cost is CostClass.ELEMENTWISE or node.op == "cast"


def reduces_rows(node: Node) -> bool:
    """Whether a node's values depend on others along an axis of its operand."""
    composite = ("softmax", "cumsum", *NORMS, *QUANTIZING)
    return OPS[node.op].cost is CostClass.REDUCTION or node.op in composite


def matmul_dims(node: Node) -> tuple[tuple[int, int], tuple[int, int]]:
    """For each operand of a matmul its (outer, contracted) dimensions, counted from the end."""
    left = (-1, -2) if node.op == "matmul" and node.attr("transpose_a", bool) else (-2, -1)
    right = (-2, -1) if node.attr("transpose_b", bool) else (-1, -2)
    return left, right


def input_path(graph: Graph, name: str, views: Container[str] = VIEWS) -> tuple[str, ...] | None:
    """`name` and what it is a view of, down to an input of the graph; None if it is computed."""
    if graph.input(name) is not None:
        return (name,)
    node = producer(graph, name)
    below = input_path(graph, node.tensors[0], views) if node.op in views else None
    return None if below is None else (name, *below)


def gathered(graph: Graph, name: str) -> Node | None:
    """The `gather` of inputs that a tensor is, seen in another way; None if it is none."""
    node = graph.producer(name)
    while node is not None and node.op in ("reshape", "transpose"):
        node = graph.producer(node.tensors[0])
    if node is None or node.op != "gather":
        return None
    return node if all(input_path(graph, one) is not None for one in node.tensors) else None


def paged(graph: Graph) -> frozenset[str]:
    """Gathers of inputs that nothing but products reads, also seen in another way; and the views of them."""
    found = {name: node.name for name in (n.name for n in graph.nodes) if (node := gathered(graph, name))}
    elsewhere = {
        found[name]
        for node in graph.nodes
        for name in node.tensors
        if name in found and node.name not in found and not is_matmul(node)
    }
    elsewhere |= {found[name] for name in graph.outputs if name in found}
    return frozenset(name for name, node in found.items() if node not in elsewhere)


def is_copied(graph: Graph, node: Node) -> bool:
    """Whether a node is an output that holds an input's elements at other places, and a kernel has to move them."""
    path = input_path(graph, node.name) if node.name in graph.outputs and node.op in VIEWS else None
    return path is not None and any(producer(graph, name).op in MOVES for name in path[:-1])


def producer(graph: Graph, name: str) -> Node:
    """The node that computes a tensor which is no input."""
    node = graph.producer(name)
    assert node is not None, f"{name} is an input"
    return node


def depending(live: tuple[Node, ...], begins: Callable[[Node], bool]) -> frozenset[str]:
    """The nodes with which something `begins`, and all that depend on them."""
    found: set[str] = set()
    for node in live:
        if begins(node) or found & set(node.tensors):
            found.add(node.name)
    return frozenset(found)


def feeding(live: tuple[Node, ...], names: Iterable[str]) -> frozenset[str]:
    """The tensors of these names, and all that they depend on."""
    found = set(names)
    for node in reversed(live):
        if node.name in found:
            found.update(node.tensors)
    return frozenset(found)


def is_matmul(node: Node) -> bool:
    """Whether a node is a product."""
    return node.op in ("matmul", "grouped_matmul")


def is_grouped(node: Node) -> bool:
    """Whether a node is a product of rows that offsets cut into groups."""
    return node.op == "grouped_matmul"


def chained_products(graph: Graph) -> tuple[str, ...]:
    """Matmuls with an operand that other matmuls feed, or a softmax, whose maxima and sums can go on from K-block to
    K-block: the loop sums them up. A block holds all of their columns; a softmax in front of more is a kernel's own.
    """
    follows = depending(graph.nodes, is_matmul)
    softened = depending(graph.nodes, lambda node: node.op == "softmax")
    return tuple(
        node.name
        for node in filter(is_matmul, graph.nodes)
        if (node.inputs[0] in follows or (node.inputs[0] in softened and node.type.shape[-1] <= MAX_HEAD))
        and isinstance(node.inputs[1], str)
        and (input_path(graph, node.inputs[1]) or gathered(graph, node.inputs[1])) is not None
    )


def computed_side(graph: Graph, matmuls: Iterable[Node]) -> int | None:
    """The operand, 0 or 1, of each of these matmuls that is computed; None if that is none, both, or not the same."""
    sides = {tuple(n for n in (0, 1) if input_path(graph, node.tensors[n]) is None) for node in matmuls}
    return next(iter(sides))[0] if sides in ({(0,)}, {(1,)}) else None


def kind_of(graph: Graph) -> Kind:
    """The kind of a graph of which every node is needed."""
    reductions = {node.name for node in graph.nodes if reduces_rows(node)}
    matmuls = list(filter(is_matmul, graph.nodes))
    if not matmuls:
        return Kind.ROWS if reductions else Kind.ELEMENTWISE
    if chained_products(graph):
        return Kind.CHAIN
    scales = depending(
        graph.nodes, lambda node: node.op.startswith("reduce_") or node.op in (*NORMS, *QUANTIZING)
    )
    if any(node.inputs[0] in scales for node in matmuls):
        return Kind.SCALED
    if reductions:
        return Kind.REDUCED if reductions & depending(graph.nodes, is_matmul) else Kind.PRODUCTS
    if computed_side(graph, matmuls) is not None:
        return Kind.COMPUTED
    return Kind.FACTORED if all(map(partial(_is_factored, graph), matmuls)) else Kind.PRODUCTS


def _is_factored(graph: Graph, node: Node) -> bool:
    """Whether both operands of a matmul are computed, each from a tensor of f8."""

    def from_f8(name: str) -> bool:
        read = (graph.input(one) for one in feeding(graph.nodes, [name]))
        return any(one is not None and one.type.dtype in F8 for one in read)

    return all(input_path(graph, name) is None and from_f8(name) for name in node.tensors)
