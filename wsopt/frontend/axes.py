"""Unification of the graph's dimensions into axes, also through reshapes, which split and merge them.

A dimension is a row of *atoms*, outer ones first; a reshape regroups atoms and costs nothing. Every use of an
input, also behind reshapes and transposes of it, has axes of its own: so `x @ x.T` has two row axes, and one
tensor may be query, key and value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from networkx.utils import UnionFind

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.kinds import (
    NORMS,
    VIEWS,
    Kind,
    input_path,
    is_copied,
    is_pointwise,
    matmul_dims,
    producer,
)
from wsopt.graph.infer import places
from wsopt.graph.ops import OPS, CostClass
from wsopt.graph.types import DType, Graph, Node, row_major_strides
from wsopt.tensors.views import Role

Dim = tuple[str, int]
"""An axis: a tensor (a node's name, or `node:operand` for the use of an input) and the index of its dimension."""


PITCH = 16
"""Elements that a row's pitch is a multiple of, whatever their type, so that TMA takes it."""


@dataclass(frozen=True, slots=True)
class RawDim:
    """One dimension of a view: one of the tensor's, a part of one, or several, merged. The stride is in elements.

    `origin` are the tensor's dimensions that it stands for, `part` what of them, and `cutout` where it is a slice of
    one or has zeros around it, as in a View. So many neighbours along the axis share `each` element, as those of a
    group share its scale.
    """

    axis: Dim
    extent: int
    stride: int
    origin: tuple[int, ...]
    part: tuple[int, int]
    cutout: tuple[int, int, int] | None = None
    each: int = 1

    @property
    def padded(self) -> bool:
        """Whether there are zeros around what is there of the tensor."""
        return self.cutout is not None and not 0 <= self.cutout[0] <= self.cutout[2] - self.extent


@dataclass(frozen=True, slots=True)
class RawView:
    """A tensor of `rank` dimensions, by axis, before axes are merged. The places along an axis may be `chosen` by
    another tensor, by the name of its use. Whole numbers of four bits are signed, or
    unsigned and less a `zero`.
    """

    tensor: str
    dtype: DType
    constant: bool
    rank: int
    dims: tuple[RawDim, ...]
    chosen: tuple[Dim, str] | None = None
    zero: int | None = None

    def along(self, kept: Callable[[RawDim], bool]) -> RawView:
        """The view less dimensions that are not `kept`: of one element, along which nothing varies."""
        chosen = self.chosen and self.chosen[0]
        return replace(self, dims=tuple(dim for dim in self.dims if dim.axis == chosen or kept(dim)))

    def atoms(self, dim: int) -> tuple[Dim, ...]:
        """The axes that a dimension of the tensor is made of, outer ones first; none of one that is a slice."""
        own = [one for one in self.dims if one.origin == (dim,)]
        return () if any(one.cutout for one in own) else tuple(one.axis for one in own)


@dataclass(slots=True)
class Axes:
    """The axes of a graph. `paths` are the uses of inputs, `shapes` of all tensors.

    `sums` are the matmuls that are summed over the streamed axis, in order. If they are `exchanged`, the columns of
    their right operands are the kernel's rows. `same` has the dimensions that are one axis, and `cuts` the outer and
    the inner part of each that a reshape cuts. Where a graph has a single row of elements, `one_row` is an axis of
    one element that no tensor has. `slices` have for a dimension of which a use takes a slice the slice's, and where
    that begins; `joints` for one along which tensors lie one behind the other theirs, and where each begins.
    """

    graph: Graph
    kind: Kind
    sums: tuple[str, ...]
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    same: UnionFind = field(default_factory=UnionFind)
    cuts: dict[Dim, tuple[Dim, ...]] = field(default_factory=dict)
    extents: dict[Dim, int] = field(default_factory=dict)
    roles: dict[Dim, Role] = field(default_factory=dict)
    singles: list[Dim] = field(default_factory=list)
    exchanged: bool = False
    one_row: Dim | None = None
    slices: dict[Dim, tuple[Dim, int]] = field(default_factory=dict)
    joints: dict[Dim, tuple[tuple[Dim, int], ...]] = field(default_factory=dict)

    def use(self, node: Node, operand: int) -> str:
        """The name under which an operand's dimensions are known: its node's, or one for this use."""
        use = f"{node.name}:{operand}"
        return use if use in self.paths else str(node.inputs[operand])

    def title(self, use: str) -> str:
        """The graph's name of an operand."""
        return self.paths.get(use, (use,))[0]

    def leaves(self, axis: Dim) -> tuple[Dim, ...]:
        """The atoms of an axis, outer ones first."""
        found: Dim = self.same[axis]
        return (
            tuple(leaf for part in self.cuts[found] for leaf in self.leaves(part))
            if found in self.cuts
            else (found,)
        )

    def atoms(self, use: str, dim: int) -> tuple[Dim, ...]:
        """The atoms of a dimension, outer ones first."""
        return self.leaves((use, dim % len(self.shapes[use])))

    def reduced(self, node: Node) -> tuple[str, int]:
        """The operand of a node that reduces, and the dimension that it reduces."""
        use = self.use(node, 0)
        return use, len(self.shapes[use]) - 1 if node.op in NORMS else node.attr("axis", int)

    @property
    def batches(self) -> list[Dim]:
        """The batch axes, in the order in which they were found."""
        return [axis for axis, role in self.roles.items() if role is Role.BATCH]

    def all_atoms(self, use: str) -> list[Dim]:
        """The atoms of all dimensions of a tensor."""
        return [atom for dim in range(len(self.shapes[use])) for atom in self.atoms(use, dim)]

    def extent(self, role: Role) -> int:
        """Elements along all axes of a role."""
        return math.prod(self.extents[axis] for axis in self.atoms_of(role))

    def atoms_of(self, role: Role) -> tuple[Dim, ...]:
        """The axes of a role, outer ones first where a reshape makes one of them."""
        return tuple(axis for axis, known in self.roles.items() if known is role)

    def instance(self, use: str, index: int) -> str:
        """The name of a tensor on the way from a use of an input (0) down to the input."""
        return use if index == 0 else f"{use}/{self.paths[use][index]}"

    def part_of(self, atom: Dim, piece: int = 0) -> tuple[Dim, int] | None:
        """The axis of a tensor that lies with others one behind the other along an axis, and where it begins."""
        return next((parts[piece] for whole, parts in self.joints.items() if self.same[whole] == atom), None)

    def pieces(self, use: str) -> int:
        """How many tensors lie one behind the other along an axis of a tensor; 0 if none do."""
        own = {*self.all_atoms(use)}
        return next((len(parts) for whole, parts in self.joints.items() if self.same[whole] in own), 0)

    def tile_atoms(self, use: str) -> list[Dim]:
        """The atoms of all dimensions of a tensor, those of what lies one behind the other instead of its own."""
        parts = ((atom, self.part_of(atom)) for atom in self.all_atoms(use))
        return [leaf for atom, part in parts for leaf in (self.leaves(part[0]) if part else (atom,))]

    def raw_view(self, use: str, piece: int = 0) -> RawView:
        """The memory layout of a result, or of the input behind a use of it, its dimensions named by their axes; of
        tensors one behind the other that of a `piece`.
        """
        path = self.paths.get(use, (use,))
        end, given = self.instance(use, len(path) - 1), self.graph.input(path[-1])
        strides = given.element_strides if given else row_major_strides(self.shapes[end])
        dims = list[RawDim]()
        taken = {self.same[whole]: found for whole, found in self.slices.items()}
        for dim, stride in enumerate(strides):
            atoms = self.atoms(end, dim)
            for place, atom in enumerate(atoms):
                extent, step = (
                    self.extents[atom],
                    math.prod(self.extents[inner] for inner in atoms[place + 1 :]),
                )
                if found := self.part_of(atom, piece):
                    taken[atom] = found
                if atom in taken:
                    whole = 0 if place else self.shapes[end][dim]
                    dims += self._slice(taken, *taken[atom], stride * step, dim, step, whole, extent)
                else:
                    dims.append(RawDim(atom, extent, stride * step, (dim,), (extent if place else 0, step)))
        if self.one_row is not None and any(dim.extent > 1 for dim in dims):
            pitch = -(-math.prod(self.shapes[end]) // PITCH) * PITCH
            dims.append(RawDim(self.one_row, 1, pitch, (), (0, 1)))
        constant = given is not None and given.constant
        return RawView(path[-1], self.graph.type_of(path[-1]).dtype, constant, len(strides), tuple(dims))

    def _slice(
        self,
        taken: Mapping[Dim, tuple[Dim, int]],
        axis: Dim,
        start: int,
        stride: int,
        dim: int,
        step: int,
        whole: int,
        length: int,
    ) -> Iterator[RawDim]:
        """The dimensions of a slice from `start` on, of a tensor's dimension whose elements lie a `stride` apart, and
        which has as many as `whole`; those of a reshape of it begin where its outermost axis does. Of some of them
        slices are `taken` again. There are `length` elements to slice from; what lies beyond them, and before the
        first, are zeros.
        """
        leaves = self.leaves(axis)
        for place, leaf in enumerate(leaves):
            inner = math.prod(self.extents[one] for one in leaves[place + 1 :])
            if not place and start % inner:
                raise LoweringError(
                    f"node {axis[0]}: a slice from {start} on is seen in rows of {inner}; begin where such a row does"
                )
            extent, first, known = self.extents[leaf], 0 if place else start // inner, 0 if place else whole
            last = extent if place else length // inner
            if leaf in taken:
                again, begin = taken[leaf]
                if self.extents[again] > extent and not first <= 0 < last <= first + extent:
                    name = self.title(again[0].rpartition("/")[2])
                    raise LoweringError(
                        f"node {name}: zeros around a slice are not lowered; {remedies.computed_before([name])}"
                    )
                yield from self._slice(
                    taken, again, first + begin, stride * inner, dim, step * inner, known, last
                )
            else:
                cutout = first, known, min(first + extent, last)
                yield RawDim(leaf, extent, stride * inner, (dim,), (extent, step * inner), cutout)

    def cut(self, axis: Dim, inner: int) -> tuple[Dim, Dim]:
        """Cut an axis into an outer and an inner part, which has so many elements."""
        whole: Dim = self.same[axis]
        outer_part, inner_part = ((f"{whole[0]}.{whole[1]}", part) for part in range(2))
        self.cuts[whole] = outer_part, inner_part
        self.extents |= {outer_part: self.extents[whole] // inner, inner_part: inner}
        return outer_part, inner_part

    def add_one_row(self) -> Dim:
        """An axis of one element for the rows of a graph whose tensors have none."""
        self.one_row = "", 0
        self.extents[self.one_row] = 1
        return self.one_row

    def add(self, name: str, tensor: str) -> None:
        """Give a tensor of the graph, under this name, dimensions of its own."""
        self.shapes[name] = self.graph.type_of(tensor).shape
        self.extents.update({(name, dim): extent for dim, extent in enumerate(self.shapes[name])})


# --- relations ------------------------------------------------------------------------------------------


def _regroup(axes: Axes, node: str, old: str, new: str) -> None:
    """Pair the atoms of a reshape's operand and result, outer ones first; the larger of two is cut."""
    sides = [[(use, dim) for dim in reversed(range(len(axes.shapes[use])))] for use in (old, new)]
    while all(sides):
        for side in sides:
            side[-1:] = reversed(axes.leaves(side[-1]))
        sizes = [axes.extents[side[-1]] for side in sides]
        small, large = sorted(sizes)
        if small == large:
            axes.same.union(*(side.pop() for side in sides))
        elif small == 1:  # an axis of extent one comes or goes
            sides[sizes.index(1)].pop()
        elif large % small:
            raise LoweringError(
                f"node {node}: the reshape neither splits axes nor merges whole ones; its axes have no common parts"
            )
        else:
            axes.cut(sides[sizes.index(large)][-1], large // small)


def _add_uses(axes: Axes, node: Node) -> Iterator[tuple[Node, str, str]]:
    """Make instances of every input that a node reads, also through views: each view, its operand and its result."""
    for operand, name in enumerate(node.inputs):
        path = input_path(axes.graph, name) if isinstance(name, str) else None
        if path is not None:
            yield from _add_use(axes, f"{node.name}:{operand}", path)


def _add_use(axes: Axes, use: str, path: tuple[str, ...]) -> Iterator[tuple[Node, str, str]]:
    axes.paths[use] = path
    for index, tensor in enumerate(path):
        axes.add(axes.instance(use, index), tensor)
        if index:
            view = producer(axes.graph, path[index - 1])
            yield view, axes.instance(use, index), axes.instance(use, index - 1)


def _copied(axes: Axes, node: Node) -> Iterator[tuple[Node, str, str]]:
    """The same for an output that is an input, seen in another way: a use of it as it is seen."""
    path = input_path(axes.graph, node.name)
    assert path is not None, "it is a view of an input"
    use = f"{node.name}:0"
    yield from _add_use(axes, use, path)


def _related(axes: Axes, node: Node) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions of a node and of its operands that go along one axis; an extent of one is broadcast."""
    uses = [axes.use(node, operand) for operand, name in enumerate(node.inputs) if isinstance(name, str)]
    cost, inner = OPS[node.op].cost, 0
    if node.op == "matmul":
        (row, contracted), (column, other) = matmul_dims(node)
        yield (uses[0], contracted), (uses[1], other)
        yield (node.name, -2), (uses[0], row)
        yield (node.name, -1), (uses[1], column)
        inner = 2
    if cost is CostClass.REDUCTION:
        use, axis = axes.reduced(node)
        kept = [dim for dim in range(len(axes.shapes[use])) if dim != axis]
        for place, dim in enumerate(kept):
            yield (node.name, dim if node.attr("keepdims", bool) else place), (use, dim)
    elif node.op == "concat":
        yield from _joined(axes, node, uses)
    elif node.op == "gather":
        yield from _gathered(axes, node, uses)
    elif node.op == "dequantize":
        yield from _dequantized(axes, node, uses)
    elif inner or is_pointwise(node) or cost is CostClass.COMPOSITE:
        for use in uses:
            shape = axes.shapes[use]
            for dim in range(-len(shape), -inner):
                if shape[dim] == node.type.shape[dim]:
                    yield (node.name, dim), (use, dim)


def _dequantized(axes: Axes, node: Node, uses: Sequence[str]) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions of quantized elements, and those of scales and zeros but the last: it has groups."""
    for use in uses:
        shape, last = axes.shapes[use], -1 if use is not uses[0] else 0
        for dim in range(-len(shape), last):
            if shape[dim] == node.type.shape[dim]:
                yield (node.name, dim), (use, dim)


def _group(axes: Axes, node: Node) -> None:
    """Cut the last axis of quantized elements into groups, along which scales and zeros lie, and what is in one."""
    *outer, length = node.type.shape
    group, seen = node.attr("group", int), f"{node.name}/groups"
    if group in (1, length):
        whole = (node.name, len(outer))
    else:
        axes.shapes[seen] = (*outer, length // group, group)
        axes.extents.update({(seen, dim): extent for dim, extent in enumerate(axes.shapes[seen])})
        for dim in range(len(outer)):
            axes.same.union((node.name, dim), (seen, dim))
        _regroup(axes, node.name, node.name, seen)
        whole = (seen, len(outer))
    for operand in range(1, len(node.inputs)):
        use = axes.use(node, operand)
        if isinstance(node.inputs[operand], str) and axes.shapes[use] and axes.shapes[use][-1] > 1:
            if len(axes.leaves(whole)) > 1:
                raise LoweringError(
                    f"node {node.name}: its groups of {group} lie along an axis that has groups of another size; a "
                    f"kernel takes one: {remedies.OWN_GRAPH}"
                )
            axes.same.union(*axes.leaves(whole), (use, len(axes.shapes[use]) - 1))


def _gathered(axes: Axes, node: Node, uses: Sequence[str]) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions of a tensor beside that along which indices choose places, and those of the indices."""
    table, indices = uses
    along, count = node.attr("axis", int), len(axes.shapes[indices])
    for dim in range(len(axes.shapes[table])):
        if dim != along:
            yield (node.name, dim if dim < along else dim + count - 1), (table, dim)
    for dim in range(count):
        yield (node.name, along + dim), (indices, dim)


def _joined(axes: Axes, node: Node, uses: Sequence[str]) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions of tensors one behind the other that are one; notes where each begins along the other one."""
    along, parts, begin = node.attr("axis", int), list[tuple[Dim, int]](), 0
    for use in uses:  # one that joins others itself is as many parts
        own = axes.joints.get((use, along), (((use, along), 0),))
        parts += [(part, begin + at) for part, at in own]
        begin += axes.shapes[use][along]
    extents = [axes.shapes[use][dim] for (use, dim), _ in parts]
    if len({*extents}) > 1:
        raise LoweringError(
            f"node {node.name}: it joins parts of {', '.join(map(str, extents))} elements; a kernel has one tile for "
            f"all: {remedies.OWN_OUTPUTS}"
        )
    yield from ((parts[0][0], part) for part, _ in parts[1:])
    for use in uses:
        yield from (((node.name, dim), (use, dim)) for dim in range(len(node.type.shape)) if dim != along)
    axes.joints[node.name, along] = tuple(parts)


def _slice(axes: Axes, node: Node, old: str, new: str) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions that a slice leaves as they are; notes that of which it takes a part."""
    along, found = node.attr("axis", int), places(dict(node.attrs), axes.shapes[old][node.attr("axis", int)])
    if found.step > 1:
        raise LoweringError(
            f"node {node.name}: a slice with a step of {found.step} is not lowered; make {node.name} an input, and "
            "hand over a dense copy of the slice"
        )
    if len(found) == 1 < axes.shapes[old][along]:
        raise LoweringError(
            f"node {node.name}: a slice of one element is not lowered; {remedies.SLICE_BEFORE.format(node.name)}"
        )
    for dim, extent in enumerate(axes.shapes[old]):
        if dim != along or len(found) == extent:
            yield (old, dim), (new, dim)
        else:
            axes.slices[old, dim] = (new, dim), found.start


def _pad(axes: Axes, node: Node, old: str, new: str) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions around which there are no zeros; notes the others as slices that begin before the tensor."""
    for dim, (low, high) in enumerate(zip(node.attr("low", tuple), node.attr("high", tuple), strict=True)):
        if low or high:
            axes.slices[old, dim] = (new, dim), -low
        else:
            yield (old, dim), (new, dim)


def relate_axes(graph: Graph, kind: Kind, sums: tuple[str, ...]) -> Axes:
    """Unify the dimensions of a graph of which every node is needed; no axis has a role yet.

    Raises LoweringError for a reshape that cuts axes across each other.
    """
    axes = Axes(graph, kind, sums)
    views: list[tuple[Node, str, str]] = []
    for node in graph.nodes:
        axes.add(node.name, node.name)
        if node.op not in VIEWS:
            views.extend(_add_uses(axes, node))
        elif input_path(graph, node.name) is None:
            views.append((node, node.tensors[0], node.name))
        elif is_copied(graph, node):
            views.extend(_copied(axes, node))
    pairs = [pair for node in graph.nodes for pair in _related(axes, node)]
    for node in (node for node in graph.nodes if f"{node.name}:0" in axes.paths and is_copied(graph, node)):
        pairs += [((node.name, dim), (f"{node.name}:0", dim)) for dim in range(node.type.rank)]
    for node, old, new in views:
        if node.op == "transpose":
            pairs += [((old, source), (new, dim)) for dim, source in enumerate(node.attr("perm", tuple))]
        if node.op == "slice":
            pairs += _slice(axes, node, old, new)
        if node.op == "pad":
            pairs += _pad(axes, node, old, new)
    for pair in pairs:
        axes.same.union(*((use, dim % len(axes.shapes[use])) for use, dim in pair))
    for node, old, new in views:
        if node.op == "reshape":
            _regroup(axes, node.name, old, new)
    for node in (node for node in graph.nodes if node.op == "dequantize"):
        _group(axes, node)
    return axes
