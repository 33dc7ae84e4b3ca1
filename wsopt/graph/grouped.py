"""Products of rows that offsets cut into groups, each with a matrix of its own: shapes, types, NumPy, offsets to try.

Group g has the rows from `offsets[g - 1]` up to `offsets[g]`. An offset below zero or beyond the rows is their
nearest end, and one below an offset before it is that one, so that its group is empty. The product is zero in rows
behind the last offset, whatever the tensors hold.
"""

from __future__ import annotations

import numpy as np

from wsopt.graph.infer import Attrs, OpFault, Shape, Types, matmul_dtype, show, want
from wsopt.graph.meaning import Array, Arrays, matmul
from wsopt.graph.types import DType, Graph

_RANKS = (("a", 2, "[rows, k]"), ("b", 3, "[groups, k, n]"), ("offsets", 1, "[groups]"))
_SEEN = ("reshape", "transpose", "slice", "pad")

OFFSET_KINDS = 6
"""How many kinds of offsets `offsets_to_try` has; as many seeds show all of them."""


def grouped_shape(types: Types, attrs: Attrs) -> Shape:
    """[rows, k] times [groups, k, n], with [groups] offsets, gives [rows, n], after b's transpose."""
    faults = [
        (f"inputs/{index}", f"shape {show(tensor.shape)}; grouped_matmul wants {name} of shape {wanted}")
        for index, (tensor, (name, rank, wanted)) in enumerate(zip(types, _RANKS, strict=True))
        if tensor.rank != rank
    ]
    if faults:
        raise OpFault(*faults)
    (rows, k), b, (offsets,) = (tensor.shape for tensor in types)
    groups, k_of_b, n = (b[0], b[2], b[1]) if attrs["transpose_b"] else b
    if k != k_of_b:
        told = f"shapes {show(types[0].shape)} and {show(b)}: the contracted extents are {k} and {k_of_b}"
        flag = str(attrs["transpose_b"]).lower()
        faults.append(("inputs", f"{told} (transpose_b is {flag}); they have to be equal"))
    if groups != offsets:
        told = f"shapes {show(b)} and {show(types[2].shape)}: {groups} groups and {offsets} offsets"
        faults.append(("inputs", f"{told}; each group has one, where its rows end"))
    if faults:
        raise OpFault(*faults)
    return rows, n


def grouped_dtype(types: Types, attrs: Attrs) -> DType:
    """As of a matmul; the offsets are i32."""
    want(types, lambda dtype: dtype is DType.I32, "i32: where each group's rows end", start=2)
    return matmul_dtype(types[:2], attrs)


def group_ends(offsets: Array, rows: int) -> Array:
    """Where the rows of each group end, which never goes back; those of the next group begin there."""
    return np.asarray(np.maximum.accumulate(np.clip(offsets, 0, rows)))


def grouped_matmul(arrays: Arrays, attrs: Attrs) -> Array:
    """Each group's rows by the group's matrix, as a `matmul`; zeros in rows of no group."""
    a, b, offsets = arrays
    columns, begin = b.shape[1] if attrs["transpose_b"] else b.shape[2], 0
    found = np.zeros((len(a), columns), np.int32 if a.dtype == np.int8 else np.float32)
    for end, matrix in zip(group_ends(offsets, len(a)), b, strict=True):
        found[begin:end] = matmul((a[begin:end], matrix), {**attrs, "transpose_a": False})
        begin = end
    return found


# --- offsets to try -------------------------------------------------------------------------------------


def grouped_rows(graph: Graph) -> dict[str, int]:
    """The inputs that are offsets of groups, each with how many rows there are."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "grouped_matmul":
            name = node.tensors[2]
            while (view := graph.producer(name)) is not None and view.op in _SEEN:
                name = view.tensors[0]
            found[name] = node.type.shape[0]
    return found


def offsets_to_try(shape: tuple[int, ...], rows: int, seed: int, rng: np.random.Generator) -> Array:
    """Offsets of groups of so many rows, as an array of i32.

    Kinds take turns from seed to seed: ragged groups; some of them empty, with rows that belong to none; all rows in
    one group; offsets that go back; ones that lie outside of the rows; groups of a few rows each.
    """
    count = int(np.prod(shape))
    ragged = np.sort(rng.integers(0, rows + 1, count))
    ragged[-1:] = rows
    some = np.sort(rng.choice(rng.integers(0, rows, max(1, count // 2)), count))
    one = np.where(np.arange(count) < rng.integers(0, count), 0, rows)
    back = rng.integers(0, rows + 1, count)
    outside = np.sort(rng.integers(-rows, 2 * rows + 1, count))
    outside[-1], outside[0] = 2**31 - 1, -(2**31)
    few = np.minimum(np.cumsum(rng.integers(0, 8, count)), rows)
    kinds = (ragged, some, one, back, outside, few)
    assert len(kinds) == OFFSET_KINDS
    return np.asarray(kinds[seed % OFFSET_KINDS]).astype(np.int32).reshape(shape)
