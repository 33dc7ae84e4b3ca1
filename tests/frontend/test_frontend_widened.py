"""Attention over keys and values of 8 bits: what the loop multiplies, where scales go, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.frontend.roles import graph_axes
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs, relative_error
from wsopt.graph.types import DType, Graph
from wsopt.lowering.reduced_graph import at_extents
from wsopt.lowering.structures import structures
from wsopt.machine import load_machine

B, H, KEYS, D = 2, 2, 256, 64
SCALES = {
    "none": None,
    "tensor": (),
    "head": (B, H, 1, 1),
    "token": (B, H, KEYS, 1),
    "channel": (B, H, 1, D),
}


def attention(
    keys: str, values: str, dtype: str = "i8", wide: str = "bf16", *, dequantized: bool = False
) -> Graph:
    g = GraphBuilder("quantized")

    def operand(name: str, scale: str) -> Symbol:
        x, shape = g.input(name, (B, H, KEYS, D), dtype), SCALES[scale]
        if shape is None:
            return g.cast(x, dtype=wide)
        by = g.input(f"{name}_scale", shape, "f32")
        return g.cast(g.dequantize(x, by, group=D) if dequantized else g.mul(x, by), dtype=wide)

    q = g.input("q", (B, H, 16, D), wide)
    scores = g.matmul(q, operand("k", keys), transpose_b=True, name="scores")
    p = g.cast(g.softmax(g.mul(scores, 0.125)), dtype=wide)
    g.output(g.cast(g.matmul(p, operand("v", values), name="mixed"), dtype=wide, name="out"))
    return g.build()


@pytest.mark.parametrize("dtype", ["i8", "f8e4m3", "f8e5m2"])
@pytest.mark.parametrize(
    ("keys", "values"), [("none", "none"), ("tensor", "head"), ("token", "token"), ("head", "channel")]
)
def test_operands_are_the_tensors_as_they_lie(keys: str, values: str, dtype: str) -> None:
    region = find_region(attention(keys, values, dtype))
    assert [view.tensor for view in region.widened] == ["k", "v"]
    assert {view.dtype for view in region.widened} == {DType(dtype)}
    assert region.operand_dtype is DType.BF16
    streamed = {source.view.tensor for source in region.streamed_sources}
    assert streamed == {f"{name}_scale" for name, scale in (("k", keys), ("v", values)) if scale == "token"}


@pytest.mark.parametrize("dtype", ["i8", "f8e4m3"])
@pytest.mark.parametrize(
    ("keys", "values"), [("none", "none"), ("tensor", "head"), ("token", "token"), ("head", "channel")]
)
def test_scales_in_their_new_places_mean_the_same(keys: str, values: str, dtype: str) -> None:
    graph = attention(keys, values, dtype)
    moved = at_extents(graph_axes(graph), {})
    inputs = random_inputs(graph, 3)
    wanted, found = (np.asarray(evaluate(one, inputs)["out"], np.float32) for one in (graph, moved))
    assert [node.op for node in moved.nodes] != [node.op for node in graph.nodes] or keys == values == "none"
    assert relative_error(found, wanted) < 1e-2, "a rounding to bf16 more or less"
    if keys != "none":
        inputs["k_scale"] = inputs["k_scale"] * 3
        assert relative_error(evaluate(moved, inputs)["out"].astype(np.float32), wanted) > 2e-2


def test_dequantize_of_whole_rows_is_a_scale_a_token() -> None:
    region = find_region(attention("token", "token", dequantized=True))
    assert [view.tensor for view in region.widened] == ["k", "v"]


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        (
            attention("channel", "none"),
            "scores: k_scale multiplies operand 1 .* along the contracted axis; multiply by",
        ),
        (
            attention("none", "token", wide="f16"),
            "mixed: v_scale .* rounded to f16: round both operands to bf16",
        ),
    ],
)
def test_scales_that_stay_are_refused(graph: Graph, says: str) -> None:
    with pytest.raises(LoweringError, match=says):
        find_region(graph)


def test_bf16_instead_of_f16_is_taken() -> None:
    assert find_region(attention("none", "token")).widened


def test_blackwell_refuses_it() -> None:
    with pytest.raises(LoweringError, match="operands of 8 bits, which a loop that computes values widens"):
        next(structures(find_region(attention("none", "none")), load_machine("b200")))


def test_every_structure_has_a_transform_warpgroup() -> None:
    every = list(structures(find_region(attention("none", "none")), load_machine("h200")))
    assert every
    assert {s.transforms for s in every} == {1, 2}
