"""`wsopt import` as a person runs it: graph and weights are written, or nothing and all that is wrong is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_runs import assert_says, wsopt

from wsopt.cli.import_ import import_
from wsopt.errors import InputError
from wsopt.graph.parse import load_graph
from wsopt.graph.reference import evaluate
from wsopt.importers.weights import check_weights, write_weights

BODY = "g (bfloat16[n, 64] x) => (bfloat16[n, 32] y) {\n p = MatMul (x, w)\n y = Relu (p)\n}"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx = pytest.importorskip("onnx")
    import ml_dtypes
    from onnx_models import written

    w = np.random.default_rng(0).standard_normal((64, 32)).astype(ml_dtypes.bfloat16)
    path = written(tmp_path, BODY)
    whole = onnx.load(path)
    tensor = onnx.TensorProto(
        name="w", data_type=onnx.TensorProto.BFLOAT16, dims=w.shape, raw_data=w.tobytes()
    )
    whole.graph.initializer.append(tensor)
    onnx.save(whole, path)
    return path


def test_a_model_becomes_a_graph_that_is_compiled(model: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    folder = model.parent
    done = wsopt(
        folder,
        "import",
        "model.onnx",
        "-o",
        "graph.json",
        "--dim",
        "n=8",
        "--weights",
        "w.safetensors",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["inputs"] == {"x": "bf16[8, 64]"}
    assert facts["outputs"] == {"y": "bf16[8, 32]"}
    assert (facts["constants"], facts["constant_bytes"]) == ({"w": "w"}, 4096)
    graph = load_graph(folder / "graph.json")
    weights = safetensors.load_file(folder / "w.safetensors")
    x = np.ones((8, 64), graph.type_of("x").dtype.numpy)
    y = evaluate(graph, {"x": x, "w": np.asarray(weights["w"]).view(x.dtype)})["y"]
    assert y.shape == (8, 32)
    assert (y >= 0).all()


def test_nothing_is_written_where_something_is_wrong(model: Path) -> None:
    folder = model.parent
    before = sorted(folder.iterdir())
    assert_says(wsopt(folder, "import", "model.onnx"), 2, 'the extent "n" is open', "--dim n=128")
    done = wsopt(folder, "import", "model.onnx", "--dim", "n=8", "--weights", "w.npz")
    assert_says(done, 2, "NumPy's files have no bfloat16; give a name that ends in .safetensors")
    assert sorted(folder.iterdir()) == before


def test_what_no_graph_says_has_status_3(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from onnx_models import written

    written(tmp_path, "g (float[4] x) => (float[4] y) {\n z = Asinh (x)\n y = Elu (z)\n}")
    assert_says(wsopt(tmp_path, "import", "model.onnx"), 3, '/graph/node/0: Asinh ("z"): no entry for Asinh')


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    for name in ("w.txt", "w"):
        with pytest.raises(InputError, match="names no format of arrays"):
            check_weights(tmp_path / name)
    with pytest.raises(InputError, match="cannot be written"):
        write_weights(tmp_path / "no" / "w.npz", {"w": np.ones(2, np.float32)})
    for target, told in (
        ("no/g.json", "no place for a graph"),
        ("", "no place for a graph"),
        ("model.onnx", "itself"),
    ):
        with pytest.raises(InputError, match=told):
            import_(tmp_path / "model.onnx", tmp_path / target)


def test_packages_that_are_missing(tmp_path: Path) -> None:
    from test_cli_requirements import without

    (tmp_path / "a.onnx").touch()
    (tmp_path / "a.pt2").touch()
    hidden = without("onnx", "torch", "safetensors")
    assert_says(
        wsopt(tmp_path, "import", "a.onnx", first=hidden), 2, "onnx is not installed", "pip install 'onnx>="
    )
    done = wsopt(tmp_path, "import", "a.pt2", "--weights", "w.safetensors", first=hidden)
    assert_says(done, 2, "safetensors is not installed", "a .npz file needs nothing more")
