"""Unification of the graph's dimensions into axes, also through reshapes, which split and merge them.

A dimension is a row of *atoms*, outer ones first; a reshape regroups atoms and costs nothing. Every use of an
input, also behind reshapes and transposes of it, has axes of its own: so `x @ x.T` has two row axes, and one
tensor may be query, key and value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from networkx.utils import UnionFind

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.kinds import (
    NORMS,
    QUANTIZING,
    Kind,
)
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
    unsigned and less a `zero`. Of the `single` dimensions, each with its extent and stride, one element is seen, for
    which everything begins at an `offset` in elements.
    """

    tensor: str
    dtype: DType
    constant: bool
    rank: int
    dims: tuple[RawDim, ...]
    chosen: tuple[Dim, str] | None = None
    zero: int | None = None
    single: tuple[tuple[int, int, int], ...] = ()
    offset: int = 0

    def along(self, kept: Callable[[RawDim], bool]) -> RawView:
        """The view less dimensions that are not `kept`: of one element, along which nothing varies."""
        chosen = self.chosen and self.chosen[0]
        return replace(self, dims=tuple(dim for dim in self.dims if dim.axis == chosen or kept(dim)))

    @property
    def alone(self) -> frozenset[int]:
        """The dimensions of which one element is seen."""
        return frozenset(dim for dim, _, _ in self.single)

    def atoms(self, dim: int) -> tuple[Dim, ...]:
        """The axes that a dimension of the tensor is made of, outer ones first; none of one that is a slice, or of
        which an axis has a part together with another dimension.
        """
        own = [one for one in self.dims if dim in one.origin and dim not in self.alone]
        partly = any(one.cutout or one.origin != (dim,) for one in own)
        return () if partly else tuple(one.axis for one in own)


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
    grouped: dict[str, str] = field(default_factory=dict)
    in_rows: dict[Dim, tuple[Dim, int]] = field(default_factory=dict)

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
        """The atoms of a dimension, outer ones first; of one that counts groups of an axis that axis's."""
        own = use, dim % len(self.shapes[use])
        counted = self.counted(own)
        return self.leaves(counted[0] if counted else own)

    def counted(self, own: Dim) -> tuple[Dim, int] | None:
        """The axis of which a dimension counts groups, and a group's length; None if it counts none."""
        if not self.in_rows:
            return None
        return next((found for dim, found in self.in_rows.items() if self.same[dim] == self.same[own]), None)

    def reduced(self, node: Node) -> tuple[str, int]:
        """The operand of a node that reduces, and the dimension that it reduces."""
        use = self.grouped.get(node.name) or self.use(node, 0)
        last = node.op in (*NORMS, *QUANTIZING)
        return use, len(self.shapes[use]) - 1 if last else node.attr("axis", int)

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
                extent = self.extents[atom]
                step = math.prod(self.extents[inner] for inner in atoms[place + 1 :])
                if counted := self.counted((end, dim)):
                    dims.append(RawDim(atom, self.shapes[end][dim], stride, (dim,), (0, 1), each=counted[1]))
                    continue
                if found := self.part_of(atom, piece):
                    taken[atom] = found
                if atom in taken:
                    whole = 0 if place else self.shapes[end][dim]
                    dims += self._slice(taken, *taken[atom], stride * step, dim, step, whole, extent)
                else:
                    dims.append(RawDim(atom, extent, stride * step, (dim,), (extent if place else 0, step)))
        remedy = remedies.SLICE_COPY if given else remedies.OWN_OUTPUTS
        one_row = self.one_row or self._row_of_slice(dims)
        dims, alone = _folded(dims, self.shapes[end], path[-1], remedy, given=given is not None)
        if one_row is not None and any(dim.extent > 1 for dim in dims):
            pitch = -(-math.prod(self.shapes[end]) // PITCH) * PITCH
            dims.append(RawDim(one_row, 1, pitch, (), (0, 1)))
        constant = given is not None and given.constant
        single = tuple((d, self.shapes[end][d], strides[d]) for d in sorted({dim.origin[0] for dim in alone}))
        offset = sum(dim.stride * dim.cutout[0] for dim in alone if dim.cutout)
        dtype = self.graph.type_of(path[-1]).dtype
        return RawView(path[-1], dtype, constant, len(strides), tuple(dims), single=single, offset=offset)

    def _row_of_slice(self, dims: Sequence[RawDim]) -> Dim | None:
        """The axis of a slice that has one row of a tensor. What lies along the row then begins further inside; the
        row is one of one element, as where no tensor has any.

        None where that is what streams: products are made of the slice as it is, or of a copy.
        """
        return next(
            (
                dim.axis
                for dim, inner in pairwise(dims)
                if dim.cutout
                and dim.extent == 1
                and self.roles.get(dim.axis) is Role.ROW
                and self.roles.get(inner.axis) is not Role.STREAM
            ),
            None,
        )

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
            if not place and length % inner and start // inner + self.extents[leaf] > length // inner:
                raise LoweringError(
                    f"node {axis[0]}: zeros behind {length} elements are seen in rows of {inner}; let them begin "
                    "where such a row does"
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


def _folded(
    dims: Sequence[RawDim], shape: tuple[int, ...], tensor: str, remedy: str, *, given: bool
) -> tuple[list[RawDim], list[RawDim]]:
    """The dimensions of a tensor of this shape; where a slice has one element of a dimension, the next one begins
    further inside instead. Innermost ones of one element, within which nothing lies, follow apart, and so do those
    of a tensor that is `given` in front of another one. Raises LoweringError, with the remedy, for another one, and
    for an element outside of the tensor.
    """
    ahead, kept, alone = list(dims), list[RawDim](), list[RawDim]()
    while ahead:
        dim = ahead.pop(0)
        if dim.cutout is None or dim.extent > 1:
            kept.append(dim)
            continue
        inner, place = ahead[0] if ahead else None, dim.cutout[0]
        if (both := _joined(dim, inner, shape)) is not None:
            ahead[0] = both
            continue
        together = inner and inner.cutout is None and dim.stride == inner.extent * inner.stride
        split = inner is not None and inner.origin == dim.origin
        folds = inner is not None and together
        innermost = all(one.cutout and one.extent == 1 for one in ahead)
        apart = given and bool(dim.cutout[1]) and inner is not None and inner.cutout is not None
        if not 0 <= place < dim.cutout[2] or not (folds or innermost or apart):
            raise LoweringError(
                f"tensor {tensor}: one element of dimension {dim.origin[0]} is read or written, and no whole "
                f"dimension lies next to it in memory; {remedy}"
            )
        if inner is None or not folds:
            alone.append(dim)
            continue
        ahead.pop(0)
        whole = dim.cutout[1] if split else dim.cutout[1] * shape[inner.origin[0]]
        ahead.insert(
            0,
            replace(
                inner,
                origin=inner.origin if split else dim.origin + inner.origin,
                part=(inner.extent if split else dim.part[0], inner.part[1]),
                cutout=(place * inner.extent, whole, (place + 1) * inner.extent),
            ),
        )
    return kept, alone


def _joined(dim: RawDim, inner: RawDim | None, shape: tuple[int, ...]) -> RawDim | None:
    """One element of a dimension and one of the next as one element of both together; None where the slice has more
    than one, or they do not lie together.
    """
    if inner is None or dim.cutout is None or inner.cutout is None or inner.extent > 1:
        return None
    whole = shape[inner.origin[0]]
    together = inner.cutout[1] == whole and dim.stride == whole * inner.stride
    if not (together and dim.cutout[1]) or dim.origin == inner.origin:
        return None
    place, of = dim.cutout[0] * whole + inner.cutout[0], dim.cutout[1] * whole
    return replace(inner, origin=dim.origin + inner.origin, part=dim.part, cutout=(place, of, place + 1))


def regroup(axes: Axes, node: str, old: str, new: str) -> None:
    """Pair the atoms of a reshape's operand and result, outer ones first; the larger of two is cut."""
    sides = [[(use, dim) for dim in reversed(range(len(axes.shapes[use])))] for use in (old, new)]
    while all(sides):
        for side in sides:
            side[-1:] = reversed(axes.leaves(side[-1]))
        sizes = [axes.extents[side[-1]] for side in sides]
        small, large = sorted(sizes)
        ones = [_ones_ahead(axes, side) for side in sides]
        if (
            large == 1 and ones[0] != ones[1]
        ):  # of several ones the inner ones stay: keys, of which there is but one
            sides[ones.index(max(ones))].pop()
        elif small == large:
            axes.same.union(*(side.pop() for side in sides))
        elif small == 1:  # an axis of extent one comes or goes
            sides[sizes.index(1)].pop()
        elif large % small:
            raise LoweringError(
                f"node {node}: the reshape neither splits axes nor merges whole ones; its axes have no common parts"
            )
        else:
            axes.cut(sides[sizes.index(large)][-1], large // small)


def _ones_ahead(axes: Axes, side: Sequence[Dim]) -> int:
    """How many axes of one element come next on a side of a reshape, which has the outermost ones last."""
    leaves = (leaf for axis in reversed(side) for leaf in axes.leaves(axis))
    return sum(1 for _ in itertools.takewhile(lambda leaf: axes.extents[leaf] == 1, leaves))
