"""Unification of the graph's dimensions into axes, also through reshapes, which split and merge them.

A dimension is a row of *atoms*, outer ones first; a reshape regroups atoms and costs nothing. Every use of an
input, also behind reshapes and transposes of it, has axes of its own: so `x @ x.T` has two row axes, and one
tensor may be query, key and value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from networkx.utils import UnionFind

from wsopt.errors import LoweringError
from wsopt.frontend.kinds import NORMS, VIEWS, Kind, input_path, is_pointwise, matmul_dims, producer
from wsopt.graph.needed import live_nodes
from wsopt.graph.ops import OPS, CostClass
from wsopt.graph.types import DType, Graph, Node
from wsopt.tensors.views import Role

Dim = tuple[str, int]
"""An axis: a tensor (a node's name, or `node:operand` for the use of an input) and the index of its dimension."""


@dataclass(frozen=True, slots=True)
class RawDim:
    """One dimension of a view: one of the tensor's, a part of one, or several, merged. The stride is in elements.

    `origin` are the tensor's dimensions that it stands for, and `part` what of them, as in a View.
    """

    axis: Dim
    extent: int
    stride: int
    origin: tuple[int, ...]
    part: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RawView:
    """A tensor of `rank` dimensions, by axis, before axes are merged."""

    tensor: str
    dtype: DType
    constant: bool
    rank: int
    dims: tuple[RawDim, ...]

    def along(self, kept: Callable[[RawDim], bool]) -> RawView:
        """The view less dimensions that are not `kept`: of one element, along which nothing varies."""
        return replace(self, dims=tuple(filter(kept, self.dims)))

    def atoms(self, dim: int) -> tuple[Dim, ...]:
        """The axes that a dimension of the tensor is made of, outer ones first."""
        return tuple(one.axis for one in self.dims if one.origin == (dim,))


@dataclass(frozen=True, slots=True)
class _Regroup:
    """Dimensions that a reshape exchanges: `old` and `new` are of the same elements, in the same order."""

    node: str
    old: tuple[Dim, ...]
    new: tuple[Dim, ...]


@dataclass(slots=True)
class Axes:
    """The axes of the live part of a graph. `paths` are the uses of inputs, `shapes` of all tensors.

    `sums` are the matmuls that are summed over the streamed axis, in order. If they are `exchanged`, the columns of
    their right operands are the kernel's rows.
    """

    graph: Graph
    kind: Kind
    sums: tuple[str, ...]
    live: tuple[Node, ...]
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    dims: UnionFind = field(default_factory=UnionFind)
    regroups: list[_Regroup] = field(default_factory=list)
    cuts: dict[Dim, tuple[int, ...]] = field(default_factory=dict)
    joined: UnionFind = field(default_factory=UnionFind)
    extents: dict[Dim, int] = field(default_factory=dict)
    roles: dict[Dim, Role] = field(default_factory=dict)
    batches: list[Dim] = field(default_factory=list)
    singles: list[Dim] = field(default_factory=list)
    exchanged: bool = False

    def use(self, node: Node, operand: int) -> str:
        """The name under which an operand's dimensions are known: its node's, or one for this use."""
        name = node.inputs[operand]
        assert isinstance(name, str), f"operand {operand} of {node.name} is a scalar"
        return f"{node.name}:{operand}" if f"{node.name}:{operand}" in self.paths else name

    def title(self, use: str) -> str:
        """The graph's name of an operand."""
        return self.paths[use][0] if use in self.paths else use

    def atoms(self, use: str, dim: int) -> tuple[Dim, ...]:
        """The atoms of a dimension, outer ones first; none for one of extent one that no axis goes along."""
        shape = self.shapes[use]
        found = self.dims[(use, dim % len(shape))]
        cuts = self.cuts.get(found, ())
        return tuple(self.joined[(f"{found[0]}.{found[1]}", part)] for part in range(len(cuts) + 1))

    def axis_roles(self, use: str, dim: int) -> tuple[Role | None, ...]:
        """The roles of a dimension's atoms."""
        return tuple(self.roles.get(atom) for atom in self.atoms(use, dim))

    def reduced(self, node: Node) -> tuple[str, int]:
        """The operand of a node that reduces, and the dimension that it reduces."""
        use = self.use(node, 0)
        return use, len(self.shapes[use]) - 1 if node.op in NORMS else node.attr("axis", int)

    def extent(self, role: Role) -> int:
        """Elements along the axis of a role that one axis has."""
        return next(self.extents[axis] for axis, known in self.roles.items() if known is role)

    def instance(self, use: str, index: int) -> str:
        """The name of a tensor on the way from a use of an input (0) down to the input."""
        return use if index == 0 else f"{use}/{self.paths[use][index]}"

    def raw_view(self, use: str) -> RawView:
        """The memory layout of an input behind a use of it, its dimensions named by their axes."""
        path = self.paths[use]
        given = self.graph.input(path[-1])
        assert given is not None, "a path ends at an input"
        end = self.instance(use, len(path) - 1)
        return self._split(end, given.name, given.element_strides, constant=given.constant)

    def output_view(self, name: str, strides: tuple[int, ...]) -> RawView:
        """The memory layout of a result of the graph."""
        return self._split(name, name, strides, constant=False)

    def _split(self, use: str, tensor: str, strides: tuple[int, ...], *, constant: bool) -> RawView:
        dims = []
        for dim, stride in enumerate(strides):
            step = math.prod(self.extents[atom] for atom in self.atoms(use, dim))
            for place, atom in enumerate(self.atoms(use, dim)):
                extent = self.extents[atom]
                step //= extent
                dims.append(RawDim(atom, extent, stride * step, (dim,), (extent if place else 0, step)))
        return RawView(tensor, self.graph.type_of(tensor).dtype, constant, len(strides), tuple(dims))


# --- relations ------------------------------------------------------------------------------------------


def _regroup(axes: Axes, node: str, old: str, new: str) -> None:
    """Pair the dimensions of a reshape's operand and result: the shortest runs of equal size."""
    shapes = axes.shapes[old], axes.shapes[new]
    i = j = 0
    while i < len(shapes[0]) or j < len(shapes[1]):
        first, second = shapes[0][i : i + 1], shapes[1][j : j + 1]
        if (first == (1,)) != (second == (1,)):  # an axis of extent one comes or goes
            i, j = (i + 1, j) if first == (1,) else (i, j + 1)
            continue
        start, end = (i, j), [i + 1, j + 1]
        sizes = [first[0], second[0]]
        while sizes[0] != sizes[1]:
            side = 0 if sizes[0] < sizes[1] else 1
            sizes[side] *= shapes[side][end[side]]
            end[side] += 1
        before = tuple((old, d) for d in range(start[0], end[0]) if shapes[0][d] > 1 or end[0] == i + 1)
        after = tuple((new, d) for d in range(start[1], end[1]) if shapes[1][d] > 1 or end[1] == j + 1)
        if len(before) == len(after) == 1:
            axes.dims.union(before[0], after[0])
        else:
            axes.regroups.append(_Regroup(node, before, after))
        i, j = end


def _relate_view(axes: Axes, node: Node, old: str, new: str) -> None:
    if node.op == "transpose":
        for dim, source in enumerate(node.attr("perm", tuple)):
            axes.dims.union((old, source), (new, dim))
    else:
        _regroup(axes, node.name, old, new)


def _add_uses(axes: Axes, node: Node) -> None:
    """Make instances of every input that a node reads, also through views."""
    for operand, name in enumerate(node.inputs):
        path = input_path(axes.graph, name) if isinstance(name, str) else None
        if path is None:
            continue
        use = f"{node.name}:{operand}"
        axes.paths[use] = path
        for index, step in enumerate(path):
            axes.shapes[axes.instance(use, index)] = axes.graph.type_of(step).shape
        for index, step in enumerate(path[:-1]):
            _relate_view(
                axes, producer(axes.graph, step), axes.instance(use, index + 1), axes.instance(use, index)
            )


def _align(axes: Axes, node: Node, use: str, kept: int = 0) -> None:
    """Align an operand from the right, all but its last `kept` dimensions; an extent of one is broadcast."""
    shape = axes.shapes[use]
    offset = node.type.rank - len(shape)
    for dim, extent in enumerate(shape[: len(shape) - kept]):
        if extent == node.type.shape[dim + offset]:
            axes.dims.union((node.name, dim + offset), (use, dim))


def _relate_reduction(axes: Axes, node: Node) -> None:
    use, axis = axes.reduced(node)
    kept = [dim for dim in range(len(axes.shapes[use])) if dim != axis]
    for position, dim in enumerate(kept):
        target = dim if node.attr("keepdims", bool) else position
        axes.dims.union((node.name, target), (use, dim))


def _relate_matmul(axes: Axes, node: Node) -> None:
    left, right = axes.use(node, 0), axes.use(node, 1)
    rank, (left_dims, right_dims) = node.type.rank, matmul_dims(node)

    def dim(use: str, index: int) -> Dim:
        return use, index % len(axes.shapes[use])

    axes.dims.union(dim(left, left_dims[1]), dim(right, right_dims[1]))
    axes.dims.union((node.name, rank - 2), dim(left, left_dims[0]))
    axes.dims.union((node.name, rank - 1), dim(right, right_dims[0]))
    for use in (left, right):
        _align(axes, node, use, kept=2)


def _relate(axes: Axes, node: Node) -> None:
    if node.op == "matmul":
        _relate_matmul(axes, node)
    elif node.op in VIEWS:
        if input_path(axes.graph, node.name) is None:
            _relate_view(axes, node, axes.use(node, 0), node.name)
    elif OPS[node.op].cost is CostClass.REDUCTION:
        _relate_reduction(axes, node)
    elif is_pointwise(node) or OPS[node.op].cost is CostClass.COMPOSITE:
        for operand, name in enumerate(node.inputs):
            if isinstance(name, str):
                _align(axes, node, axes.use(node, operand))


# --- atoms ----------------------------------------------------------------------------------------------


def _positions(axes: Axes, side: tuple[Dim, ...]) -> Iterator[tuple[Dim, int, int]]:
    """A regrouped side's dimensions, inner ones first, with the elements below and up to each."""
    low = 1
    for tensor, dim in reversed(side):
        high = low * axes.shapes[tensor][dim]
        yield axes.dims[(tensor, dim)], low, high
        low = high


def _find_cuts(axes: Axes) -> None:
    """Cut every dimension where a reshape cuts it, until nothing changes."""
    cuts: dict[Dim, set[int]] = {}
    changed = True
    while changed:
        changed = False
        for group in axes.regroups:
            sides = [list(_positions(axes, side)) for side in (group.old, group.new)]
            places = {high for side in sides for _, _, high in side}
            places |= {low * c for side in sides for axis, low, _ in side for c in cuts.get(axis, ())}
            for axis, low, high in itertools.chain(*sides):
                inside = {place // low for place in places if low < place < high}
                if any(place % low for place in places if low < place < high):
                    _refuse_reshape(group.node)
                changed |= not inside <= cuts.setdefault(axis, set())
                cuts[axis] |= inside
    for group in axes.regroups:
        for axis, low, high in itertools.chain(*(_positions(axes, s) for s in (group.old, group.new))):
            ends = [*sorted(cuts[axis]), high // low]
            if any(b % a for a, b in itertools.pairwise(ends)):
                _refuse_reshape(group.node)
    axes.cuts = {axis: tuple(sorted(found, reverse=True)) for axis, found in cuts.items() if found}


def _refuse_reshape(node: str) -> None:
    raise LoweringError(
        f"node {node}: the reshape neither splits axes nor merges whole ones; its axes have no common parts"
    )


def _find_atoms(axes: Axes) -> None:
    """Join the atoms that reshapes pair, and note the extent of each."""
    for group in axes.regroups:
        old, new = ([a for dim in side for a in axes.atoms(*dim)] for side in (group.old, group.new))
        for first, second in zip(old, new, strict=True):
            axes.joined.union(first, second)
    for tensor, shape in axes.shapes.items():
        for dim, extent in enumerate(shape):
            found = axes.dims[(tensor, dim)]
            ends = [extent, *axes.cuts.get(found, ()), 1]
            for atom, (high, low) in zip(axes.atoms(tensor, dim), itertools.pairwise(ends), strict=True):
                axes.extents[atom] = high // low


def relate_axes(graph: Graph, kind: Kind, sums: tuple[str, ...]) -> Axes:
    """Unify the dimensions of a graph's live part; no axis has a role yet.

    Raises LoweringError for a reshape that cuts axes across each other.
    """
    axes = Axes(graph, kind, sums, live_nodes(graph))
    for node in axes.live:
        axes.shapes[node.name] = node.type.shape
        if not (node.op in VIEWS and input_path(graph, node.name)):
            _add_uses(axes, node)
    for node in axes.live:
        _relate(axes, node)
    _find_cuts(axes)
    _find_atoms(axes)
    return axes
