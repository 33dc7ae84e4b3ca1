"""Shape and dtype rules of the operations: a node's result type, or the reason why it has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from wsopt.graph.extents import Extent, Terms, difference, is_settled, summed, terms_of, worded
from wsopt.graph.types import DType, TensorType

MAX_EXTENT = 2**31 - 1
MAX_ELEMENTS = 2**48
MAX_RANK = 16
_LENGTHS = "nmklij"
"""Names for the length of a slice, of which a graph's dimensions have some."""
MATMUL_DTYPES = (DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2, DType.I8, DType.F32)

Attrs = Mapping[str, Any]
Shape = tuple[int, ...]
Types = tuple[TensorType, ...]
ShapeRule = Callable[[Types, Attrs], Shape]
DTypeRule = Callable[[Types, Attrs], DType]


class OpFault(Exception):
    """Operands or attributes that an operation cannot take.

    Each fault is a place below the node (`inputs/1`, `attrs/axis`) and what is wrong with it.
    """

    def __init__(self, *faults: tuple[str, str]) -> None:
        self.faults = faults
        super().__init__("; ".join(f"{place}: {message}" for place, message in faults))


def show(shape: Shape) -> str:
    """A shape as it stands in the file."""
    return str(list(shape))


def tensor_fault(tensor: TensorType) -> str | None:
    """Why a tensor of this type cannot be, or None: its size, and the packing of i4."""
    if tensor.size > MAX_ELEMENTS:
        return f"shape {show(tensor.shape)} has {tensor.size} elements; at most 2**48 are allowed"
    if tensor.dtype is DType.I4 and (not tensor.shape or tensor.shape[-1] % 2):
        return f"shape {show(tensor.shape)}: i4 is packed two to a byte, so its last extent has to be even"
    return None


# --- shapes ---------------------------------------------------------------------------------------------


def broadcast_shapes(first: Shape, second: Shape) -> Shape | None:
    """The shape two tensors broadcast to as in NumPy, or None."""
    rank = max(len(first), len(second))
    padded = [(1,) * (rank - len(shape)) + shape for shape in (first, second)]
    result = []
    for a, b in zip(*padded, strict=True):
        if a != b and 1 not in (a, b):
            return None
        result.append(b if a == 1 else a)
    return tuple(result)


_BROADCAST = ": aligned at the last axis, extents are equal or one of them is 1; reshape or transpose one"


def broadcast(types: Types, _attrs: Attrs) -> Shape:
    """All operands broadcast together."""
    shape: Shape = ()
    for index, tensor in enumerate(types):
        joined = broadcast_shapes(shape, tensor.shape)
        if joined is None:
            others = show(types[0].shape) if index == 1 else f"{show(shape)} (the operands before it)"
            told = f"shapes {others} and {show(tensor.shape)} do not broadcast"
            raise OpFault(("inputs", f"{told}{_BROADCAST}"))
        shape = joined
    return shape


def same_shape(types: Types, _attrs: Attrs) -> Shape:
    """The result has the first operand's shape."""
    return types[0].shape


def matmul_shape(types: Types, attrs: Attrs) -> Shape:
    """[..., m, k] times [..., k, n] gives [..., m, n], after the transposes."""
    flat = [
        (f"inputs/{index}", f"shape {show(tensor.shape)}; matmul wants at least two axes")
        for index, tensor in enumerate(types)
        if tensor.rank < 2
    ]
    if flat:
        raise OpFault(*flat)
    a, b = (tensor.shape for tensor in types)
    m, k = (a[-1], a[-2]) if attrs["transpose_a"] else (a[-2], a[-1])
    k_of_b, n = (b[-1], b[-2]) if attrs["transpose_b"] else (b[-2], b[-1])
    faults = []
    if k != k_of_b:
        told = f"shapes {show(a)} and {show(b)}: the contracted extents are {k} and {k_of_b}"
        flags = ", ".join(f"{key} is {str(attrs[key]).lower()}" for key in ("transpose_a", "transpose_b"))
        faults.append(("inputs", f"{told} ({flags}); they have to be equal"))
    leading = broadcast_shapes(a[:-2], b[:-2])
    if leading is None:
        told = f"shapes {show(a)} and {show(b)}: the leading axes do not broadcast"
        faults.append(("inputs", f"{told}{_BROADCAST}"))
    if faults or leading is None:
        raise OpFault(*faults)
    return (*leading, m, n)


def checked_axis(attrs: Attrs, shape: Shape) -> int:
    """The attribute `axis`, counted from the front. Raises OpFault when it is out of range."""
    axis, rank = int(attrs["axis"]), len(shape)
    if not -rank <= axis < rank:
        allowed = f"-{rank} to {rank - 1}" if rank else "none: a tensor of rank 0 has no axis"
        raise OpFault(("attrs/axis", f"axis {axis} of shape {show(shape)}; allowed: {allowed}"))
    return axis % rank


def axis_shape(types: Types, attrs: Attrs) -> Shape:
    """The operand's shape, of which `axis` has to be an axis (softmax)."""
    checked_axis(attrs, types[0].shape)
    return types[0].shape


def reduced_shape(types: Types, attrs: Attrs) -> Shape:
    """The operand's shape without `axis`, or with extent 1 there."""
    shape = types[0].shape
    axis = checked_axis(attrs, shape)
    return shape[:axis] + ((1,) if attrs["keepdims"] else ()) + shape[axis + 1 :]


def iota_shape(_types: Types, attrs: Attrs) -> Shape:
    """The attribute `shape`, of which `axis` has to be an axis."""
    shape: Shape = attrs["shape"]
    checked_axis(attrs, shape)
    return shape


def reshaped(types: Types, attrs: Attrs) -> Shape:
    """The attribute `shape`, with as many elements as the operand."""
    shape: Shape = attrs["shape"]
    old = types[0]
    if math.prod(shape) != old.size:
        counts = f"{old.size} elements cannot become {show(shape)} with {math.prod(shape)}"
        told = f"shape {show(old.shape)} with {counts}; the new extents multiply to {old.size}"
        raise OpFault(("attrs/shape", told))
    return shape


def transposed(types: Types, attrs: Attrs) -> Shape:
    """The operand's extents in the order of `perm`."""
    perm, shape = attrs["perm"], types[0].shape
    if sorted(perm) != list(range(len(shape))):
        allowed = f"each of 0 to {len(shape) - 1} once" if shape else "[] for rank 0"
        raise OpFault(("attrs/perm", f"{show(perm)} for shape {show(shape)}; allowed: {allowed}"))
    return tuple(shape[axis] for axis in perm)


def places(attrs: Attrs, extent: int) -> range:
    """The places that a slice takes of an axis of so many elements."""
    return range(*_ends(attrs, extent), attrs["step"])


def _ends(attrs: Attrs, extent: int) -> tuple[int, int]:
    """Where a slice begins and ends, counted from the front: `stop` is the axis's end where it is not given."""
    start, stop = attrs["start"], extent if attrs["stop"] is None else attrs["stop"]
    return start + extent * (start < 0), stop + extent * (stop < 0)


def sliced(types: Types, attrs: Attrs) -> Shape:
    """The operand's shape, with as many elements along `axis` as the slice has. It begins and ends within the axis,
    and has one at least. Of named extents that is judged at the ends of their ranges, where they are numbers.
    """
    shape, axis = types[0].shape, checked_axis(attrs, types[0].shape)
    ends = _ends(attrs, shape[axis])
    if any(isinstance(one, Extent) for one in (*ends, shape[axis])):
        return (*shape[:axis], _named_length(attrs, *ends, shape[axis]), *shape[axis + 1 :])
    found = places(attrs, shape[axis])
    for key, place, most in (("start", found.start, shape[axis] - 1), ("stop", found.stop, shape[axis])):
        if not 0 <= place <= most:
            told = f"{attrs[key]} of an axis of {shape[axis]} elements; allowed: {-shape[axis]} to {most}"
            raise OpFault((f"attrs/{key}", told))
    if not found:
        told = f"{attrs['stop']} with a start of {attrs['start']}: the slice is empty; stop lies behind start"
        raise OpFault(("attrs/stop", told))
    return (*shape[:axis], len(found), *shape[axis + 1 :])


def _named_length(attrs: Attrs, start: int, stop: int, extent: int) -> int:
    """How many elements a slice has of which an end, or the axis, is a named extent: an extent itself."""
    for key, most, least in (("start", extent, start), ("stop", extent, stop), ("stop", stop, start)):
        if not is_settled(difference(most, least)):
            told = f"{least} cannot be held against {most} at all extents, as a dimension is multiplied by itself"
            raise OpFault((f"attrs/{key}", f"{told}; let a dimension of its own be that product"))
    left, step = difference(stop, start), attrs["step"]
    key = "stop" if attrs["stop"] is not None else "start"
    if all(times < 0 for _, times in left):
        raise OpFault((f"attrs/{key}", f"the slice from {start} to {stop} is empty"))
    if any(product and times % step for product, times in left):
        told = f"a step of {step} through {worded(left)} elements; let them be {step} times a dimension"
        raise OpFault(("attrs/step", told))
    terms = tuple((product, -(-times // step)) for product, times in left)
    if any(times < 0 for _, times in terms):
        raise OpFault((f"attrs/{key}", _no_length(attrs, left, start, difference(extent, stop))))
    return summed(terms, -((int(start) - int(stop)) // step))


def _no_length(attrs: Attrs, left: Terms, start: int, beyond: Terms) -> str:
    """Why a difference is the length of no slice, and how to say a slice of such a length; `beyond` it are so many
    elements of the axis.
    """
    names = {name for product, _ in (*left, *beyond) for name in product}
    own = next(name for name in _LENGTHS if name not in names)
    length = Extent((((own,), 1),), 1)
    if attrs["start"] < 0:
        axis = worded(terms_of(length + -attrs["start"]))
        remedies = [f"the axis have {axis} elements", f"the slice begin at {own}"]
    else:
        axis = worded(terms_of(summed((*terms_of(length + start), *beyond), 0)))
        remedies = [f"the axis have {axis} elements"] if all(times > 0 for _, times in beyond) else []
        if attrs["stop"] is not None and attrs["stop"] >= 0:
            remedies.append(f'the stop be "{worded(terms_of(length + start))}"')
    told = f"{worded(left)} elements: an extent is no difference; let {own} be a dimension"
    return f"{told}, and {' and '.join(remedies)}"


def joined(types: Types, attrs: Attrs) -> Shape:
    """The operands' shape, with the sum of their extents along `axis`."""
    shape, axis = types[0].shape, checked_axis(attrs, types[0].shape)
    faults = [
        (f"inputs/{index}", f"shape {show(one.shape)} differs from {show(shape)} beside axis {axis}")
        for index, one in enumerate(types)
        if len(one.shape) != len(shape)
        or any(a != b for dim, (a, b) in enumerate(zip(one.shape, shape, strict=True)) if dim != axis)
    ]
    if faults:
        raise OpFault(*faults)
    return (*shape[:axis], sum(one.shape[axis] for one in types), *shape[axis + 1 :])


def padded(types: Types, attrs: Attrs) -> Shape:
    """The operand's shape with `low` elements before and `high` behind those of every axis."""
    shape = types[0].shape
    faults = [
        (
            f"attrs/{key}",
            f"{show(attrs[key])} for shape {show(shape)}; allowed: {len(shape)} numbers, one an axis",
        )
        for key in ("low", "high")
        if len(attrs[key]) != len(shape)
    ]
    if faults:
        raise OpFault(*faults)
    return tuple(sum(axis) for axis in zip(attrs["low"], shape, attrs["high"], strict=True))


def gathered(types: Types, attrs: Attrs) -> Shape:
    """The first operand's shape, with that of the indices in the place of `axis`."""
    shape, axis = types[0].shape, checked_axis(attrs, types[0].shape)
    return (*shape[:axis], *types[1].shape, *shape[axis + 1 :])


def norm_shape(types: Types, _attrs: Attrs) -> Shape:
    """The operand's shape; weight and bias broadcast to it and do not enlarge it."""
    shape = types[0].shape
    if not shape:
        raise OpFault(("inputs/0", "rank 0; a norm over the last axis wants at least one axis"))
    faults = [
        (
            f"inputs/{index}",
            f"shape {show(tensor.shape)} does not broadcast to {show(shape)}; weight and bias have one element for "
            f"each of the last axis: {show(shape[-1:])}",
        )
        for index, tensor in enumerate(types)
        if broadcast_shapes(shape, tensor.shape) != shape
    ]
    if faults:
        raise OpFault(*faults)
    return shape


# --- dtypes ---------------------------------------------------------------------------------------------


def gathered_dtype(types: Types, _attrs: Attrs) -> DType:
    """The first operand's; indices are i32."""
    want(types, lambda dtype: dtype is DType.I32, "i32: cast the indices", start=1)
    return types[0].dtype


def want(types: Types, allowed: Callable[[DType], bool], wanted: str, start: int = 0) -> None:
    """Raises OpFault for operands from the `start` on of types that are not allowed; `wanted` says which are."""
    faults = [
        (f"inputs/{index}", f"dtype {tensor.dtype.value}; wants {wanted}")
        for index, tensor in enumerate(types[start:], start=start)
        if not allowed(tensor.dtype)
    ]
    if faults:
        raise OpFault(*faults)


def want_numbers(types: Types, start: int = 0) -> None:
    """Raises OpFault for operands from the `start` on that are conditions."""
    want(types, lambda dtype: dtype is not DType.BOOL, "a number: cast it, or choose with where", start)


def real(types: Types, _attrs: Attrs) -> DType:
    """Numbers in, f32 out."""
    want_numbers(types)
    return DType.F32


def arithmetic(types: Types, _attrs: Attrs) -> DType:
    """Numbers in; i32 out if all are integers, f32 otherwise."""
    want_numbers(types)
    return DType.I32 if all(tensor.dtype.is_integer for tensor in types) else DType.F32


def comparison(types: Types, _attrs: Attrs) -> DType:
    """Numbers in, bool out."""
    want_numbers(types)
    return DType.BOOL


def logical(types: Types, _attrs: Attrs) -> DType:
    """Bools in, bool out."""
    want(types, lambda dtype: dtype is DType.BOOL, "bool: compare first")
    return DType.BOOL


def choice(types: Types, attrs: Attrs) -> DType:
    """A bool condition; two bools give bool, two numbers what arithmetic gives."""
    want(types[:1], lambda dtype: dtype is DType.BOOL, "bool: compare first")
    if all(tensor.dtype is DType.BOOL for tensor in types[1:]):
        return DType.BOOL
    want_numbers(types, start=1)
    return arithmetic(types[1:], attrs)


def same_dtype(types: Types, _attrs: Attrs) -> DType:
    """Moving data does no arithmetic, so the dtype stays."""
    return types[0].dtype


def one_dtype(types: Types, _attrs: Attrs) -> DType:
    """Moving data does no arithmetic, so the operands have one dtype, which stays."""
    want(types, lambda dtype: dtype is types[0].dtype, f"{types[0].dtype.value}, as the first: cast it")
    return types[0].dtype


def cast_dtype(_types: Types, attrs: Attrs) -> DType:
    """The attribute `dtype`."""
    dtype: DType = attrs["dtype"]
    return dtype


def index_dtype(_types: Types, _attrs: Attrs) -> DType:
    """Indices are i32."""
    return DType.I32


def matmul_dtype(types: Types, attrs: Attrs) -> DType:
    """Both operands of one tensor-core dtype; i8 sums are i32, all others f32."""
    allowed = " ".join(dtype.value for dtype in MATMUL_DTYPES)
    want(types, MATMUL_DTYPES.__contains__, f"one of {allowed}: declare an input so, cast what is computed")
    a, b = (tensor.dtype for tensor in types)
    if a is not b:
        told = f"dtypes {a.value} and {b.value}; the operands of matmul have one dtype"
        raise OpFault(("inputs", f"{told}: declare inputs alike, cast what is computed"))
    precision = attrs["precision"]
    if a is DType.F32 and precision is None:
        told = 'f32 operands want the attr precision: "tf32", which takes 10 fraction bits of them, or "ieee"'
        raise OpFault(("attrs", f"{told}; or declare inputs as f16 or bf16, cast what is computed"))
    if a is not DType.F32 and precision is not None:
        told = f'"{precision}" is for f32 operands; these are {a.value}, which have one precision'
        raise OpFault(("attrs/precision", told))
    return DType.I32 if a is DType.I8 else DType.F32
