"""Small graphs for the tests of torch's reference: one for each operation, and the problems made small."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

PROBLEMS = sorted((Path(__file__).parents[2] / "problems").glob("*.json"))
A, B, C, Q = ([3, 8], "f32"), ([3, 8], "f32"), ([3, 8], "bool"), ([3, 8], "i8")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f8e4m3": torch.float8_e4m3fn}
DTYPES |= {"f8e5m2": torch.float8_e5m2, "i32": torch.int32, "i8": torch.int8, "bool": torch.bool}
_NAMES = "neg abs exp exp2 log log2 sqrt rsqrt reciprocal tanh sigmoid erf sin cos relu silu gelu"
UNARY = tuple(_NAMES.split())
_NAMES = "add sub mul div maximum minimum pow equal not_equal less less_equal greater greater_equal"
BINARY = tuple(_NAMES.split())


def cases() -> Iterator[Any]:
    def case(name: str, inputs: list[Any], op: str, operands: list[Any], **attrs: Any) -> Any:
        return pytest.param(inputs, op, operands, attrs, id=name)

    for op in UNARY:
        yield case(op, [A], op, ["i0"])
    for op in BINARY:
        yield case(op, [A, B], op, ["i0", "i1"])
        yield case(f"{op}_scalar", [A], op, ["i0", 0.5])
    for op in ("add", "sub", "mul", "div", "maximum", "neg", "abs", "relu", "less"):
        yield case(f"{op}_integers", [Q, Q], op, ["i0", "i1"] if op in BINARY else ["i0"])
    yield case("gelu_tanh", [A], "gelu", ["i0"], approximate="tanh")
    for dtype in (*DTYPES, "i4"):
        if dtype != "i4":
            yield case(f"cast_{dtype}", [([64, 8], "f32")], "cast", ["i0"], dtype=dtype)
        yield case(f"cast_from_{dtype}", [([64, 8], dtype)], "cast", ["i0"], dtype="f8e5m2")
    for op in ("logical_and", "logical_or"):
        yield case(op, [C, C], op, ["i0", "i1"])
    yield case("logical_not", [C], "logical_not", ["i0"])
    yield case("where", [C, A, Q], "where", ["i0", "i1", "i2"])
    yield case("where_scalar", [C, A], "where", ["i0", "i1", "-inf"])
    yield case("iota", [A], "iota", [], shape=[3, 4, 5], axis=-2)
    yield case("reshape", [A], "reshape", ["i0"], shape=[4, 6])
    yield case("transpose", [([2, 3, 4], "bf16")], "transpose", ["i0"], perm=[2, 0, 1])
    yield case("slice", [([4, 9], "bf16")], "slice", ["i0"], axis=-1, start=-8, stop=8, step=3)
    yield case("slice to the end", [([4, 9], "i8")], "slice", ["i0"], axis=0, start=1)
    yield case("concat", [([4, 9], "f16"), ([4, 2], "f16"), ([4, 3], "f16")], "concat", ["i0", "i1", "i2"])
    yield case("pad", [([4, 9], "bf16")], "pad", ["i0"], low=[1, 0], high=[0, 2])
    yield case("gather", [([4, 9], "bf16"), ([3, 2], "i32")], "gather", ["i0", "i1"])
    groups = [([9, 4], "bf16"), ([3, 5, 4], "bf16"), ([3], "i32")]
    yield case("groups", groups, "grouped_matmul", ["i0", "i1", "i2"], transpose_b=True)
    yield case("gather inside", [([2, 4, 5], "f32"), ([3], "i32")], "gather", ["i0", "i1"], axis=1)
    added = [([4, 3], "bf16"), ([3, 2], "i32"), ([3, 2, 3], "f32")]
    yield case("scatter_add", added, "scatter_add", ["i0", "i1", "i2"])
    yield case(
        "scatter_add_integers", [([5], "i8"), ([9], "i32"), ([9], "i8")], "scatter_add", ["i0", "i1", "i2"]
    )
    yield case("cumsum", [A], "cumsum", ["i0"], axis=-1)
    yield case("cumsum_integers", [Q], "cumsum", ["i0"], axis=0)
    for op in ("reduce_sum", "reduce_max", "reduce_min", "reduce_mean", "reduce_argmax", "logsumexp"):
        yield case(op, [A], op, ["i0"], axis=-1, keepdims=True)
        yield case(f"{op}_integers", [Q], op, ["i0"], axis=0)
    yield case("softmax", [A], "softmax", ["i0"], axis=0)
    yield case("rms_norm", [A, ([8], "bf16")], "rms_norm", ["i0", "i1"])
    yield case("layer_norm", [A, ([8], "f32"), ([8], "f32")], "layer_norm", ["i0", "i1", "i2"], eps=1e-3)
    grouped = [Q, ([3, 2], "f32"), ([3, 2], "i8")]
    yield case("dequantize", grouped, "dequantize", ["i0", "i1", "i2"], group=4)
    tile = [([6, 8], "f8e4m3"), ([2, 2], "f32")]
    yield case("dequantize_block", tile, "dequantize", ["i0", "i1"], block=[3, 4])
    for op in ("quantize", "quantize_scale"):
        yield case(op, [([6, 8], "bf16")], op, ["i0"], dtype="f8e4m3", group=4)
        yield case(f"{op}_block", [([6, 8], "f32")], op, ["i0"], dtype="i8", block=[3, 4])
    yield case("dequantize_i4", [([3, 8], "i4"), ([2], "f16")], "dequantize", ["i0", "i1", 3], group=4)
    yield case("matmul", [([2, 5, 7], "bf16"), ([7, 4], "bf16")], "matmul", ["i0", "i1"])
    both = {"transpose_a": True, "transpose_b": True}
    yield case("matmul_tt", [([7, 5], "f16"), ([3, 4, 7], "f16")], "matmul", ["i0", "i1"], **both)
    yield case("matmul_f8", [([5, 7], "f8e4m3"), ([7, 4], "f8e4m3")], "matmul", ["i0", "i1"])
    yield case("matmul_i8", [([5, 7], "i8"), ([7, 4], "i8")], "matmul", ["i0", "i1"])
    yield case("matmul_tf32", [([5, 7], "f32"), ([7, 4], "f32")], "matmul", ["i0", "i1"], precision="tf32")


def document(inputs: list[Any], op: str, operands: list[Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {
        "format": "wsopt.graph/1",
        "name": "g",
        "inputs": [{"name": f"i{i}", "shape": s, "dtype": d} for i, (s, d) in enumerate(inputs)],
        "nodes": [{"name": "y", "op": op, "inputs": operands, "attrs": attrs}],
        "outputs": ["y"],
    }


def to_torch(array: Any, dtype: str) -> Any:
    if dtype == "i4":
        low, high = array[..., 0::2].astype(np.uint8) & 15, array[..., 1::2].astype(np.uint8) & 15
        return torch.from_numpy(low | (high << 4))
    if dtype in ("bf16", "f8e4m3", "f8e5m2"):
        raw = array.view(np.uint8 if array.dtype.itemsize == 1 else np.uint16)
        return torch.from_numpy(raw.copy()).view(DTYPES[dtype])
    return torch.from_numpy(array.copy())


def small(path: Path) -> dict[str, Any]:
    """A problem with its extents cut to a 64th."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    shaped = [node["attrs"] for node in data["nodes"] if "shape" in node.get("attrs", {})]
    for item in (*data["inputs"], *shaped):
        item["shape"] = [max(2, extent // 64) if extent > 32 else extent for extent in item["shape"]]
    return data


CASES = list(cases())
