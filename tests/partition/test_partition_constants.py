"""What depends on constants alone is made apart from the rest, and the two together mean what the graph means."""

from __future__ import annotations

import numpy as np
import pytest

from wsopt.graph.builder import GraphBuilder
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.partition.constants import folded


def joined() -> Graph:
    """Two products of one tensor with weights that are joined, one of them scaled, and a bias that is computed."""
    g = GraphBuilder("joined")
    x, first = g.input("x", (8, 32), "bf16"), g.input("first", (16, 32), "bf16", constant=True)
    second, scale = (
        g.input("second", (8, 32), "bf16", constant=True),
        g.input("scale", (32,), "f32", constant=True),
    )
    bias = g.input("bias", (24,), "f32", constant=True)
    scaled = g.cast(g.mul(second, scale), "bf16")
    weight = g.transpose(g.concat(first, scaled, axis=0), perm=(1, 0))
    g.output(g.cast(g.add(g.matmul(x, weight), g.add(bias, 1.0)), "bf16", name="y"))
    return g.build()


def test_the_two_mean_what_the_graph_means() -> None:
    graph = joined()
    found = folded(graph)
    assert found is not None
    inputs = random_inputs(graph, 0)
    packed = evaluate(found.prepack, {one.name: inputs[one.name] for one in found.prepack.inputs})
    given = {one.name: packed.get(one.name, inputs.get(one.name)) for one in found.main.inputs}
    np.testing.assert_array_equal(evaluate(found.main, given)["y"], evaluate(graph, inputs)["y"])


def test_products_read_what_is_packed_and_views_of_it_stay() -> None:
    found = folded(joined())
    assert found is not None
    assert [node.op for node in found.prepack.nodes] == ["mul", "cast", "concat"]
    assert [node.op for node in found.main.nodes] == ["transpose", "matmul", "add", "add", "cast"]
    assert {one.name: one.constant for one in found.main.inputs} == {
        "x": False, "bias": True, found.prepack.outputs[0]: True,
    }  # fmt: skip
    assert not found.prepack.constants - {"first", "second", "scale"}


@pytest.mark.parametrize("constant", [True, False])
def test_what_is_not_constant_stays(constant: bool) -> None:
    """Views of a constant are no work; nor is anything folded that a call brings, unless others know better."""
    g = GraphBuilder("plain")
    x, w = g.input("x", (8, 32), "bf16"), g.input("w", (16, 32), "bf16", constant=constant)
    w = w if constant else g.cast(g.mul(w, 2.0), "bf16")
    g.output(g.matmul(x, g.transpose(w, perm=(1, 0)), name="y"))
    graph = g.build()
    assert folded(graph) is None
    known = folded(graph, frozenset({"w"}))
    assert (known is None) is constant
