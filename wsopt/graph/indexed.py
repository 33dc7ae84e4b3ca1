"""Operations that deal in places along an axis: rules and NumPy reference of arg max, running sums, and rows that are
added by index.
"""

from __future__ import annotations

import numpy as np

from wsopt.graph.infer import Attrs, OpFault, Shape, Types, arithmetic, show, want, want_numbers
from wsopt.graph.meaning import Array, Arrays
from wsopt.graph.types import DType

# --- rules ----------------------------------------------------------------------------------------------


def place_dtype(types: Types, _attrs: Attrs) -> DType:
    """Numbers in; places are i32."""
    want_numbers(types)
    return DType.I32


def scattered_shape(types: Types, _attrs: Attrs) -> Shape:
    """The first operand's shape; the rows that are added have the shape of the indices in the place of its first
    axis.
    """
    shape, indices, rows = (one.shape for one in types)
    if not shape:
        raise OpFault(("inputs/0", "rank 0; rows are added along a first axis"))
    wanted = (*indices, *shape[1:])
    if rows != wanted:
        told = f"indices of {show(indices)} into {show(shape)} want {show(wanted)}"
        raise OpFault(("inputs/2", f"shape {show(rows)}; {told}"))
    return shape


def scattered_dtype(types: Types, attrs: Attrs) -> DType:
    """Numbers by i32 indices; i32 out if all numbers are integers, f32 otherwise."""
    want(types[:2], lambda dtype: dtype is DType.I32, "i32: cast the indices", start=1)
    return arithmetic((types[0], types[2]), attrs)


# --- reference ------------------------------------------------------------------------------------------


def as_numbers(arrays: Arrays) -> list[Array]:
    """The arrays in i32 if all are integers, in f32 otherwise."""
    whole = all(array.dtype.kind == "i" for array in arrays)
    return [array.astype(np.int32 if whole else np.float32) for array in arrays]


def argmax(arrays: Arrays, attrs: Attrs) -> Array:
    """The first place of the largest along `axis`; of a row with not-a-numbers the first of these."""
    (x,) = as_numbers(arrays)
    return np.asarray(np.argmax(x, axis=attrs["axis"], keepdims=attrs["keepdims"]), np.int32)


def cumsum(arrays: Arrays, attrs: Attrs) -> Array:
    """Each element's sum with all before it along `axis`."""
    (x,) = as_numbers(arrays)
    return np.cumsum(x, axis=attrs["axis"], dtype=x.dtype)


def scatter_add(arrays: Arrays, _attrs: Attrs) -> Array:
    """The first array with rows added at the indices, in order; a row whose index is outside is left out."""
    x, indices, rows = arrays
    x, rows = as_numbers((x, rows))
    inside = (indices >= 0) & (indices < x.shape[0])
    np.add.at(x, indices[inside], rows[inside])
    return x
