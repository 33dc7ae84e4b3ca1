"""Tensors of every element type beside products, rows and loops: vectors, scalars and full tiles."""

from __future__ import annotations

import pytest
from emit_builds import Body, build, graph_of, structure

from wsopt.codegen import compile_kernel
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Sharing, Structure
from wsopt.simulation import simulate

ROWS, COLUMNS = 136, 128
SHAPES = {"scalar": (1,), "row": (COLUMNS,), "column": (ROWS, 1), "tile": (ROWS, COLUMNS)}


def product(dtype: str, shape: tuple[int, ...]) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (ROWS, 64), "bf16"), g.input("w", (COLUMNS, 64), "bf16")
        return g.cast(g.matmul(x, w, transpose_b=True) + g.input("s", shape, dtype), dtype="f32", name="y")

    return body


def rows(dtype: str, shape: tuple[int, ...]) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x = g.softmax(g.input("x", (ROWS, COLUMNS), "bf16") * g.input("s", shape, dtype))
        return g.cast(x, dtype="f32", name="y")

    return body


def loop(dtype: str, shape: tuple[int, ...]) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        q, k, v = (g.input(name, (n, 64), "f16") for name, n in (("q", ROWS), ("k", COLUMNS), ("v", COLUMNS)))
        s = g.matmul(q, k, transpose_b=True) * 0.125 + g.input("s", shape, dtype)
        return g.cast(g.matmul(g.cast(g.softmax(s), dtype="f16"), v), dtype="f32", name="y")

    return body


CUTS = {
    "product": (product, structure(128)),
    "swapped": (product, structure(64, swap=True)),
    "rows": (rows, Structure(8, COLUMNS, 1, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1)),
    "loop": (loop, structure(64, 128)),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f16", "f8e4m3", "i32"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CUTS)
def test_a_source_is_read(name: str, shape: str, dtype: str) -> None:
    body, cut = CUTS[name]
    graph = graph_of(body(dtype, SHAPES[shape]))
    made = build(graph, cut)
    assert simulate(graph, made.verified, made.source, 1).seeds == 1


@pytest.mark.compiler
@pytest.mark.parametrize(("name", "shape"), [("swapped", "row"), ("product", "row"), ("loop", "column")])
def test_masked_loads_of_f8_compile(name: str, shape: str) -> None:
    """Elements beyond the end are zeros of the tensor's own type."""
    body, cut = CUTS[name]
    made = build(graph_of(body("f8e4m3", SHAPES[shape])), cut)
    assert "other=0.0" in made.source
    assert compile_kernel(made.source).spill_loads == 0
