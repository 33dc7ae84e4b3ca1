"""The baselines run and mean what the graph means. Skipped where there is no torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from wsopt.bench.baselines import build_baseline, check_computes  # noqa: E402
from wsopt.bench.eager_source import Inapplicable  # noqa: E402
from wsopt.runtime.inputs import random_inputs  # noqa: E402
from wsopt.runtime.raw_graph import RawGraph, raw_graph  # noqa: E402
from wsopt.runtime.torch_reference import evaluate, relative_error  # noqa: E402

PROBLEMS = sorted((Path(__file__).parents[2] / "problems").glob("gemm_*.json"))


def small(path: Path) -> RawGraph:
    data = json.loads(path.read_text(encoding="utf-8"))
    for item in data["inputs"]:
        item["shape"] = [1 if extent == 1 else max(16, extent // 1024 * 16) for extent in item["shape"]]
    return raw_graph(data)


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_complete_baselines_agree(path: Path) -> None:
    graph = small(path)
    inputs = random_inputs(graph, 0, "cpu")
    expected = evaluate(graph, inputs)
    tried = 0
    for name in ("eager", "scaled_mm"):
        try:
            baseline = build_baseline(name, graph)
        except Inapplicable:
            continue
        outputs = baseline.bind(graph, inputs)()
        for key, output in zip(graph.outputs, outputs, strict=True):
            assert relative_error(output, expected[key]) < 2e-2, baseline.source
        tried += 1
    assert tried == 1


@pytest.mark.parametrize("name", ["gemm_bias_gelu", "gemm_residual", "gemm_swiglu"])
def test_dynamo_takes_the_eager_code_whole(name: str) -> None:
    graph = small(next(path for path in PROBLEMS if path.stem == name))
    inputs = random_inputs(graph, 0, "cpu")
    call = build_baseline("eager", graph).call
    compiled = torch.compile(call, backend="eager", fullgraph=True, dynamic=False)
    arguments = [inputs[item.name] for item in graph.inputs]
    for ours, theirs in zip(compiled(*arguments), call(*arguments), strict=True):
        assert torch.equal(ours, theirs)


def test_a_compiled_baseline_has_the_outputs_types() -> None:
    """A softmax without a cast is stored as f32, as the kernel does."""
    data = {"inputs": [{"name": "x", "shape": [4, 32], "dtype": "bf16"}], "outputs": ["y"], "name": "g"}
    nodes = [{"name": "y", "op": "softmax", "inputs": ["x"], "attrs": {}}]
    graph = raw_graph({**data, "nodes": nodes})
    inputs = random_inputs(graph, 0, "cpu")
    for name, dtype in (("inductor", torch.float32), ("eager", torch.bfloat16)):
        (output,) = build_baseline(name, graph).bind(graph, inputs)()
        assert output.dtype is dtype
        assert relative_error(output, evaluate(graph, inputs)["y"]) < 1e-2


def test_names() -> None:
    graph = small(PROBLEMS[0])
    with pytest.raises(Inapplicable, match="does not say what its loop computes"):
        build_baseline("sdpa", graph)
    with pytest.raises(ValueError, match="no baseline 'other'"):
        build_baseline("other", graph)


def test_views_of_inputs_are_no_baseline() -> None:
    x, w = torch.ones(4, 6), torch.ones(6)
    with pytest.raises(Inapplicable, match="views of the inputs"):
        check_computes((x.T, w[1:]), (x, w))
    check_computes((x.T, x + 1), (x, w))
    check_computes((), (x,))
