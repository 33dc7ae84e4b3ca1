"""The torch evaluator against the NumPy one, op by op. Skipped where there is no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gpu_graphs import CASES, PROBLEMS, document, small, to_torch  # noqa: E402

from wsopt import graph as numpy_graph  # noqa: E402
from wsopt.runtime import inputs as gpu_inputs  # noqa: E402
from wsopt.runtime.raw_graph import raw_graph  # noqa: E402
from wsopt.runtime.torch_reference import (  # noqa: E402
    compulsory_bytes,
    evaluate,
    flops,
    relative_error,
)


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


@pytest.mark.parametrize(("inputs", "op", "operands", "attrs"), CASES)
def test_agrees_with_numpy(inputs: Any, op: str, operands: Any, attrs: Any) -> None:
    compare(document(inputs, op, operands, attrs), 1e-6)


def test_every_op_is_tried() -> None:
    assert {item.values[1] for item in CASES} == set(numpy_graph.OPS)


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_problems_made_small(path: Path) -> None:
    compare(small(path), 4e-3)


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


def test_lengths_lie_within_the_axis_that_they_are_compared_along() -> None:
    mask = {"format": "wsopt.graph/1", "name": "mask", "outputs": ["m"]}
    inputs = [{"name": name, "shape": [4000], "dtype": "i32"} for name in ("lengths", "other")]
    nodes = [
        {"name": "j", "op": "iota", "inputs": [], "attrs": {"shape": [4000, 40], "axis": 1}},
        {"name": "n", "op": "reshape", "inputs": ["lengths"], "attrs": {"shape": [4000, 1]}},
        {"name": "m", "op": "less", "inputs": ["j", "n"]},
    ]
    drawn = gpu_inputs.random_inputs(raw_graph({**mask, "inputs": inputs, "nodes": nodes}), 0, "cpu")
    lengths, other = drawn["lengths"], drawn["other"]
    assert (lengths.dtype, int(lengths.min()), int(lengths.max())) == (torch.int32, 0, 40)
    assert (int(other.min()), int(other.max())) == (-8, 7)
