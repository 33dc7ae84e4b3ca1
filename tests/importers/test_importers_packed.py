"""What depends on weights alone is computed while a model is read, and weights that are read as they lie stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx_models import computed, written

from wsopt.importers.read import import_model

RNG = np.random.default_rng(0)


def _weight(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_convolutions_weight_is_turned_once(tmp_path: Path) -> None:
    text = "agraph (float[2,4,8,8] x) => (float y) { y = Conv <pads = [1,1,1,1]> (x, w, b) }"
    path = written(tmp_path, text, w=_weight(6, 4, 3, 3), b=_weight(6))
    found = import_model(path, {})
    assert {one.name: one.type.shape for one in found.graph.inputs} == {
        "x": (2, 4, 8, 8),
        "b": (6,),
        "w_packed": (6, 36),
    }
    assert found.origins == {"b": "b", "w_packed": "w"}
    ((actual, expected),) = computed(found, path)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_channels_of_an_image_become_whole_rows(tmp_path: Path) -> None:
    text = "agraph (float[2,3,8,8] x) => (float y) { y = Conv <strides = [2,2]> (x, w) }"
    path = written(tmp_path, text, w=_weight(6, 3, 3, 3))
    found = import_model(path, {})
    assert found.graph.type_of("w_packed").shape == (6, 9 * 4)
    ((actual, expected),) = computed(found, path)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_what_is_computed_of_two_weights_is_one(tmp_path: Path) -> None:
    text = "agraph (float[4,6] x) => (float y) {\np = Mul (w, s)\nq = Transpose (p)\ny = MatMul (x, q)\n}"
    path = written(tmp_path, text, w=_weight(8, 6), s=_weight(8, 6))
    found = import_model(path, {})
    assert [node.op for node in found.graph.nodes] == ["matmul"]
    assert found.origins == {"w_packed": "w, s"}
    ((actual, expected),) = computed(found, path)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        "y = Gemm <transB = 1> (x, w)",
        "t = Transpose (w)\ny = MatMul (x, t)",
        "c = Cast <to = 1> (i)\nt = Transpose (c)\ny = MatMul (x, t)",
    ],
)
def test_weights_that_are_read_as_they_lie_or_would_grow_stay(tmp_path: Path, body: str) -> None:
    text = f"agraph (float[4,6] x) => (float y) {{\n{body}\n}}"
    path = written(tmp_path, text, w=_weight(8, 6), i=np.ones((8, 6), np.int8))
    found = import_model(path, {})
    (constant,) = (one for one in found.graph.inputs if one.constant)
    assert constant.name == ("i" if "Cast" in body else "w")
    ((actual, expected),) = computed(found, path)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
