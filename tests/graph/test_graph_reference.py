"""The reference evaluator on whole graphs, its random inputs, and the measure of agreement."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from graph_examples import MLP, PROBLEMS, problems_of, single

from wsopt.graph import (
    DType,
    Graph,
    GraphBuilder,
    evaluate,
    load_graph,
    parse_graph,
    random_inputs,
    relative_error,
)


@pytest.fixture(scope="module")
def mlp() -> Graph:
    return parse_graph(MLP, "mlp")


def test_mlp(mlp: Graph) -> None:
    inputs = random_inputs(mlp, 0)
    x, w, b = (inputs[name].astype(np.float64) for name in "xwb")
    a = x @ w.T + b
    expected = 0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))
    (result,) = evaluate(mlp, inputs).values()
    assert result.dtype == ml_dtypes.bfloat16
    assert relative_error(result, expected) < 2**-8


def attention(causal: bool) -> Graph:
    """Grouped-query attention, two query heads to a key head, masked by comparing indices."""
    g = GraphBuilder("attention")
    q, k, v = (g.input(n, (h, 16, 8), "f16") for n, h in (("q", 4), ("k", 2), ("v", 2)))
    grouped = g.reshape(q, (2, 2, 16, 8))
    k, v = (g.reshape(t, (2, 1, 16, 8)) for t in (k, v))
    scores = g.matmul(grouped, k, transpose_b=True) * 8**-0.5
    if causal:
        scores = g.where(g.iota((16, 1), 0) >= g.iota((1, 16), 1), scores, -math.inf)
    product = g.matmul(g.cast(g.softmax(scores), "f16"), v)
    g.output(g.cast(g.reshape(product, (4, 16, 8)), "f16", name="y"))
    return g.build()


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    graph = attention(causal)
    inputs = random_inputs(graph, 1)
    q, k, v = (inputs[name].astype(np.float64) for name in "qkv")
    expected = np.empty_like(q)
    for head in range(4):
        for row in range(16):
            keys = row + 1 if causal else 16
            weights = np.exp(k[head // 2, :keys] @ q[head, row] / math.sqrt(8))
            expected[head, row] = weights @ v[head // 2, :keys] / weights.sum()
    assert relative_error(evaluate(graph, inputs)["y"], expected) < 2**-9


def test_outputs_that_others_read_and_dead_nodes() -> None:
    g = GraphBuilder("g")
    x = g.input("x", (4,), "f32")
    y = g.neg(x, name="y")
    g.exp(x)
    g.output(y, g.add(y, y, name="z"))
    result = evaluate(g.build(), {"x": np.arange(4, dtype=np.float32)})
    assert {name: value.tolist() for name, value in result.items()} == {
        "y": [0, -1, -2, -3],
        "z": [0, -2, -4, -6],
    }


def test_inputs_that_do_not_fit(mlp: Graph) -> None:
    good = random_inputs(mlp, 0)
    bad: dict[str, Any] = {"x": good["x"].astype(np.float32), "w": good["w"].T, "bb": good["b"]}
    problems = problems_of(evaluate, mlp, bad)
    assert [problem.pointer for problem in problems] == ["/bb", "/x", "/w", "/b"]
    assert 'did you mean "b"?' in problems[0].message
    assert problems[1].message == "found float32[8, 16]; wants bfloat16[8, 16]"
    assert problems[3].message == "missing; wants bf16[32]"


def test_random_inputs_are_of_their_types_and_repeat() -> None:
    for dtype in DType:
        graph = single("cast", ((6, 400), dtype.value), dtype="f32")
        (first,), (again,), (other,) = (random_inputs(graph, seed).values() for seed in (3, 3, 4))
        assert (first.shape, first.dtype) == ((6, 400), dtype.numpy)
        assert first.tobytes() == again.tobytes()
        assert first.tobytes() != other.tobytes()
        wide = first.astype(np.float32)
        assert np.isfinite(wide).all()
        if dtype.is_integer:
            assert (wide.min(), wide.max()) == (-8, 7)
        if dtype.is_float:
            assert abs(wide.std() - 1) < 0.1


@pytest.mark.parametrize("strides", [(144, 16, 1), (200, 1, 16), (0, 16, 1), (16, 0, 1), (1, 7, 50)])
def test_random_inputs_lie_in_memory_as_their_strides_say(strides: tuple[int, ...]) -> None:
    for dtype in set(DType) - {DType.I4}:
        g = GraphBuilder("g")
        x = g.input("x", (3, 7, 12), dtype, strides=strides)
        g.output(g.cast(x, dtype="f32", name="y"))
        graph = g.build()
        found = random_inputs(graph, 0)
        assert found["x"].strides == tuple(stride * found["x"].itemsize for stride in strides)
        assert evaluate(graph, found)["y"].tobytes() == found["x"].astype(np.float32).tobytes()
        if 0 not in strides:
            assert (
                found["x"].tobytes()
                == random_inputs(single("cast", ((3, 7, 12), dtype.value), dtype="f32"), 0)["x0"].tobytes()
            )


@pytest.mark.parametrize("transpose", [False, True])
def test_weights_are_scaled_by_what_they_are_contracted_over(transpose: bool) -> None:
    g = GraphBuilder("g")
    x = g.input("x", (256, 1024), "bf16")
    w = g.input("w", (64, 1024) if transpose else (1024, 64), "bf16", constant=True)
    g.output(g.matmul(x, w, transpose_b=transpose, name="y"))
    graph = g.build()
    inputs = random_inputs(graph, 0)
    assert abs(inputs["w"].astype(np.float32).std() * 32 - 1) < 0.05
    assert abs(evaluate(graph, inputs)["y"].std() - 1) < 0.05


# --- agreement ------------------------------------------------------------------------------------------


def test_relative_error() -> None:
    expected = np.array([3.0, 4.0])
    assert relative_error(expected, expected) == 0
    assert relative_error(np.array([3.0, 4.5]), expected) == pytest.approx(0.1)
    assert relative_error(np.zeros(2), np.zeros(2)) == 0
    assert relative_error(expected, np.zeros(2)) == math.inf
    assert relative_error(np.array([], np.float16), np.array([], np.float16)) == 0


def test_relative_error_of_special_values() -> None:
    special = np.array([1.0, np.inf, -np.inf, np.nan])
    assert relative_error(special, special.copy()) == 0
    for index, value in [(0, np.nan), (0, np.inf), (1, -np.inf), (2, 1.0), (3, np.inf), (3, 0.0)]:
        wrong = special.copy()
        wrong[index] = value
        assert relative_error(wrong, special) == math.inf


def test_relative_error_of_large_and_small_arrays() -> None:
    expected = np.ones(2**20 + 3, np.float16)
    actual = expected.copy()
    actual[-1] = 2
    assert relative_error(actual, expected) == pytest.approx(2**-10, rel=1e-4)
    with pytest.raises(ValueError, match="shapes differ"):
        relative_error(np.ones((2, 1)), np.ones(2))


# --- the problem files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_problem(path: Any) -> None:
    graph = load_graph(path)
    assert graph.name == path.stem
    assert graph.doc
    wanted = DType.F16 if graph.name == "gemm_f16_4096" else DType.BF16
    outputs = [name for name in graph.outputs if name != "lse"]  # a statistic beside the result, in f32
    assert all(graph.type_of(name).dtype is wanted for name in outputs)


PRODUCTS = {
    "gemm_bf16": (8192, 8192, 8192),
    "gemm_2048": (2048, 2048, 2048),
    "gemm_small_k": (4096, 4096, 512),
    "gemm_tall": (16384, 1024, 8192),
    "gemm_ffn": (8192, 14336, 4096),
    "gemm_ragged": (1000, 4104, 520),
    "gemm_residual": (8192, 4096, 4096),
    "gemm_bias_gelu": (8192, 14336, 4096),
    "gemm_swiglu": (8192, 14336, 4096),
    "gemm_f8": (8192, 8192, 8192),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_problem_extents(name: str) -> None:
    graph = load_graph(PROBLEMS[0].parent / f"{name}.json")
    (m, k), n = graph.inputs[0].type.shape, graph.inputs[1].type.shape[0]
    assert (m, n, k) == PRODUCTS[name]
    assert graph.type_of(graph.outputs[0]).shape == (m, n)
    assert graph.inputs[1].constant


def test_inputs_lie_in_memory_as_their_strides_say() -> None:
    g = GraphBuilder("strided")
    x = g.input("x", (3, 4), "bf16", strides=(1, 5))
    r = g.input("r", (3, 4), "f32", strides=(0, 1))
    g.output(g.add(x, r, name="y"))
    arrays = random_inputs(g.build(), 0)
    assert arrays["x"].strides == (2, 10)
    assert arrays["r"].strides == (0, 4)
    assert (arrays["r"] == arrays["r"][0]).all()
    dense = GraphBuilder("dense")
    dense.output(dense.relu(dense.input("x", (3, 4), "bf16")))
    assert (arrays["x"] == random_inputs(dense.build(), 0)["x"]).all()
