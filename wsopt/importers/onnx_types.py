"""Element types of ONNX as ours."""

from __future__ import annotations

from wsopt.graph.types import DType
from wsopt.torch.values import Untaken

DTYPES = {
    1: DType.F32,
    3: DType.I8,
    6: DType.I32,
    7: DType.I32,
    9: DType.BOOL,
    10: DType.F16,
    16: DType.BF16,
    17: DType.F8E4M3,
    19: DType.F8E5M2,
    22: DType.I4,
}
"""Ours by the numbers of `onnx.TensorProto.DataType`. Integers of 64 bits are i32 in a graph."""
INT64 = 7


def dtype_of(kind: int) -> DType:
    """Our element type. Raises Untaken for one that no graph has."""
    if kind not in DTYPES:
        named = {2: "uint8", 5: "int16", 8: "string", 11: "double", 12: "uint32", 13: "uint64"}
        raise Untaken(f"{named.get(kind, f'element type {kind}')} is no type of our graphs")
    return DTYPES[kind]
