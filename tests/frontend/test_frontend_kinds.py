"""What products and reductions of a graph are to each other: told once, for graphs of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from tile_graphs import product, region_of

from wsopt.frontend.kinds import Kind, depending, feeding, is_matmul, kind_of
from wsopt.frontend.region import PASSES
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.needed import live_nodes, needed
from wsopt.graph.parse import load_graph
from wsopt.tensors.views import Role

PROBLEMS = Path(__file__).parents[2] / "problems"
KINDS = {
    "gemm_bias_gelu": Kind.PRODUCTS,
    "gemm_swiglu": Kind.PRODUCTS,
    "attention_causal": Kind.CHAIN,
    "linear_attention_causal": Kind.CHAIN,
    "rms_norm_matmul": Kind.SCALED,
    "router": Kind.REDUCED,
    "layer_norm": Kind.ROWS,
    "softmax_rows": Kind.ROWS,
}


@pytest.mark.parametrize("name", KINDS)
def test_a_graph_is_of_one_kind(name: str) -> None:
    assert kind_of(needed(load_graph(PROBLEMS / f"{name}.json"))) is KINDS[name]


def test_reductions_go_along_the_stream_or_rows_that_a_tile_holds() -> None:
    along = {kind: kind.along for kind in Kind}
    assert [kind for kind, role in along.items() if role is Role.COLUMN] == [
        Kind.REDUCED, Kind.ROWS, Kind.LONG_ROWS, Kind.ELEMENTWISE,
    ]  # fmt: skip
    assert set(along.values()) == {Role.COLUMN, Role.STREAM}


def test_passes_of_one_kind_do_not_run_where_nothing_is_reduced() -> None:
    assert {kind for _, kinds in PASSES for kind in kinds} == set(Kind) - {Kind.PRODUCTS, Kind.ELEMENTWISE}


def test_a_graph_with_neither_products_nor_reductions_is_elementwise() -> None:
    g = GraphBuilder("small")
    g.output(g.relu(g.input("x", (64, 64), "bf16"), name="y"))
    assert kind_of(g.build()) is Kind.ELEMENTWISE


def test_what_depends_on_a_product_and_what_feeds_it() -> None:
    g = GraphBuilder("small")
    p = product(g)
    b = g.mul(g.input("b", (512,), "f32"), 2.0, name="b2")
    g.output(g.add(p, b, name="y"))
    live = live_nodes(g.build())
    assert depending(live, is_matmul) == {"p", "y"}
    assert feeding(live, ["b2"]) == {"b2", "b"}
    assert feeding(live, ["y"]) == {"y", "p", "b2", "b", "x", "w"}


def test_equal_values_after_a_product_are_computed_once() -> None:
    def body(g: GraphBuilder) -> Symbol:
        rows = [g.cast(g.iota(shape=(256, 512), axis=0), dtype="f32") for _ in range(2)]
        return g.cast(product(g) * rows[0] + rows[1], dtype="bf16", name="y")

    found = [statement.primitive for statement in region_of(body).statements]
    assert found == ["iota_row", "round_f32", "mul", "add", "round_bf16"]
