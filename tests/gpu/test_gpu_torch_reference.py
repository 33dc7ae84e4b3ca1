"""The torch evaluator against the NumPy one, op by op. Skipped where there is no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from wsopt import graph as numpy_graph  # noqa: E402
from wsopt.gpu import inputs as gpu_inputs  # noqa: E402
from wsopt.gpu.raw_graph import raw_graph  # noqa: E402
from wsopt.gpu.torch_reference import (  # noqa: E402
    compulsory_bytes,
    evaluate,
    flops,
    relative_error,
)

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
    for op in ("reduce_sum", "reduce_max", "reduce_min", "reduce_mean"):
        yield case(op, [A], op, ["i0"], axis=-1, keepdims=True)
        yield case(f"{op}_integers", [Q], op, ["i0"], axis=0)
    yield case("softmax", [A], "softmax", ["i0"], axis=0)
    yield case("rms_norm", [A, ([8], "bf16")], "rms_norm", ["i0", "i1"])
    yield case("layer_norm", [A, ([8], "f32"), ([8], "f32")], "layer_norm", ["i0", "i1", "i2"], eps=1e-3)
    grouped = [Q, ([3, 2], "f32"), ([3, 2], "i8")]
    yield case("dequantize", grouped, "dequantize", ["i0", "i1", "i2"], group=4)
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


def compare(data: dict[str, Any], limit: float) -> None:
    parsed = numpy_graph.parse_graph(json.dumps(data), "test")
    raw = raw_graph(data)
    arrays = numpy_graph.random_inputs(parsed, 7)
    expected = numpy_graph.evaluate(parsed, arrays)
    tensors = {item.name: to_torch(arrays[item.name], item.dtype) for item in raw.inputs}
    for name, value in evaluate(raw, tensors).items():
        wanted = to_torch(expected[name], parsed.type_of(name).dtype.value)
        assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
        assert relative_error(value, wanted) <= limit


@pytest.mark.parametrize(("inputs", "op", "operands", "attrs"), list(cases()))
def test_agrees_with_numpy(inputs: Any, op: str, operands: Any, attrs: Any) -> None:
    compare(document(inputs, op, operands, attrs), 1e-6)


def test_every_op_is_tried() -> None:
    assert {item.values[1] for item in cases()} == set(numpy_graph.OPS)


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_problems_made_small(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    shaped = [node["attrs"] for node in data["nodes"] if "shape" in node.get("attrs", {})]
    for item in (*data["inputs"], *shaped):
        item["shape"] = [max(2, extent // 64) if extent > 32 else extent for extent in item["shape"]]
    compare(data, 4e-3)


def test_work_of_a_graph() -> None:
    attrs = {"transpose_a": True}
    raw = raw_graph(document([([7, 5], "bf16"), ([3, 7, 4], "bf16")], "matmul", ["i0", "i1"], attrs))
    assert flops(raw) == 2 * 3 * 5 * 4 * 7
    assert compulsory_bytes(raw) == 2 * (7 * 5 + 3 * 7 * 4) + 4 * 3 * 5 * 4


def test_softmax_of_nothing_is_zero() -> None:
    raw = raw_graph(document([([2, 4], "f32")], "softmax", ["i0"], {}))
    values = torch.tensor([[-torch.inf] * 4, [0.0, -torch.inf, 0.0, -torch.inf]])
    assert evaluate(raw, {"i0": values})["y"].tolist() == [[0.0] * 4, [0.5, 0.0, 0.5, 0.0]]


def test_relative_error() -> None:
    ones = torch.ones(100)
    nan = torch.full((100,), torch.nan)
    assert relative_error(ones, ones) == 0
    assert relative_error(1.01 * ones, ones) == pytest.approx(0.01, rel=1e-3)
    assert relative_error(nan, ones) == relative_error(ones, nan) == torch.inf
    assert relative_error(nan, nan) == 0
    assert relative_error(ones, 0 * ones) == torch.inf
    assert relative_error(ones[:50], ones) == torch.inf


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i32", "i8"])
def test_poison_is_never_right(dtype: str) -> None:
    raw = raw_graph(document([([64, 64], "f32")], "cast", ["i0"], {"dtype": dtype}))
    expected = evaluate(raw, gpu_inputs.random_inputs(raw, 3, "cpu"))
    assert relative_error(gpu_inputs.poisoned(expected)["y"], expected["y"]) > 1


def test_inputs_obey_strides_scales_and_seeds() -> None:
    data = document([([64, 256], "bf16"), ([32, 256], "bf16")], "matmul", ["i0", "i1"], {"transpose_b": True})
    data["inputs"][0]["strides"] = [260, 1]
    data["inputs"][1]["constant"] = True
    raw = raw_graph(data)
    first, again, other = (gpu_inputs.random_inputs(raw, seed, "cpu") for seed in (0, 0, 1))
    assert first["i0"].stride() == (260, 1)
    assert float(first["i1"].float().std()) == pytest.approx(1 / 16, rel=0.05)
    assert torch.equal(first["i0"], again["i0"])
    assert not torch.equal(first["i0"], other["i0"])
