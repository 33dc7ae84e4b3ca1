"""Unification of the graph's dimensions into axes, and the role of each axis in a kernel.

Every use of a graph input is a tensor of its own here, so that `x @ x.T` has two row axes and not one.
Dimensions are unified through operations with union-find; matmuls then say which axes are rows, columns,
streamed, or batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from networkx.utils import UnionFind

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.graph.needed import live_nodes
from wsopt.graph.ops import OPS, CostClass
from wsopt.graph.types import Graph, Node
from wsopt.tensors.views import Role

Dim = tuple[str, int]
"""A dimension: the tensor (a node's name, or `node:operand` for the use of an input) and its index."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a use of a graph input lies in memory, in the order in which the operation sees its dimensions."""

    tensor: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    origin: tuple[int, ...]


@dataclass(slots=True)
class Axes:
    """The unified axes of the live part of a graph."""

    graph: Graph
    live: tuple[Node, ...]
    groups: UnionFind = field(default_factory=UnionFind)
    layouts: dict[str, Layout] = field(default_factory=dict)
    roles: dict[Dim, Role] = field(default_factory=dict)
    batches: list[Dim] = field(default_factory=list)
    singles: list[Dim] = field(default_factory=list)

    def use(self, node: Node, operand: int) -> str:
        """The name under which an operand's dimensions are known: its node's, or one for this use."""
        name = node.inputs[operand]
        if not isinstance(name, str):
            raise TypeError(f"operand {operand} of {node.name} is a scalar")
        return f"{node.name}:{operand}" if f"{node.name}:{operand}" in self.layouts else name

    def shape(self, use: str) -> tuple[int, ...]:
        """Extents of a node's result or of the use of an input."""
        return self.layouts[use].extents if use in self.layouts else self.graph.type_of(use).shape

    def axis(self, use: str, dim: int) -> Dim:
        """The representative of the axis that a dimension belongs to."""
        found: Dim = self.groups[(use, dim % len(self.shape(use)))]
        return found

    def role(self, use: str, dim: int) -> Role | None:
        """The role of a dimension's axis, or None if no matmul gives it one."""
        return self.roles.get(self.axis(use, dim))


def input_layout(graph: Graph, name: str) -> Layout | None:
    """The memory layout of an input, or of transposes of one; None if `name` is computed."""
    given = graph.input(name)
    if given is not None:
        return Layout(name, given.type.shape, given.element_strides, tuple(range(given.type.rank)))
    node = graph.producer(name)
    if node is None or node.op != "transpose":
        return None
    inner = input_layout(graph, node.tensors[0])
    if inner is None:
        return None
    perm = node.attr("perm", tuple)
    return Layout(
        inner.tensor,
        tuple(inner.extents[p] for p in perm),
        tuple(inner.strides[p] for p in perm),
        tuple(inner.origin[p] for p in perm),
    )


def is_pointwise(node: Node) -> bool:
    """Whether a node computes each element from elements at the same place."""
    return OPS[node.op].cost is CostClass.ELEMENTWISE or node.op == "cast"


def _unify_pointwise(axes: Axes, node: Node) -> None:
    """Align operands from the right; equal extents are one axis, an extent of one is broadcast."""
    for operand, name in enumerate(node.inputs):
        if not isinstance(name, str):
            continue
        use = axes.use(node, operand)
        shape = axes.shape(use)
        offset = node.type.rank - len(shape)
        for dim, extent in enumerate(shape):
            if extent == node.type.shape[dim + offset]:
                axes.groups.union((node.name, dim + offset), (use, dim))


def matmul_dims(node: Node) -> tuple[tuple[int, int], tuple[int, int]]:
    """For each operand of a matmul its (outer, contracted) dimensions, counted from the end."""
    left = (-1, -2) if node.attr("transpose_a", bool) else (-2, -1)
    right = (-2, -1) if node.attr("transpose_b", bool) else (-1, -2)
    return left, right


def _unify_matmul(axes: Axes, node: Node) -> None:
    left, right = axes.use(node, 0), axes.use(node, 1)
    (left_outer, left_inner), (right_outer, right_inner) = matmul_dims(node)
    rank = node.type.rank

    def dim(use: str, index: int) -> Dim:
        return use, index % len(axes.shape(use))

    axes.groups.union(dim(left, left_inner), dim(right, right_inner))
    axes.groups.union((node.name, rank - 2), dim(left, left_outer))
    axes.groups.union((node.name, rank - 1), dim(right, right_outer))
    for use in (left, right):
        shape = axes.shape(use)
        for index in range(len(shape) - 2):
            target = rank - len(shape) + index
            if shape[index] == node.type.shape[target]:
                axes.groups.union((node.name, target), (use, index))


def _assign(axes: Axes, node: Node, use: str, dim: int, role: Role) -> None:
    axis = axes.axis(use, dim)
    known = axes.roles.setdefault(axis, role)
    if known is not role:
        raise LoweringError(
            f"node {node.name}: an axis would be both a {known} and a {role} axis of one kernel "
            f"(dimension {dim % len(axes.shape(use))} of {use}); products that exchange axes are not fused"
        )


def _assign_roles(axes: Axes, node: Node) -> None:
    rank = node.type.rank
    left, _ = matmul_dims(node)
    _assign(axes, node, axes.use(node, 0), left[1], Role.STREAM)
    _assign(axes, node, node.name, rank - 2, Role.ROW)
    _assign(axes, node, node.name, rank - 1, Role.COLUMN)
    for dim in range(rank - 2):
        if node.type.shape[dim] == 1:
            axes.singles.append(axes.axis(node.name, dim))
            continue
        _assign(axes, node, node.name, dim, Role.BATCH)
        axis = axes.axis(node.name, dim)
        if axis not in axes.batches:
            axes.batches.append(axis)


def _matmuls(nodes: tuple[Node, ...]) -> Iterator[Node]:
    return (node for node in nodes if node.op == "matmul")


def _check_operand(axes: Axes, node: Node, operand: int) -> None:
    """Refuse a matmul's operand that is computed in the graph."""
    if f"{node.name}:{operand}" in axes.layouts:
        return
    producer = axes.graph.producer(node.tensors[operand])
    assert producer is not None, "what is no use of an input is computed"
    raise LoweringError(
        f"node {node.name}: operand {operand} of the matmul is computed by {producer.op} node "
        f"{producer.name}; operands have to be inputs of the graph (or transposes of them): "
        f"{remedies.computed_operand(axes.graph, producer.name)}"
    )


def find_axes(graph: Graph) -> Axes:
    """Unify the dimensions of a graph's live part and give roles to the axes of its matmuls.

    Raises LoweringError for a matmul of computed operands, and where one axis would need two roles.
    """
    axes = Axes(graph, live_nodes(graph))
    for node in axes.live:
        for operand, name in enumerate(node.inputs):
            layout = input_layout(graph, name) if isinstance(name, str) else None
            if layout is not None:
                axes.layouts[f"{node.name}:{operand}"] = layout
    for node in _matmuls(axes.live):
        for operand in (0, 1):
            _check_operand(axes, node, operand)
    for node in axes.live:
        if node.op == "matmul":
            _unify_matmul(axes, node)
        elif is_pointwise(node):
            _unify_pointwise(axes, node)
    streams = [(axes.use(n, 0), matmul_dims(n)[0][1]) for n in _matmuls(axes.live)]
    extents = {axes.shape(use)[dim] for use, dim in streams}
    if len(extents) == 1:  # products over equally long axes can be streamed together
        axes.groups.union(*(axes.axis(use, dim) for use, dim in streams))
    for node in _matmuls(axes.live):
        _assign_roles(axes, node)
    return axes
