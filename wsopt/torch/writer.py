"""Writes nodes of our graphs for values of an FX graph: shapes are aligned, types are inferred, names are given."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from wsopt.graph.infer import OpFault
from wsopt.graph.ops import OPS
from wsopt.graph.types import AttrValue, DType, Node, Operand, TensorType
from wsopt.torch.axes import axes_for, merged_before, over, without_ones
from wsopt.torch.broadcasting import aligned, batch_of
from wsopt.torch.copies import Copies
from wsopt.torch.integers import Integers
from wsopt.torch.sizes import changes
from wsopt.torch.values import (
    Atom,
    Dim,
    Shape,
    Untaken,
    Value,
    plain_dims,
    regrouped,
    repeated_dims,
)

NUMBERS = {
    bool: TensorType((), DType.BOOL),
    int: TensorType((), DType.I32),
    float: TensorType((), DType.F32),
}


_IN_F32 = (
    "a product of f32, which torch does not multiply in tf32, as kernels do: "
    'torch.set_float32_matmul_precision("high") lets both'
)


@dataclass(slots=True)
class Writer:
    """Nodes written so far, by name and in order, and the types of all tensors. `group` is the FX node that they are
    written for, and `shape` the shape of its result; `groups` says so of each node. `copies` says which of those that
    repeat elements are values like others. Products of f32 have a `precision`; without one there are none.
    """

    types: dict[str, TensorType] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    group: str = ""
    shape: Shape = ()
    integers: Integers = field(default_factory=Integers)
    copies: Copies = field(default_factory=Copies)
    precision: str = "ieee"
    _counts: Counter[str] = field(default_factory=Counter)

    def input(self, name: str, shape: Shape, dtype: DType) -> Value:
        """A tensor that comes from outside, once."""
        self.types.setdefault(name, TensorType(shape, dtype))
        return Value(name, plain_dims(shape))

    def dtype(self, value: Value) -> DType:
        """The element type of a value; of a number the one that it has among operands."""
        if isinstance(value.tensor, str):
            return self.types[value.tensor].dtype
        return NUMBERS[type(value.tensor)].dtype

    # --- one node -----------------------------------------------------------------------------------------

    def node(self, op: str, operands: Sequence[Operand], **given: AttrValue) -> str:
        """Write a node; its name. Raises Untaken for operands that the op does not take."""
        spec = OPS[op]
        for role, operand in zip(spec.operands, operands, strict=False):
            if not isinstance(operand, str) and (role not in spec.scalars or isinstance(operand, bool)):
                raise Untaken(f"{op} of a {'truth value' if isinstance(operand, bool) else 'number'}")
        types = tuple(self.types[x] if isinstance(x, str) else NUMBERS[type(x)] for x in operands)
        attrs = {attr.name: given.get(attr.name, attr.default) for attr in spec.attrs}
        try:
            result, full = spec.infer(types, attrs)
        except OpFault as fault:
            raise Untaken("; ".join(message for _, message in fault.faults)) from fault
        name = f"{self.group}__{self._counts[self.group]}"
        self.integers.enter(name, op, operands, self.types, result)
        self._counts[self.group] += 1
        self.nodes[name] = Node(name, op, tuple(operands), tuple(sorted(full.items())), result)
        self.types[name], self.groups[name] = result, self.group
        return name

    def forget(self, names: Collection[str]) -> None:
        """Leave out nodes that nothing reads."""
        for name in names:
            del self.nodes[name], self.groups[name], self.types[name]

    def _tensor(self, value: Value) -> str:
        """The name of a value's tensor. Untaken for a number."""
        if not isinstance(value.tensor, str):
            raise Untaken("a number in the place of a tensor")
        return value.tensor

    def _shaped(self, value: Value, shape: Shape, least: int = 1) -> Operand:
        """A value's tensor in a shape, but for extents of 1 in front of the `least` last axes; a number as it is."""
        if not isinstance(value.tensor, str):
            return value.tensor
        own = self.types[value.tensor].shape
        missing = len(shape) - len(own)
        if missing >= 0 and len(own) >= min(least, len(shape)) and (1,) * missing + own == shape:
            return value.tensor
        bare = without_ones(shape, least)
        return value.tensor if own == bare else self._reshaped(value.tensor, bare)

    def _reshaped(self, tensor: str, shape: Shape) -> str:
        """A tensor in another shape. Axes that are merged behind a transpose are merged before it if they can be: an
        input that lies so is read in any shape, and what was transposed is in none other.
        """
        node = self.nodes.get(tensor)
        if node is not None and node.op == "transpose":
            source = self._before(node)
            found = merged_before(self.types[node.tensors[0]].shape, node.attr("perm", tuple), shape)
            if source is not None and found is not None:
                return self.node("transpose", [self._reshaped(source, found[0])], perm=found[1])
        return self.node("reshape", [tensor], shape=shape)

    def _before(self, node: Node) -> str | None:
        """What a transpose is of, in any shape; None where only the FX node has that which it is written for."""
        group, (source,) = self.groups[node.name], node.tensors
        while self.groups.get(source) == group and self.nodes[source].op == "reshape":
            (source,) = self.nodes[source].tensors
        return None if self.groups.get(source) == group != self.group else source

    def laid_out(self, value: Value, dims: Sequence[int]) -> tuple[Value, str]:
        """The value with one atom in each of these dimensions, none of which may be repeated, and its tensor with an
        axis for every atom. Untaken for a number.
        """
        value = self._merged(value, [dim % len(value.dims) for dim in dims])
        shaped = self._shaped(value, value.held, len(value.held))
        return value, self._tensor(replace(value, tensor=shaped))

    # --- views --------------------------------------------------------------------------------------------

    def view(self, value: Value, shape: Sequence[int]) -> Value:
        """The value in another shape of as many elements."""
        if isinstance(value.tensor, str):
            try:
                return regrouped(value, shape, self.types[value.tensor].shape)
            except Untaken:
                if not value.whole:
                    raise
            return Value(value.tensor, plain_dims(shape))
        return Value(value.tensor, repeated_dims(shape))

    def expand(self, value: Value, shape: Sequence[int]) -> Value:
        """The value with dimensions of extent 1, or new ones in front, repeated. -1 leaves a dimension."""
        new = len(shape) - len(value.dims)
        dims: list[Dim] = [(Atom(extent, extent > 1),) for extent in shape[:new]]
        for dim, old, extent in zip(value.dims, value.shape, shape[new:], strict=True):
            dims.append(dim if extent in (-1, old) else (Atom(extent, True),))
        return replace(value, dims=tuple(dims))

    def permute(self, value: Value, perm: Sequence[int]) -> Value:
        """The dimensions in another order."""
        perm = [axis % len(value.dims) for axis in perm]
        dims = tuple(value.dims[axis] for axis in perm)
        first, axes = 0, list[list[int]]()
        for dim in value.dims:
            axes.append(list(range(first, first + len(dim))))
            first += len(dim)
        order = tuple(axis for dim in perm for axis in axes[dim])
        held = value.held
        moved = [axis for axis in order if held[axis] > 1]
        if not isinstance(value.tensor, str) or moved == sorted(moved):
            return replace(value, dims=dims)
        tensor = self._shaped(value, held)
        # Extents of 1 that stand in front of the tensor's own axes are none of its axes.
        missing = len(held) - self.types[str(tensor)].rank
        if any(axis < missing for axis in order[missing:]):
            tensor, missing = self.node("reshape", [tensor], shape=held), 0
        kept = tuple(axis - missing for axis in order if axis >= missing)
        return Value(self.node("transpose", [tensor], perm=kept), dims)

    def slice(self, value: Value, dim: int, start: int, stop: int, step: int = 1) -> Value:
        """Every `step`-th element along a dimension, from `start` up to `stop`."""
        if changes(value.shape[dim], start, stop):
            raise Untaken("a part along an extent that changes from call to call")
        extent = len(range(start, stop, step))
        if all(atom.held == 1 for atom in value.dims[dim]):
            return replace(value, dims=_replaced(value.dims, dim, (Atom(extent, extent > 1),)))
        found = self._merged(value, [dim])
        tensor, axis = self._with_axis(found, dim)
        dims = _replaced(found.dims, dim, (Atom(extent),))
        return Value(self.node("slice", [tensor], axis=axis, start=start, stop=stop, step=step), dims)

    def rows_of(self, table: Value, indices: Value) -> Value:
        """The rows of a table of two dimensions that indices name."""
        table = self._merged(table, [0, 1])
        chosen = self._merged(indices, range(len(indices.dims)))
        operands = [
            self._tensor(replace(one, tensor=self._shaped(one, one.held, len(one.held))))
            for one in (table, chosen)
        ]
        return Value(self.node("gather", operands, axis=0), (*chosen.dims, table.dims[1]))

    def pad(self, value: Value, ends: Sequence[tuple[int, int]]) -> Value:
        """Zeros before and behind the last dimensions, so many of each, the last dimension's first."""
        chosen = [len(value.dims) - 1 - place for place, end in enumerate(ends) if any(end)]
        value = self._merged(value, chosen)
        tensor = self._tensor(replace(value, tensor=self._shaped(value, value.held, len(value.held))))
        low, high, dims = [0] * len(value.held), [0] * len(value.held), list(value.dims)
        for dim in chosen:
            axis, (before, behind) = sum(map(len, value.dims[:dim])), ends[len(value.dims) - 1 - dim]
            low[axis], high[axis] = before, behind
            dims[dim] = (Atom(value.shape[dim] + before + behind),)
        found = self.node("pad", [tensor], low=tuple(low), high=tuple(high))
        return Value(found, tuple(dims))

    def concat(self, values: Sequence[Value], dim: int) -> Value:
        """Values one behind the other along a dimension."""
        rank = len(values[0].dims)
        if not 2 <= len(values) <= len(OPS["concat"].operands):
            raise Untaken(f"{len(values)} tensors one behind the other")
        values = [self._merged(value, [dim]) for value in values]
        alike, dims = aligned(
            [replace(x, dims=_replaced(x.dims, dim, (Atom(1),))) for x in values], self.nodes
        )
        dtype = next((self.dtype(one) for one in values if isinstance(one.tensor, str)), DType.F32)
        own = [value.dims[dim] for value in values]
        found = [
            self._spread(replace(x, dims=_replaced(x.dims, dim, y)), _replaced(dims, dim, y), dtype)
            for x, y in zip(alike, own, strict=True)
        ]
        axis = sum(len(one) for one in found[0].dims[:dim])
        operands = [self._tensor(replace(x, tensor=self._shaped(x, x.held, rank))) for x in found]
        if {self.types[x].rank for x in operands} != {len(found[0].held)}:
            operands = [self.node("reshape", [x], shape=y.held) for x, y in zip(operands, found, strict=True)]
        extent = sum(value.shape[dim] for value in values)
        return Value(self.node("concat", operands, axis=axis), _replaced(found[0].dims, dim, (Atom(extent),)))

    def _spread(self, value: Value, dims: Sequence[Dim], dtype: DType) -> Value:
        """The value with elements of its own wherever these dimensions repeat none, as a choice at every index."""
        if value.dims == tuple(dims):
            return value
        self.copies.see_through(value.dims)
        held = tuple(atom.held for dim in dims for atom in dim)
        axis = next(
            at for at, (own, wanted) in enumerate(zip(value.held, held, strict=True)) if own != wanted
        )
        anywhere = self.node("greater_equal", [self.node("iota", [], shape=held, axis=axis), 0])
        chosen = self.node("where", [anywhere, self._shaped(value, value.held), 0.0])
        return self.cast(Value(chosen, tuple(dims)), dtype)

    def _with_axis(self, value: Value, dim: int) -> tuple[str, int]:
        """A value's tensor with an axis for each atom, and the axis of a dimension of one atom."""
        tensor = str(self._shaped(value, value.held))
        axis = sum(len(one) for one in value.dims[:dim])
        return tensor, axis - (len(value.held) - self.types[tensor].rank)

    # --- arithmetic ---------------------------------------------------------------------------------------

    def elementwise(self, op: str, *values: Value, **attrs: AttrValue) -> Value:
        """An elementwise operation, its operands broadcast as in NumPy."""
        alike, dims = aligned(values, self.nodes)
        runs = axes_for(alike, self.types, self.nodes)
        operands = [self._shaped(value, over(value.held, runs)) for value in alike]
        if not any(isinstance(operand, str) for operand in operands):
            raise Untaken(f"{op} of numbers alone")
        return Value(self.node(op, operands, **attrs), dims)

    def cast(self, value: Value, dtype: DType) -> Value:
        """The value in an element type; itself where it has that, and a number as it is."""
        if not isinstance(value.tensor, str) or self.types[value.tensor].dtype is dtype:
            return value
        return replace(value, tensor=self.node("cast", [value.tensor], dtype=dtype))

    def reduce(self, op: str, value: Value, dims: Sequence[int], keepdim: bool) -> Value:
        """A reduction over dimensions, in f32; over all where none are given."""
        rank = len(value.dims)
        chosen = sorted({dim % rank for dim in dims} if dims else range(rank), reverse=True)
        found = self._merged(value, chosen)
        for dim in chosen:
            tensor, axis = self._with_axis(found, dim)
            if axis < 0:  # an extent of 1 that the tensor does not have
                found = replace(found, dims=_replaced(found.dims, dim, (Atom(1),)))
                continue
            reduced = self.node(op, [tensor], axis=axis, keepdims=True)
            found = Value(reduced, _replaced(found.dims, dim, (Atom(1),)))
        if keepdim:
            return found
        left = tuple(one for dim, one in enumerate(found.dims) if dim not in chosen)
        if not isinstance(found.tensor, str) or chosen == []:
            return replace(found, dims=left)
        return self._squeezed(found, left)

    def _squeezed(self, value: Value, dims: tuple[Dim, ...]) -> Value:
        """A reduced value without the dimensions of extent 1; a reduction of one drops it itself."""
        bare = Value(value.tensor, dims)
        node = self.nodes.get(str(value.tensor))
        if len(value.dims) - len(dims) > 1 or node is None or not node.op.startswith("reduce_"):
            return bare
        self.forget([node.name])
        return Value(self.node(node.op, node.inputs, axis=node.attr("axis", int), keepdims=False), dims)

    def _merged(self, value: Value, chosen: Sequence[int]) -> Value:
        """The value with one atom in each of the chosen dimensions, none of which may be repeated."""
        dims = list(value.dims)
        for dim in chosen:
            if any(atom.repeated for atom in dims[dim]):
                raise Untaken("what goes along elements that are repeated")
            dims[dim] = (Atom(math.prod(atom.extent for atom in dims[dim])),)
        return replace(value, dims=tuple(dims))

    def matmul(self, a: Value, b: Value, *, transpose_b: bool = False, accumulate: str = "f32") -> Value:
        """Product of two values, [..., m, k] and [..., k, n]; leading dimensions broadcast. Sums are f32."""
        contracted = -1 if transpose_b else -2
        if any(not isinstance(one.tensor, str) and one.tensor == 0 for one in (a, b)):
            return number(0.0, _product_shape(a.shape, b.shape[:-2], b.shape[-2 if transpose_b else -1]))
        a, b = self._merged(a, [len(a.dims) - 1]), self._merged(b, [len(b.dims) - 2, len(b.dims) - 1])
        rank = max(len(a.dims), len(b.dims)) - 2
        (first, second), batch = aligned((batch_of(a, rank), batch_of(b, rank)), self.nodes)
        rows = a.dims[-2]
        # Rows of several atoms are batches of rows, of which a kernel makes rows again.
        outer = rows[:-1] if len(rows) > 1 else ()
        if any(atom.repeated for atom in rows):
            raise Untaken("a product whose rows are repeated")
        left = (*first.held, *(atom.extent for atom in rows), a.shape[-1])
        right = (*second.held, *(1 for _ in outer), *b.shape[-2:])
        precision = self.precision if self.dtype(a) is DType.F32 else None
        if not precision and self.dtype(a) is DType.F32:
            raise Untaken(_IN_F32)
        operands = [self._shaped(a, left, 2), self._shaped(b, right, 2)]
        name = self.node(
            "matmul", operands, transpose_b=transpose_b, precision=precision, accumulate=accumulate
        )
        column = b.dims[-2] if contracted == -1 else b.dims[-1]
        return Value(name, (*batch, rows, column))

    def grouped_matmul(self, a: Value, b: Value, offsets: Value) -> Value:
        """Product of rows [m, k] that offsets cut into groups, each with its own of [groups, k, n]. Sums are f32."""
        operands = [
            self._shaped(self._merged(one, range(len(one.dims))), one.shape, len(one.dims))
            for one in (a, b, offsets)
        ]
        name = self.node("grouped_matmul", operands, transpose_b=False, precision=None, accumulate="f32")
        return Value(name, ((Atom(a.shape[0]),), (Atom(b.shape[2]),)))

    def softmax(self, value: Value) -> Value:
        """The softmax along the last dimension; a row that is all -inf gives zeros."""
        value = self._merged(value, [len(value.dims) - 1])
        tensor = self._shaped(value, value.held)
        return replace(value, tensor=self.node("softmax", [tensor]))

    def index(self, shape: Shape, axis: int) -> Value:
        """The index along a dimension, the same for all others."""
        dims = tuple((Atom(n, i != axis and n > 1),) for i, n in enumerate(shape))
        own = tuple(n if i == axis else 1 for i, n in enumerate(shape))
        return Value(self.node("iota", [], shape=own, axis=axis), dims)


def number(value: float, shape: Sequence[int] = ()) -> Value:
    """A number as a value of any shape. Untaken for an extent that changes."""
    if changes(value):
        raise Untaken("a number that is an extent, which changes from call to call")
    return Value(value, repeated_dims(shape))


def _product_shape(a: Shape, batch_of_b: Shape, columns: int) -> Shape:
    """The shape of a product, whose leading dimensions broadcast."""
    rank = max(len(a) - 2, len(batch_of_b))
    batches = [(1,) * (rank - len(batch)) + batch for batch in (a[:-2], batch_of_b)]
    return (*map(max, *batches), a[-2], columns)


def _replaced(dims: tuple[Dim, ...], place: int, dim: Dim) -> tuple[Dim, ...]:
    return (*dims[:place], dim, *dims[place + 1 :])
