"""Roundings inside of a piece: which are left out, and which stay."""

from __future__ import annotations

from wsopt.graph import Graph, GraphBuilder
from wsopt.torch.rounding import without_roundings


def casts(graph: Graph) -> list[str]:
    """The casts that are left, and what they read."""
    left = without_roundings(graph.nodes, graph.outputs)
    known = {one.name for one in graph.inputs}
    for node in left:
        assert set(node.tensors) <= known, "a node reads what is there"
        known.add(node.name)
    assert set(graph.outputs) <= known
    return [f"{node.name} of {node.inputs[0]}" for node in left if node.op == "cast"]


def builder() -> GraphBuilder:
    return GraphBuilder("piece")


def test_a_rounding_between_elementwise_operations_is_left_out() -> None:
    g = builder()
    x = g.input("x", (8, 8), "bf16")
    a = g.cast(g.exp(x, name="e"), dtype="bf16", name="a")
    b = g.cast(a, dtype="f32", name="b")
    g.output(g.cast(g.add(b, 1.0, name="s"), dtype="bf16", name="y"))
    assert casts(g.build()) == ["y of s"]


def test_what_leaves_the_piece_is_rounded_for_others_too() -> None:
    g = builder()
    x = g.input("x", (8, 8), "bf16")
    a = g.cast(g.exp(x, name="e"), dtype="bf16", name="a")
    g.output(a, g.cast(g.add(a, 1.0, name="s"), dtype="bf16", name="y"))
    assert casts(g.build()) == ["a of e", "y of s"]


def test_operands_and_results_of_products_are_rounded() -> None:
    g = builder()
    x, w = g.input("x", (8, 8), "bf16"), g.input("w", (8, 8), "bf16")
    a = g.cast(g.exp(x, name="e"), dtype="bf16", name="a")
    h = g.cast(g.matmul(a, w, name="p"), dtype="bf16", name="h")
    g.output(g.cast(g.add(h, 1.0, name="s"), dtype="bf16", name="y"))
    assert casts(g.build()) == ["a of e", "h of p", "y of s"]


def test_a_value_that_a_product_reads_as_well_is_rounded_for_all() -> None:
    g = builder()
    x, w = g.input("x", (8, 8), "bf16"), g.input("w", (8, 8), "bf16")
    a = g.cast(g.exp(x, name="e"), dtype="bf16", name="a")
    h = g.matmul(a, w, name="p")
    g.output(g.cast(g.add(h, a, name="s"), dtype="bf16", name="y"))
    assert casts(g.build()) == ["a of e", "y of s"]


def test_inputs_are_widened_and_other_types_stay() -> None:
    g = builder()
    x = g.input("x", (8, 8), "bf16")
    a = g.cast(x, dtype="f32", name="a")
    b = g.cast(g.exp(a, name="e"), dtype="f8e4m3", name="b")
    g.output(g.cast(g.add(b, 1.0, name="s"), dtype="bf16", name="y"))
    assert casts(g.build()) == ["a of x", "b of e", "y of s"]
