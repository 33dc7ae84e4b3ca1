"""Kernels that deal in places of a row: arg max of held and of long rows, running sums, rows counted in a loop."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emit_builds import Body, build, case, graph_of, h200, structure
from tile_graphs import region_of

from wsopt.codegen import compile_kernel
from wsopt.errors import LoweringError
from wsopt.frontend.row_roles import MOST_COMPARED
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.ops import OPS
from wsopt.graph.reference import random_inputs
from wsopt.interpret import execute
from wsopt.lowering.structures import structures

Array = Any
HELD = structure(columns=1024, depth=1, consumers=2, rows=2)
LONG = structure(columns=4096, depth=1, consumers=1, rows=2)


def arg_max(rows: int, columns: int) -> Body:
    return lambda g: g.reduce_argmax(g.input("x", (rows, columns), "bf16"), axis=-1, name="y")


def running_sums(rows: int, columns: int) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (rows, columns), "bf16")
        return g.cast(g.sub(g.cumsum(x, axis=-1), x), "bf16", name="y")

    return body


def added_rows(g: GraphBuilder) -> Symbol:
    """What the refusal of `scatter_add` says to write instead, with a factor of each row behind the product."""
    x, factor = g.input("x", (100, 64), "bf16"), g.input("factor", (100, 1), "f32")
    rows, indices = g.input("rows", (96, 64), "bf16"), g.input("indices", (1, 96), "i32")
    hot = g.cast(g.cast(g.equal(g.iota(shape=(100, 1), axis=0), indices), "f32"), "bf16")
    return g.cast(g.add(x, g.mul(g.matmul(hot, rows, name="p"), factor)), "bf16", name="y")


def hard_rows(columns: int) -> Array:
    """Rows with equal largest elements, not-a-numbers in some part of a row, and infinities of one sign alone."""
    x = -np.abs(np.random.default_rng(0).standard_normal((9, columns))) - 1
    last = columns - 1
    x[0, [5, columns // 2, last]] = 7
    x[1, last] = 0
    x[2, [columns // 3, last]] = np.nan
    x[3, [2, last]] = [9, np.nan]
    x[4] = -np.inf
    x[5, [columns // 2, last]] = np.inf
    x[6, [1, columns // 2]] = [np.nan, np.inf]
    x[7] = -4
    return x.astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("columns", "cut"), [(1000, HELD), (MOST_COMPARED + 9608, LONG)], ids=["held", "long"]
)
def test_arg_max_is_the_first_of_equals_and_the_first_that_is_no_number(columns: int, cut: Any) -> None:
    made = build(graph_of(arg_max(9, columns)), cut)
    x = hard_rows(columns)
    found = execute(made.source, {"x": x}, seed=0, processors=2).outputs["y"]
    expected = OPS["reduce_argmax"].evaluate((x,), {"axis": 1, "keepdims": False})
    assert found.dtype == np.int32
    assert found.tolist() == expected.tolist()
    assert made.verified.program.long_rows == (columns > MOST_COMPARED)


def test_places_of_long_rows_begin_anew_where_the_largest_grows() -> None:
    made = build(graph_of(arg_max(9, MOST_COMPARED + 9608)), LONG)
    inputs = {"x": hard_rows(MOST_COMPARED + 9608)}
    kept = [
        line.strip() for line in made.source.splitlines() if "gl.where(" in line and "gl.maximum(" in line
    ]
    assert len(kept) == 1
    name = kept[0].partition(" ")[0]
    condition = kept[0].partition("gl.where(")[2].partition(",")[0]
    broken = made.source.replace(f"gl.where({condition}, {name}, NEG_INF)", name)
    assert broken != made.source
    expected = OPS["reduce_argmax"].evaluate((inputs["x"],), {"axis": 1, "keepdims": False})
    found = execute(broken, inputs, seed=0, processors=2).outputs["y"]
    assert found.tolist() != expected.tolist()


def test_running_sums_take_whole_rows() -> None:
    graph = graph_of(running_sums(12, 600))
    made = build(graph, HELD)
    assert case(graph).fault(made.source, 1) is None
    assert made.verified.program.whole_rows
    shifted = made.source.replace("gl.associative_scan(tile, 1, plus)", "gl.associative_scan(tile, 0, plus)")
    assert shifted != made.source
    assert case(graph).fault(shifted, 1) is not None
    assert {s.columns for s in structures(region_of(running_sums(12, 600)), h200())} == {1024}


def test_a_loop_counts_its_rows_also_where_the_epilogue_has_vectors_along_them() -> None:
    graph = graph_of(added_rows)
    inputs = random_inputs(graph, 0)
    inputs["indices"] = np.random.default_rng(1).integers(-3, 103, (1, 96)).astype(np.int32)
    made = build(graph, structure(columns=64, depth=32))
    assert case(graph, inputs=inputs).fault(made.source, 1) is None
    hot = OPS["scatter_add"].evaluate(
        (np.zeros((100, 64), np.float32), inputs["indices"][0], inputs["rows"]), {}
    )
    expected = inputs["x"].astype(np.float32) + hot * inputs["factor"]
    found = execute(made.source, inputs, seed=0).outputs["y"]
    np.testing.assert_allclose(found.astype(np.float32), expected, rtol=0.02, atol=0.02)


def after_product(op: str) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (64, 64), "bf16"), g.input("w", (64, 64), "bf16")
        return g.cast(g.apply(op, [g.matmul(x, w)], {"axis": -1}), "f32", name="y")

    return body


REFUSED: dict[str, tuple[Body, str]] = {
    "i32": (
        lambda g: g.reduce_argmax(g.input("x", (64, 64), "i32"), axis=1),
        "of whole numbers is not lowered",
    ),
    "long computed": (
        lambda g: g.reduce_argmax(g.softmax(g.input("x", (64, 65536), "bf16")), axis=1, name="y"),
        "of reduced rows that no SM holds is not lowered; compute softmax_0 before",
    ),
    "sums of i32": (
        lambda g: g.cumsum(g.input("x", (64, 64), "i32"), axis=1),
        "cumsum of 64 whole numbers whose size is not known is not lowered",
    ),
    "sums of a product": (
        after_product("cumsum"),
        "cumsum beside products is not lowered; compute matmul_0 before",
    ),
    "long sums": (
        lambda g: g.cumsum(g.input("x", (64, 65536), "f32"), axis=1),
        "rows that an SM holds whole",
    ),
    "rows that are added": (
        lambda g: g.scatter_add(
            g.input("x", (64, 64), "f32"), g.input("i", (32,), "i32"), g.input("rows", (32, 64), "f32")
        ),
        'where rows are finite, write it as a product: x + matmul(hot, rows, precision="ieee")',
    ),
    "rows that no tensor has": (
        lambda g: g.matmul(
            g.cast(
                g.cast(g.equal(g.iota(shape=(64, 1), axis=0), g.input("i", (1, 96), "i32")), "f32"), "bf16"
            ),
            g.input("rows", (96, 64), "bf16"),
        ),
        "no input has its rows, which are counted alone",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_to_do(name: str) -> None:
    body, said = REFUSED[name]
    with pytest.raises(LoweringError, match=said.replace("(", r"\(").replace(")", r"\)").replace("+", r"\+")):
        next(iter(structures(region_of(body), h200())))


def test_arg_max_of_a_product_is_in_its_epilogue() -> None:
    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (70, 64), "bf16"), g.input("w", (64, 64), "bf16")
        return g.reduce_argmax(g.matmul(x, w, transpose_b=True), axis=-1, name="y")

    graph = graph_of(body)
    made = build(graph, structure(columns=64))
    assert case(graph).fault(made.source, 1) is None
    assert made.verified.program.whole.products == 1


@pytest.mark.compiler
def test_compiles() -> None:
    assert compile_kernel(build(graph_of(running_sums(12, 600)), HELD).source).stack_bytes == 0
