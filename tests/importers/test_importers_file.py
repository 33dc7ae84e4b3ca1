"""Whole ONNX files: what depends on no input is computed, extents are fixed, what is not said is listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx_models import computed, written  # noqa: E402

from wsopt.errors import InputError, LoweringError  # noqa: E402
from wsopt.importers.model import parse_extents, plain_name  # noqa: E402
from wsopt.importers.onnx_model import import_onnx  # noqa: E402
from wsopt.importers.read import import_model  # noqa: E402

W = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
HEADS = """g (float[B, tokens, 8] x) => (float[B, tokens, 8] y) {
    s = Shape (x)
    b = Gather <axis = 0> (s, zero)
    t = Gather <axis = 0> (s, one)
    batch = Unsqueeze (b, first)
    rows = Unsqueeze (t, first)
    shape = Concat <axis = 0> (batch, rows, heads)
    p = MatMul (x, w)
    q = Reshape (p, shape)
    h = Transpose <perm = [0, 2, 1, 3]> (q)
    k = Transpose <perm = [0, 2, 3, 1]> (q)
    scores = MatMul (h, k)
    ends = Range (zero, t, one)
    row = Unsqueeze (ends, last)
    seen = LessOrEqual (ends, row)
    masked = Where (seen, scores, least)
    weights = Softmax (masked)
    mixed = MatMul (weights, h)
    back = Transpose <perm = [0, 2, 1, 3]> (mixed)
    flat = Shape (x)
    y = Reshape (back, flat)
}"""
"""A causal attention whose shapes are computed from its input's."""
CONSTANTS: dict[str, Any] = {
    "zero": np.int64(0),
    "one": np.int64(1),
    "first": np.array([0]),
    "last": np.array([1]),
    "heads": np.array([2, 4]),
    "w": W,
    "least": np.float32(-np.inf),
}


def test_shapes_and_masks_are_computed(tmp_path: Path) -> None:
    path = written(tmp_path, HEADS, **CONSTANTS)
    found = import_onnx(path, {"B": 2, "tokens": 6})
    ops = [node.op for node in found.graph.nodes]
    assert [one.name for one in found.graph.inputs] == ["x", "w"]
    assert ops.count("less_equal") == 1
    assert found.graph.type_of("y").shape == (2, 6, 8)
    x = np.random.default_rng(0).standard_normal((2, 6, 8)).astype(np.float32)
    fixed = onnx.load(path)
    for dim, extent in zip(fixed.graph.input[0].type.tensor_type.shape.dim, x.shape, strict=True):
        dim.dim_value = extent
    onnx.save(fixed, path)
    ((actual, expected),) = computed(found, path, x=x)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_elements_of_a_known_table_are_computed_however_long_it_is(tmp_path: Path) -> None:
    """Types of tokens by position, as an exporter writes them of a buffer."""
    body = """g (float[2, 5] x) => (float[2, 5] y) {
        at = GatherElements <axis = 1> (table, places)
        kinds = Cast <to = 1> (at)
        y = Add (x, kinds)
    }"""
    table = np.arange(160).reshape(2, 80) % 3
    places = np.array([[0, 7, 14, 21, -1], [1, 8, 15, 22, -2]])
    found = import_onnx(written(tmp_path, body, table=table, places=places), {})
    (kinds,) = found.contents().values()
    np.testing.assert_array_equal(kinds, np.take_along_axis(table, places, 1).astype(np.float32))


def test_open_extents_are_told_all_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, HEADS, **CONSTANTS)
    with pytest.raises(InputError) as caught:
        import_onnx(path, {"token": 6})
    text = str(caught.value)
    assert (
        '/graph/input/0 (x, axis 0): the extent "B" is open; a graph\'s are fixed, so give it: --dim B=128'
        in text
    )
    assert "--dim tokens=128" in text
    assert '--dim token=6: the model has no open extent of this name; did you mean "tokens"?' in text


@pytest.mark.parametrize("words", [["a"], ["a=0"], ["=3"], ["a=-1"], ["a=1", "a=2"], ["a=2147483648"]])
def test_words_that_are_no_extents(words: list[str]) -> None:
    assert parse_extents(["x.0=4", "a=b=7"]) == {"x.0": 4, "a=b": 7}
    with pytest.raises(InputError):
        parse_extents(words)


def test_an_extent_without_a_name_goes_by_its_place(tmp_path: Path) -> None:
    path = written(tmp_path, "g (float[?, 4] x) => (float[?, 4] y) {\n y = Exp (x)\n}")
    with pytest.raises(InputError, match=r"--dim x\.0=128"):
        import_onnx(path, {})
    assert import_onnx(path, {"x.0": 3}).graph.type_of("y").shape == (3, 4)


def test_what_is_not_said_is_listed_at_once_and_what_follows_is_not(tmp_path: Path) -> None:
    body = """g (float[4,4] x, double[4] d) => (float[4,4] y, float[4,4] z, double[4] e) {
        a = Det (x)
        b = Add (x, a)
        dead = TopK_of_nothing (x)
        [third] c = com.other.Thing (x)
        y = Mul (b, c)
        e = Exp (d)
        z = Exp (x)
    }"""
    with pytest.raises(LoweringError) as caught:
        import_onnx(written(tmp_path, body, others=', "com.other": 1'), {})
    source = tmp_path / "model.onnx"
    assert str(caught.value).splitlines() == [
        f'{source}: /graph/input/1: input ("d"): double is no type of our graphs',
        f'{source}: /graph/node/0: Det ("a"): no entry for Det',
        f'{source}: /graph/node/3: Thing ("third"): no entry for Thing of com.other',
    ]


def test_names_are_a_graphs_and_stand_once(tmp_path: Path) -> None:
    body = 'g (float[4] "0", float[4] "a.b", float[4] "a/b") => (float[4] "out:0") {\n' + (
        ' "a_b" = Mul ("0", "a.b")\n "inf" = Add ("a_b", "a/b")\n "out:0" = Exp ("inf")\n}'
    )
    path = written(tmp_path, body)
    found = import_onnx(path, {})
    assert [one.name for one in found.graph.inputs] == ["_0", "a_b", "a_b_2"]
    assert [node.name for node in found.graph.nodes] == ["a_b_3", "_inf", "out_0"]
    assert [plain_name(word) for word in ("", "é", "x__1", "nan")] == ["value", "value", "x_1", "_nan"]


def test_outputs_that_are_views_inputs_or_twice_the_same(tmp_path: Path) -> None:
    body = """g (float[2,6] x) => (float[2,6] same, float[12] flat, float[2,6] e, float[2,6] again) {
        same = Identity (x)
        flat = Flatten <axis = 0> (x)
        e = Exp (x)
        again = Identity (e)
    }""".replace("float[12] flat", "float[1,12] flat")
    path = written(tmp_path, body)
    found = import_onnx(path, {})
    assert found.graph.outputs == ("same", "flat", "e", "again")
    for actual, expected in computed(found, path):
        np.testing.assert_array_equal(actual.reshape(-1), expected.reshape(-1))
    number = written(
        tmp_path, "g (float[2] x) => (float[2] y) {\n y = Sub (half, half)\n}", half=np.float32(0.5)
    )
    with pytest.raises(LoweringError, match=r"/graph/output/0: output \(\"y\"\): it is the number 0.0"):
        import_onnx(number, {})


def test_functions_of_the_file_are_written_out(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 20, "own": 1]>\n'
        "g (float[4] x) => (float[4] y) {\n y = own.twice (x)\n}\n"
        '<domain: "own", opset_import: ["": 20]>\ntwice (a) => (b) {\n b = Add (a, a)\n}'
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    ((actual, expected),) = computed(import_onnx(path, {}), path)
    np.testing.assert_array_equal(actual, expected)


def test_contents_in_files_beside_the_model(tmp_path: Path) -> None:
    body = "g (float[4,8] x) => (float[4,8] y) {\n y = MatMul (x, w)\n}"
    path = written(tmp_path, body, w=W)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    found = import_onnx(path, {})
    np.testing.assert_array_equal(found.contents()["w"], W)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(InputError, match="the contents of w cannot be read"):
        import_onnx(path, {}).contents()


def test_integers_that_are_no_indices_are_constants(tmp_path: Path) -> None:
    body = "g (float[4] x) => (float[4] y) {\n f = Cast <to = 1> (table)\n y = Mul (x, f)\n}"
    path = written(tmp_path, body, table=np.array([3, 1, 4, 1]))
    found = import_onnx(path, {})
    ((actual, expected),) = computed(found, path)
    np.testing.assert_array_equal(actual, expected)
    big = written(tmp_path, body, table=np.array([2**40, 1, 4, 1]))
    assert import_onnx(big, {}).contents()["f"].tolist() == [2.0**40, 1, 4, 1]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.onnx", b"\xff\xff", "is no ONNX file"),
        ("a.onnx", b"", "is no ONNX file"),
        ("a.bin", b"", "the ending '.bin' names no format; there are .onnx"),
        ("b.onnx", None, "cannot be read: No such file"),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=told):
        import_model(tmp_path / name, {})


def test_a_training_dropout_is_refused(tmp_path: Path) -> None:
    body = "g (float[4] x) => (float[4] y) {\n y = Dropout (x, ratio, mode)\n}"
    path = written(tmp_path, body, ratio=np.float32(0.1), mode=np.bool_(True))
    with pytest.raises(LoweringError, match="export the model for inference"):
        import_onnx(path, {})
