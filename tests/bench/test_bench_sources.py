"""The torch code of baselines, as text: no torch is needed to write it."""

from __future__ import annotations

from typing import Any

import pytest

from wsopt.bench.eager_source import Inapplicable, compiled_source, eager_source
from wsopt.bench.product_source import matmuls_source, scaled_mm_source
from wsopt.runtime.raw_graph import RawGraph, raw_graph


def graph(inputs: dict[str, tuple[list[int], str]], nodes: list[Any], outputs: list[str]) -> RawGraph:
    return raw_graph(
        {
            "name": "g",
            "inputs": [{"name": n, "shape": shape, "dtype": dtype} for n, (shape, dtype) in inputs.items()],
            "nodes": [
                {"name": name, "op": op, "inputs": operands, "attrs": attrs}
                for name, op, operands, attrs in nodes
            ],
            "outputs": outputs,
        }
    )


NT = {"transpose_b": True}
BF16 = {"x": ([32, 16], "bf16"), "w": ([48, 16], "bf16"), "b": ([48], "bf16")}
MLP = [
    ("y", "cast", ["g"], {"dtype": "bf16"}),
    ("g", "gelu", ["a"], {"approximate": "tanh"}),
    ("a", "add", ["b", "h"], {}),
    ("h", "matmul", ["x", "w"], NT),
]
F8 = {
    "x": ([32, 16], "f8e4m3"),
    "w": ([48, 16], "f8e4m3"),
    "row": ([32, 1], "f32"),
    "column": ([48], "f32"),
}
SCALED = [
    ("h", "matmul", ["x", "w"], NT),
    ("s", "mul", ["row", "column"], {}),
    ("p", "mul", ["s", "h"], {}),
    ("y", "cast", ["p"], {"dtype": "bf16"}),
]


def test_bias_goes_into_the_linear_layer() -> None:
    assert eager_source(graph(BF16, MLP, ["y"])) == (
        "def eager(x, w, b):\n"
        "    a = F.linear(x, w, b)\n"
        '    g = F.gelu(a, approximate="tanh")\n'
        "    y = g.to(torch.bfloat16)\n"
        "    return y,\n"
    )


def test_a_compiler_writes_the_bytes_that_the_graph_does() -> None:
    """torch's softmax of bf16 is bf16, the graph's is f32; a cast behind a product would be a kernel of its own."""
    nodes = [*MLP, ("p", "softmax", ["x"], {})]
    dtypes = {"h": "f32", "y": "bf16", "p": "f32"}
    text = compiled_source(graph(BF16, nodes, ["h", "y", "p"]), dtypes)
    assert text.endswith("    y = y.to(torch.bfloat16)\n    p = p.to(torch.float32)\n    return h, y, p\n")
    assert "h = h.to" not in text


def test_a_product_that_is_an_output_stays() -> None:
    text = eager_source(graph(BF16, MLP, ["h", "y"]))
    assert "    h = F.linear(x, w)\n    a = b + h\n" in text


def test_matmuls_alone() -> None:
    assert "    h = F.linear(x, w)\n    return h,\n" in matmuls_source(graph(BF16, MLP, ["y"]))
    nodes = [("h", "matmul", ["x", "w"], NT), ("z", "matmul", ["h", "w"], {})]
    with pytest.raises(Inapplicable, match="z: its operand h is computed"):
        matmuls_source(graph(BF16, nodes, ["z"]))


def test_scaled_mm() -> None:
    text = scaled_mm_source(graph(F8, SCALED, ["y"]))
    assert "torch._scaled_mm(x, w.t(), scale_a=row, scale_b=column.reshape(1, -1)" in text
    assert "out_dtype=torch.bfloat16, use_fast_accum=False)" in text
    fast = [("h", "matmul", ["x", "w"], NT | {"accumulate": "fast"}), *SCALED[1:]]
    assert "use_fast_accum=True" in scaled_mm_source(graph(F8, fast, ["y"]))


@pytest.mark.parametrize(
    ("inputs", "nodes", "reason"),
    [
        (F8, [SCALED[0], ("y", "cast", ["h"], {"dtype": "bf16"})], "one matmul times"),
        (F8, [*SCALED[:3], ("y", "relu", ["p"], {})], "ends in a cast"),
        (F8 | {"row": ([32], "f32")}, SCALED, r"wants f32 scales of shapes \[32, 1\] and \[48\]"),
        (BF16 | {"row": ([32, 1], "f32"), "column": ([48], "f32")}, SCALED, "wants f8e4m3 matrices"),
    ],
)
def test_scaled_mm_does_not_apply(inputs: Any, nodes: Any, reason: str) -> None:
    with pytest.raises(Inapplicable, match=reason):
        scaled_mm_source(graph(inputs, nodes, ["y"]))


BLOCKS = {
    "x": ([32, 512], "f8e4m3"),
    "sx": ([4, 32], "f32"),
    "w": ([256, 512], "f8e4m3"),
    "sw": ([2, 4], "f32"),
}
_TURNED = ("t", "transpose", ["sx"], {"perm": [1, 0]})
_OF_BLOCKS = [
    _TURNED,
    ("a", "dequantize", ["x", "t"], {"group": 128}),
    ("b", "dequantize", ["w", "sw"], {"block": [128, 128]}),
    ("left", "cast", ["a"], {"dtype": "bf16"}),
    ("right", "cast", ["b"], {"dtype": "bf16"}),
    ("h", "matmul", ["left", "right"], NT),
    ("y", "cast", ["h"], {"dtype": "bf16"}),
]


def test_scaled_mm_with_scales_of_groups_and_blocks() -> None:
    text = scaled_mm_source(graph(BLOCKS, _OF_BLOCKS, ["y"]))
    assert "torch._scaled_mm(x, w.t(), scale_a=sx.t(), scale_b=sw.t(), out_dtype=torch.bfloat16)" in text
    other = [*_OF_BLOCKS[:2], ("b", "dequantize", ["w", "sw"], {"group": 128}), *_OF_BLOCKS[3:]]
    with pytest.raises(Inapplicable, match="blocks of 128 by 128"):
        scaled_mm_source(graph(BLOCKS, other, ["y"]))
    with pytest.raises(Inapplicable, match="operands of f8 with scales"):
        scaled_mm_source(
            graph(BLOCKS, [("left", "relu", ["x"], {}), ("right", "relu", ["w"], {}), *_OF_BLOCKS[5:]], ["y"])
        )


def test_f8_has_no_eager_product() -> None:
    with pytest.raises(Inapplicable, match="h: torch multiplies f8 only by scaled_mm"):
        eager_source(graph(F8, SCALED, ["y"]))


def test_norms_and_a_softmax() -> None:
    inputs = {"x": ([8, 16], "bf16"), "w": ([16], "bf16"), "b": ([16], "f32")}
    nodes = [
        ("n", "layer_norm", ["x", "w", "b"], {"eps": 1e-6}),
        ("r", "rms_norm", ["x", "w"], {}),
        ("s", "softmax", ["x"], {"axis": 1}),
    ]
    text = eager_source(graph(inputs, nodes, ["n", "r", "s"]))
    assert "n = F.layer_norm(x, x.shape[-1:], w, b.to(x.dtype), eps=1e-06)" in text
    assert "r = F.rms_norm(x, x.shape[-1:], w, eps=1e-06)" in text
    assert "s = torch.softmax(x, 1)" in text


def test_parts_and_what_is_joined() -> None:
    nodes = [
        ("first", "slice", ["x"], {"axis": 1, "stop": 8}),
        ("last", "slice", ["x"], {"start": -8, "step": 2}),
        ("rows", "slice", ["x"], {"axis": -2, "start": 2, "stop": 4}),
        ("both", "concat", ["first", "x"], {"axis": 1}),
    ]
    text = eager_source(graph({"x": ([8, 16], "bf16")}, nodes, ["last", "rows", "both"]))
    assert "first = x[:, :8]" in text
    assert "last = x[..., -8::2]" in text
    assert "rows = x[..., 2:4, :]" in text
    assert "both = torch.cat([first, x], dim=1)" in text


def test_words_of_python_and_scalars() -> None:
    nodes = [("lambda", "maximum", ["x", 0], {}), ("y", "where", ["c", "lambda", "-inf"], {})]
    nodes.append(("c", "less", ["x", -1.5], {}))
    text = eager_source(graph({"x": ([4], "f32")}, nodes, ["y"]))
    assert "lambda_ = torch.clamp(x, min=0)" in text
    assert "c = x < (-1.5)" in text
    assert 'y = torch.where(c, lambda_, float("-inf"))' in text


def test_names_are_not_code() -> None:
    with pytest.raises(ValueError, match="is no tensor name"):
        eager_source(graph({"x); import os; (y": ([4], "f32")}, [], ["x); import os; (y"]))
