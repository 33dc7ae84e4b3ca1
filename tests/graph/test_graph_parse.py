"""What a good file becomes: defaults, axes, scalars, strides, and rules that only show in accepted graphs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_examples import MLP, changed, node, single

from wsopt.errors import InputError
from wsopt.graph import DType, Graph, TensorType, load_graph, parse_graph
from wsopt.graph.serialize import graph_to_json


def last(graph: Graph) -> Any:
    return graph.nodes[-1]


def test_file_text_and_values_give_one_graph(tmp_path: Path) -> None:
    path = tmp_path / "mlp.json"
    path.write_text(json.dumps(MLP, indent=1), encoding="utf-8")
    assert (
        load_graph(path)
        == load_graph(str(path))
        == parse_graph(path.read_text(), "t")
        == parse_graph(MLP, "t")
    )


def test_values_given_are_not_changed() -> None:
    before = json.dumps(MLP)
    parse_graph(MLP, "t")
    assert json.dumps(MLP) == before


def test_doc_may_be_absent_and_hold_anything_printable() -> None:
    assert parse_graph({key: value for key, value in MLP.items() if key != "doc"}, "t").doc == ""
    assert parse_graph(changed({"/doc": 'é """ \n'}), "t").doc == 'é """ \n'


def test_scalars_keep_their_kind() -> None:
    operands = [1, 1.5, "inf", "-inf", "nan"]
    graph = parse_graph(changed({"/nodes/-": node("s", "add", "a", 0)}), "t")
    for value, expected in zip(operands, [1, 1.5, math.inf, -math.inf, math.nan], strict=True):
        graph = parse_graph(changed({"/nodes/-": node("s", "add", "a", value)}), "t")
        (scalar,) = (operand for operand in last(graph).inputs if not isinstance(operand, str))
        assert type(scalar) is type(expected)
        assert repr(scalar) == repr(expected)


@pytest.mark.parametrize(
    "written", ["3.4028235e38", "3.40282347e+38", "3.4028234663852886e38", "3.40282356e38"]
)
def test_the_largest_scalar_may_be_rounded_up(written: str) -> None:
    largest = float(np.finfo(np.float32).max)
    for sign in (1, -1):
        graph = parse_graph(changed({"/nodes/-": node("s", "add", "a", sign * float(written))}), "t")
        assert [operand for operand in last(graph).inputs if not isinstance(operand, str)] == [sign * largest]


def test_what_rounds_to_an_infinite_scalar_is_refused() -> None:
    for value in (3.40282357e38, -3.40282357e38):
        with pytest.raises(InputError, match='infinite scalars are written "inf"'):
            parse_graph(changed({"/nodes/-": node("s", "add", "a", value)}), "t")


@pytest.mark.parametrize(("axis", "front"), [(-1, 2), (0, 0), (-3, 0), (2, 2)])
def test_axes_count_from_the_front(axis: int, front: int) -> None:
    assert last(single("softmax", ((2, 3, 4), "f32"), axis=axis)).attr("axis", int) == front
    assert last(single("reduce_sum", ((2, 3, 4), "f32"), axis=axis)).attr("axis", int) == front
    assert last(single("iota", shape=[2, 3, 4], axis=axis)).attr("axis", int) == front


def test_default_axis_counts_from_the_front_too() -> None:
    assert last(single("softmax", ((2, 3, 4), "f32"))).attr("axis", int) == 2


def test_strides() -> None:
    def strides(value: list[int]) -> tuple[int, ...] | None:
        return parse_graph(changed({"/inputs/0/strides": value}), "t").inputs[0].strides

    assert strides([16, 1]) is None, "row-major strides say nothing"
    assert strides([64, 1]) == (64, 1)
    assert strides([0, 1]) == (0, 1), "an input may repeat"
    assert strides([1, 8]) == (1, 8)
    assert strides([1, 1]) == (1, 1), "and overlap"


def test_i4_strides_on_bytes() -> None:
    q = {"name": "q", "shape": [4, 8], "dtype": "i4", "strides": [16, 1]}
    assert parse_graph(changed({"/inputs/-": q}), "t").inputs[3].strides == (16, 1)


@pytest.mark.parametrize(
    ("op", "tensors", "attrs", "expected"),
    [
        ("matmul", [((2, 1, 8, 16), "f16"), ((3, 16, 4), "f16")], {}, TensorType((2, 3, 8, 4), DType.F32)),
        ("matmul", [((8, 16), "i8"), ((16, 4), "i8")], {}, TensorType((8, 4), DType.I32)),
        (
            "matmul",
            [((8, 16), "f8e4m3"), ((16, 4), "f8e4m3")],
            {"accumulate": "fast"},
            TensorType((8, 4), DType.F32),
        ),
        ("add", [((8, 1), "bf16"), ((4,), "f8e5m2")], {}, TensorType((8, 4), DType.F32)),
        ("add", [((8,), "i4"), 3], {}, TensorType((8,), DType.I32)),
        ("add", [((8,), "i8"), 3.0], {}, TensorType((8,), DType.F32)),
        ("div", [((8,), "i32"), 2], {}, TensorType((8,), DType.F32)),
        ("less", [((8, 1), "i32"), ((1, 8), "i32")], {}, TensorType((8, 8), DType.BOOL)),
        ("where", [((8, 1), "bool"), ((4,), "bf16"), "-inf"], {}, TensorType((8, 4), DType.F32)),
        ("reshape", [((8, 4), "bf16")], {"shape": [2, 4, 4]}, TensorType((2, 4, 4), DType.BF16)),
        ("reshape", [((1,), "f32")], {"shape": []}, TensorType((), DType.F32)),
        ("transpose", [((2, 3, 4), "i8")], {"perm": [2, 0, 1]}, TensorType((4, 2, 3), DType.I8)),
        ("reduce_mean", [((2, 3), "i32")], {"axis": 0}, TensorType((3,), DType.F32)),
        ("reduce_max", [((2, 3), "f16")], {"axis": 1, "keepdims": True}, TensorType((2, 1), DType.F32)),
        ("rms_norm", [((2, 3), "f16"), ((3,), "f16")], {"eps": 0}, TensorType((2, 3), DType.F32)),
        ("dequantize", [((4, 8), "i4"), ((4, 2), "f16"), 8], {"group": 4}, TensorType((4, 8), DType.F32)),
        ("cast", [((4, 8), "bool")], {"dtype": "i4"}, TensorType((4, 8), DType.I4)),
    ],
)
def test_result_types(op: str, tensors: list[Any], attrs: dict[str, Any], expected: TensorType) -> None:
    assert last(single(op, *tensors, **attrs)).type == expected


def test_nodes_that_nothing_reads_and_unused_inputs_are_allowed() -> None:
    graph = parse_graph(changed({"/nodes/-": node("i", "iota", shape=[4], axis=0)}), "t")
    assert graph.outputs == ("y",)


def test_importing_the_graph_room_loads_no_heavy_package() -> None:
    code = "import sys, wsopt.graph; print({'torch', 'triton', 'ortools', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_graph_says_whether_its_bits_may_depend_on_timing() -> None:
    asked = parse_graph(changed({"/deterministic": True}), "t")
    assert (asked.deterministic, parse_graph(MLP, "t").deterministic) == (True, False)
    assert parse_graph(graph_to_json(asked), "t") == asked
    assert "deterministic" not in graph_to_json(parse_graph(MLP, "t"))
