"""Element types of torch and ours."""

from __future__ import annotations

import torch

from wsopt.graph.types import DType
from wsopt.torch.values import Untaken

DTYPES = {
    torch.float32: DType.F32,
    torch.float16: DType.F16,
    torch.bfloat16: DType.BF16,
    torch.float8_e4m3fn: DType.F8E4M3,
    torch.float8_e5m2: DType.F8E5M2,
    torch.int32: DType.I32,
    torch.int8: DType.I8,
    torch.bool: DType.BOOL,
}
"""Ours by torch's. Indices are i64 in torch and i32 here, and do not leave a piece."""


def dtype_of(dtype: torch.dtype) -> DType:
    """Our element type. Raises Untaken for one that no graph has."""
    if dtype is torch.int64:
        return DType.I32
    if dtype not in DTYPES:
        raise Untaken(f"{dtype} is no type of our graphs")
    return DTYPES[dtype]
