"""Operations on images of ONNX, and curves and choices that it defines by others in later versions alone, against its
own reference.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx_models import computed, written

from wsopt.errors import LoweringError
from wsopt.graph.reference import evaluate
from wsopt.importers.onnx_model import import_onnx

X, IMAGE, LINE = "float[4,6] x", "float[2,4,9,8] x", "float[2,4,12] x"
CHANNELS = ["float[4] s", "float[4] b", "float[4] m", "float[4] v"]
CASES = [
    ("Conv", [IMAGE, "float[6,4,3,3] w", "float[6] c"], "y = {} <pads = [1,1,1,1]> (x, w, c)"),
    ("Conv", [IMAGE, "float[6,4,3,3] w"], "y = {} <strides = [2,2], pads = [0,1,1,0]> (x, w)"),
    ("Conv", [IMAGE, "float[6,4,3,2] w"], "y = {} <dilations = [2,3]> (x, w)"),
    ("Conv", [IMAGE, "float[6,4,3,3] w"], 'y = {} <auto_pad = "SAME_UPPER", strides = [2,2]> (x, w)'),
    ("Conv", [IMAGE, "float[6,4,4,2] w"], 'y = {} <auto_pad = "SAME_LOWER"> (x, w)'),
    ("Conv", [IMAGE, "float[6,4,1,1] w", "float[6] c"], "y = {} (x, w, c)"),
    ("Conv", [IMAGE, "float[6,4,2,4] w", "float[6] c"], "y = {} <strides = [2,4]> (x, w, c)"),
    ("Conv", [IMAGE, "float[4,1,3,3] w", "float[4] c"], "y = {} <group = 4, pads = [1,1,1,1]> (x, w, c)"),
    ("Conv", [IMAGE, "float[6,2,3,3] w", "float[6] c"], "y = {} <group = 2, pads = [1,1,1,1]> (x, w, c)"),
    ("Conv", [IMAGE, "float[8,1,1,1] w"], "y = {} <group = 4> (x, w)"),
    ("Conv", [LINE, "float[6,4,5] w"], "y = {} <pads = [4,0]> (x, w)"),
    ("ConvTranspose", [IMAGE, "float[4,6,2,2] w", "float[6] c"], "y = {} <strides = [2,2]> (x, w, c)"),
    ("ConvTranspose", [LINE, "float[4,6,3] w"], "y = {} <strides = [3]> (x, w)"),
    ("MaxPool", [IMAGE], "y = {} <kernel_shape = [2,2], strides = [2,2]> (x)"),
    ("MaxPool", [IMAGE], "y = {} <kernel_shape = [3,3], strides = [2,1], pads = [1,1,1,0]> (x)"),
    ("AveragePool", [IMAGE], "y = {} <kernel_shape = [3,2], strides = [3,2]> (x)"),
    ("AveragePool", [IMAGE], "y = {} <kernel_shape = [3,3], pads = [1,1,0,1]> (x)"),
    ("AveragePool", [IMAGE], "y = {} <kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1> (x)"),
    ("GlobalAveragePool", [IMAGE], "y = {} (x)"),
    ("GlobalMaxPool", [IMAGE], "y = {} (x)"),
    ("BatchNormalization", [IMAGE, *CHANNELS], "p = Abs (v) y = {} (x, s, b, m, p)"),
    ("InstanceNormalization", [IMAGE, *CHANNELS[:2]], "y = {} <epsilon = 0.1> (x, s, b)"),
    ("Resize", [IMAGE], 's = Constant <value_floats = [1.0,1.0,2.0,3.0]> () '
     'y = {} <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , s)'),
    ("Resize", [IMAGE], "s = Constant <value_ints = [2,4,18,16]> () y = {} (x, , , s)"),
    ("DepthToSpace", [IMAGE], "y = {} <blocksize = 2> (x)"),
    ("DepthToSpace", [IMAGE], 'y = {} <blocksize = 2, mode = "CRD"> (x)'),
    ("SpaceToDepth", ["float[2,3,4,6] x"], "y = {} <blocksize = 2> (x)"),
    *((name, [X], "y = {} (x)") for name in ("Elu", "Selu", "Softplus", "Softsign", "HardSigmoid", "Sign")),
    ("LeakyRelu", [X], "y = {} <alpha = 0.3> (x)"),
    ("PRelu", [X, "float[6] r"], "y = {} (x, r)"),
    ("ArgMax", [X], "i = {} <axis = 0> (x) y = Cast <to = 1> (i)"),
    ("ArgMin", [X], "i = {} <axis = 1, keepdims = 0> (x) y = Cast <to = 1> (i)"),
    ("CumSum", [X], "a = Constant <value_int = 1> () y = {} (x, a)"),
    ("TopK", [X], "k = Constant <value_ints = [3]> () y, i = {} (x, k)"),
    ("TopK", [X], "k = Constant <value_ints = [2]> () v, i = {} <axis = 0> (x, k) y = Cast <to = 1> (i)"),
    ("Einsum", ["float[2,3,4] a", "float[5,2,4] b"], 'y = {} <equation = "bij, kbj -> kbi"> (a, b)'),
    ("Einsum", ["float[2,3,4] a", "float[4,5] b"], 'y = {} <equation = "bij,jk->bk"> (a, b)'),
    ("Einsum", ["float[2,3,4] a"], 'y = {} <equation = "bij->jb"> (a)'),
    ("OneHot", ["int64[2,3] i"], "d = Constant <value_int = 4> () v = Constant <value_floats = [-1.0,2.0]> () "
     "y = {} <axis = 1> (i, d, v)"),
    ("GatherElements", [X, "int64[4,1] i"], "y = {} <axis = 1> (x, i)"),
    ("ScatterElements", [X, "int64[1,6] i", "float[1,6] u"], "y = {} (x, i, u)"),
    ("QuantizeLinear", [X], "s = Constant <value_float = 0.02> () z = Constant <value = int8 {{0}}> () "
     "q = {} (x, s, z) y = DequantizeLinear (q, s, z)"),
    ("DequantizeLinear", ["int8[4,6] x", "float[4] s", "int8[4] z"], "y = {} <axis = 0> (x, s, z)"),
    ("DequantizeLinear", ["int8[4,6] x", "float[6] s"], "y = {} (x, s)"),
    ("Tile", [X], "t = Constant <value_ints = [2,3]> () y = {} (x, t)"),
]  # fmt: skip
NAMES = {name for name, _, _ in CASES}


def model(inputs: list[str], body: str) -> str:
    lines = body.replace(") ", ")\n").replace("()\n(", "() (")
    return f"agraph ({', '.join(inputs)}) => (float y) {{\n{lines}\n}}"


@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize(("name", "inputs", "body"), CASES, ids=[one[0] for one in CASES])
def test_an_operation_means_what_onnx_says(
    tmp_path: Path, name: str, inputs: list[str], body: str, opset: int
) -> None:
    if "antizeLinear" in name:
        opset = max(opset, 19)  # with which ONNX's reference begins
    path = written(tmp_path, model(inputs, body.format(name)), opset)
    for actual, expected in computed(import_onnx(path, {}), path):
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize(
    ("inputs", "body", "reason"),
    [
        ([IMAGE, "float[4,6,3,3] w"], "y = ConvTranspose <strides = [2,2]> (x, w)", "whose windows overlap"),
        ([X], "s = Constant <value_float = 0.1> () z = Constant <value = int8 {3}> () q = QuantizeLinear (x, s, z) "
         "y = DequantizeLinear (q, s, z)", "a zero point other than 0; quantize symmetrically"),
        ([X], "s = Constant <value_float = 0.1> () q = QuantizeLinear (x, s) y = DequantizeLinear (q, s)",
         "uint8 is no type of our graphs"),
        ([IMAGE], "y = MaxPool <kernel_shape = [2,2], ceil_mode = 1> (x)", "ceil_mode"),
        ([IMAGE, "float[6,4,12,3] w"], "y = Conv (x, w)", r"a window of \[12, 3\] over an image of \[9, 8\]"),
        (["float[3,2,6] x", "float[1,16,6] w", "float[1,16,4] r"], "h, y = LSTM <hidden_size = 4> (x, w, r)",
         "no entry for LSTM: it is a loop or a branch, and a graph has neither"),
        ([IMAGE], 's = Constant <value_floats = [1.0,1.0,2.0,2.0]> () y = Resize <mode = "linear"> (x, , s)',
         "the mode linear; graphs have the nearest element alone"),
        ([IMAGE], "s = Constant <value_floats = [1.0,1.0,0.5,0.5]> () y = Resize (x, , s)",
         "graphs repeat elements a whole number of times"),
    ],
)  # fmt: skip
def test_what_graphs_do_not_have_is_refused(
    tmp_path: Path, inputs: list[str], body: str, reason: str
) -> None:
    with pytest.raises(LoweringError, match=reason):
        import_onnx(written(tmp_path, model(inputs, body)), {})


def test_a_quantized_bias_of_a_version_that_the_reference_lacks(tmp_path: Path) -> None:
    text = "agraph (float[4,6] x) => (float y) {\nd = DequantizeLinear (b, s)\ny = Add (x, d)\n}"
    path = written(tmp_path, text, 13, b=np.arange(6, dtype=np.int32), s=np.float32(0.5))
    found = import_onnx(path, {})
    x = np.ones((4, 6), np.float32)
    (y,) = evaluate(found.graph, {"x": x, **found.contents()}).values()
    np.testing.assert_array_equal(y, x + np.arange(6) * 0.5)
