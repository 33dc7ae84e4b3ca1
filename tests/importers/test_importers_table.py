"""Every ONNX operation of the table against ONNX's own reference, versions that say it otherwise included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx_models import computed, written
from test_importers_images import NAMES as IMAGES

from wsopt.graph.reference import evaluate
from wsopt.importers.onnx_model import import_onnx
from wsopt.importers.onnx_operations import TABLE

X, ROW = "float[4,6] x", "float[6] r"
ONE = [  # operations of one tensor, of numbers above 0 where they have to be
    *((name, "z = Abs (x) s = Add (z, z) y = {} (s)") for name in ("Log", "Sqrt", "Reciprocal")),
    *((name, "y = {} (x)") for name in ("Exp", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Neg", "Abs", "Relu")),
    *((name, "y = {} (x)") for name in ("Identity", "Gelu", "LeakyRelu", "Softmax", "LogSoftmax", "Flatten")),
    *((name, "y = {} <keepdims = 0> (x)") for name in ("ReduceSum", "ReduceMean", "ReduceL2")),
    *((name, "y = {} (x)") for name in ("ReduceMax", "ReduceMin", "ReduceSumSquare", "Transpose")),
    ("Gelu", 'y = {} <approximate = "tanh"> (x)'),
    ("Softmax", "y = {} <axis = 0> (x)"),
    ("Dropout", "y = {} (x)"),
    ("IsNaN", "l = Log (x) n = {} (l) o = Neg (x) y = Where (n, o, x)"),
]
TWO = [
    *((name, "y = {} (x, r)") for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean")),
    *((name, "c = {} (x, r) y = Where (c, x, r)") for name in ("Less", "LessOrEqual", "Greater")),
    *((name, "c = {} (x, x) y = Where (c, r, x)") for name in ("Equal", "GreaterOrEqual")),
    *((name, "a = Less (x, r) b = Less (r, x) c = {} (a, b) y = Where (c, x, r)") for name in ("And", "Or")),
    ("Not", "a = Less (x, r) c = {} (a) y = Where (c, x, r)"),
    ("LayerNormalization", "y = {} (x, r, r)"),
    ("LayerNormalization", "y = {} <axis = -1, epsilon = 0.5> (x, r)"),
    ("Clip", "lo = Constant <value_float = -0.5> () hi = Constant <value_float = 0.5> () y = {} (x, lo, hi)"),
    *(
        ("Pow", f"e = Constant <value_float = {e}> () z = Abs (x) y = {{}} (z, e)")
        for e in ("2.0", "3.0", "0.5", "1.5")
    ),
    ("MatMul", "y = {} (x, r)"),
    ("Concat", "s = Neg (x) y = {} <axis = -1> (x, s, x)"),
    ("CastLike", "l = Less (x, r) c = {} (l, x) y = Mul (c, x)"),
]
PARTS = [
    ("Reshape", "s = Constant <value_ints = [2,-1,3]> () y = {} (x, s)"),
    ("Reshape", "s = Constant <value_ints = [0,3,2]> () y = {} (x, s)"),
    ("Unsqueeze", "a = Constant <value_ints = [0,-1]> () y = {} (x, a)"),
    ("Squeeze", "a = Constant <value_ints = [1]> () u = Unsqueeze (x, a) v = Exp (u) y = {} (v, a)"),
    ("Expand", "s = Constant <value_ints = [3,1,6]> () e = {} (x, s) y = Exp (e)"),
    ("Tile", "a = Constant <value_ints = [0]> () s = Constant <value_ints = [3,1,1]> () u = Unsqueeze (x, a) "
             "y = {} (u, s)"),
    ("Slice", "b = Constant <value_ints = [1,-5]> () e = Constant <value_ints = [99,-1]> () "
              "a = Constant <value_ints = [0,1]> () s = Constant <value_ints = [2,1]> () y = {} (x, b, e, a, s)"),
    ("Split", "s = Constant <value_ints = [1,2,3]> () p, q, t = {} <axis = 1> (x, s) y = Concat <axis=1> (t, p, q)"),
    ("Split", "p, q = {} <axis = 0, num_outputs = 2> (x) y = Add (p, q)"),
    ("Gather", "i = Constant <value_int = -1> () g = {} <axis = 1> (x, i) y = Exp (g)"),
    ("Gather", "i = Constant <value_ints = [1,3,5]> () g = {} <axis = 1> (x, i) y = Exp (g)"),
    ("Gather", "i = Constant <value_ints = [2,2]> () g = {} <axis = 0> (x, i) y = Concat <axis = 0> (g, x)"),
]  # fmt: skip
EARLIER = [
    (11, "ReduceSum", "y = {} <axes = [1]> (x)"),
    (17, "ReduceMean", "y = {} <axes = [-1]> (x)"),
    (12, "Unsqueeze", "u = {} <axes = [0]> (x) y = Exp (u)"),
    (12, "Squeeze", "u = Unsqueeze <axes = [0]> (x) e = Exp (u) y = {} <axes = [0]> (e)"),
    (9, "Slice", "y = {} <axes = [1], starts = [1], ends = [4]> (x)"),
    (12, "Split", "p, q = {} <axis = 1, split = [2, 4]> (x) y = Concat <axis = 1> (q, p)"),
    (6, "Clip", "y = {} <min = -0.5, max = 0.5> (x)"),
    (11, "Dropout", "y = {} <ratio = 0.5> (x)"),
]
CASES = [
    *((20, name, [X], body) for name, body in (*ONE, *PARTS)),
    *((20, name, [X, ROW], body) for name, body in TWO),
    *((opset, name, [X], body) for opset, name, body in EARLIER),
    (20, "Gemm", ["float[6,4] a", "float[6,8] b", "float[8] c"],
     "y = {} <transA = 1, alpha = 0.5, beta = 2.0> (a, b, c)"),
    (20, "Gemm", ["float[4,6] a", "float[8,6] b"], "y = {} <transB = 1> (a, b)"),
    (20, "MatMul", ["float[2,4,6] a", "float[6,8] b"], "y = {} (a, b)"),
    (20, "MatMul", ["float[6] a", "float[2,6,8] b"], "y = {} (a, b)"),
    (23, "RMSNormalization", [X, ROW], "y = {} (x, r)"),
    (20, "Cast", ["bool[4,6] m", X], "f = {} <to = 1> (m) y = Mul (f, x)"),
    (20, "Cast", ["int64[4,6] m", X], "b = {} <to = 9> (m) z = Neg (x) y = Where (b, x, z)"),
]  # fmt: skip
UNTESTED = {"Pad", "ReduceLogSumExp"}
"""Operations of graphs of a later version."""


def model(inputs: list[str], body: str) -> str:
    lines = body.replace(") ", ")\n")
    return f"agraph ({', '.join(inputs)}) => (float y) {{\n{lines}\n}}"


@pytest.mark.parametrize(
    ("opset", "name", "inputs", "body"), CASES, ids=lambda one: one if isinstance(one, str) else ""
)
def test_an_operation_means_what_onnx_says(
    tmp_path: Path, opset: int, name: str, inputs: list[str], body: str
) -> None:
    path = written(tmp_path, model(inputs, body.format(name)), opset)
    for actual, expected in computed(import_onnx(path, {}), path):
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


def test_every_entry_is_tried() -> None:
    assert {name for _, name, _, _ in CASES} | {"Where"} | IMAGES == set(TABLE) - UNTESTED


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = Add (a, b)", ""),
        ("y = Div (a, b)", "it is of integers, which graphs compute in f32 here"),
        ("f = Cast <to = 1> (a) g = Tanh (f) y = Cast <to = 7> (g)", "rounds in graphs and cuts off in ONNX"),
        ("y = Mod (a, b)", "no entry for Mod"),
        ("y = Reshape (a, b)", "shape are computed from the model's inputs"),
        ("d = Cast <to = 11> (a) y = Exp (d)", "double is no type of our graphs"),
    ],
)
def test_integers_are_not_what_floats_are(tmp_path: Path, body: str, reason: str) -> None:
    from wsopt.errors import LoweringError

    text = model(["int64[4] a", "int64[4] b"], body).replace("float y", "int64[4] y")
    path = written(tmp_path, text)
    if not reason:
        ((actual, expected),) = computed(import_onnx(path, {}), path)
        assert actual.tolist() == expected.tolist()
        return
    with pytest.raises(LoweringError, match=reason):
        import_onnx(path, {})


@pytest.mark.parametrize("opset", [20, 23])
@pytest.mark.parametrize(
    "body", ["y = HardSwish (x)", "y = Elu <alpha = 0.5> (x)", "y = Softplus (x)", "y = Mish (x)"]
)
def test_what_onnx_defines_by_others_is_written_out(tmp_path: Path, body: str, opset: int) -> None:
    path = written(tmp_path, model([X], body), opset)
    for actual, expected in computed(import_onnx(path, {}), path):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_attention_of_onnx_is_written_out(tmp_path: Path) -> None:
    inputs: list[Any] = [f"float[1,2,{rows},16] {name}" for name, rows in (("q", 4), ("k", 6), ("v", 6))]
    path = written(tmp_path, model(inputs, "y = Attention <scale = 0.25> (q, k, v)"), 23)
    found = import_onnx(path, {})
    assert sum(node.op == "matmul" for node in found.graph.nodes) == 2
    ((actual, expected),) = computed(found, path)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_softmax_of_earlier_versions_has_all_behind_its_axis_in_one_row(tmp_path: Path) -> None:
    path = written(tmp_path, model(["float[2,3,4] x"], "y = Softmax <axis = 1> (x)"), 12)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    found = evaluate(import_onnx(path, {}).graph, {"x": x})["y"]
    power = np.exp(x.reshape(2, 12))
    np.testing.assert_allclose(found.reshape(2, 12), power / power.sum(1, keepdims=True), rtol=1e-5)
