"""Tensors that threads read by address: strides are what they are at the call, but for the one that has to be one."""

from __future__ import annotations

import numpy as np
import pytest
from emit_builds import Emitted, build, graph_of, h200, structure

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.agreement import Referee, expectations
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.interpret import InterpreterError, execute
from wsopt.lowering.structures import structures
from wsopt.simulation import TOLERANCE, simulate

ROWS, COLUMNS = 136, 64


def attention_of_one(g: GraphBuilder) -> Symbol:
    """Attention of one query and one key a head; slope and indices have one element along the queries, too."""
    q, k, v = (g.input(name, (4, 1, 128), "bf16") for name in "qkv")
    p = g.softmax(g.matmul(q, k, transpose_b=True) * 0.125)
    mean = g.matmul(g.cast(p, dtype="bf16"), v) + g.input("slope", (4, 1, 1), "f16")
    row, column = (g.iota((1, 128), axis=axis) for axis in (0, 1))
    return g.cast(g.where(column <= row, mean, -2.0), dtype="f32", name="y")


def biased(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (ROWS, 64), "bf16"), g.input("w", (COLUMNS, 64), "bf16")
    return g.cast(g.matmul(x, w, transpose_b=True) + g.input("b", (COLUMNS,), "bf16"), dtype="f32", name="y")


def test_axes_of_one_element_may_have_more_at_the_call() -> None:
    made = build(graph_of(attention_of_one), structure(128, 64))
    found = simulate(made.graph, made.verified, made.source, 1)
    assert any(run.graph.type_of("slope").shape[1] > 1 for run in found.runs)


@pytest.fixture(scope="module")
def product() -> Emitted:
    return build(graph_of(biased), structure())


def test_a_vector_with_gaps_is_refused(product: Emitted) -> None:
    inputs = random_inputs(product.graph, 0)
    inputs["b"] = np.repeat(inputs["b"], 2)[::2]
    with pytest.raises((InterpreterError, ValueError), match="tensor b: dimension 0 has to be contiguous"):
        execute(product.source, inputs, seed=0)


def test_a_vector_is_read_where_it_lies(product: Emitted) -> None:
    inputs = random_inputs(product.graph, 0)
    inputs["b"] = np.concatenate([inputs["b"], inputs["b"]])[3 : 3 + COLUMNS]
    referee = Referee(expectations(product.graph, inputs), {"y": TOLERANCE[product.graph.type_of("y").dtype]})
    found = execute(product.source, inputs, seed=0).outputs["y"]
    assert referee.agreement("y", found).accepted


def repeated(g: GraphBuilder) -> Symbol:
    """Rows of queries that are one row, over and over."""
    q, k, v = (
        g.input(n, (1, 72, 32), "f16", strides=s) for n, s in (("q", (72, 0, 1)), ("k", None), ("v", None))
    )
    p = g.softmax(g.matmul(q, k, transpose_b=True) * 0.125)
    return g.cast(g.matmul(g.cast(p, dtype="f16"), v), dtype="f32", name="y")


def test_an_operand_that_repeats_its_rows_is_refused_by_the_stride_that_it_has() -> None:
    with pytest.raises(LoweringError, match=r"tensor q: axis 1 \(extent 72\) has a stride of 0 bytes"):
        next(structures(find_region(graph_of(repeated)), h200()))


def packed(g: GraphBuilder) -> Symbol:
    """Heads beside each other in rows of one position, which are more in another call."""
    q, k, v = (
        g.transpose(g.reshape(g.input(n, (2, 1, 256), "bf16"), (2, 1, 4, 64)), perm=(0, 2, 1, 3))
        for n in "qkv"
    )
    p = g.softmax(g.matmul(q, k, transpose_b=True) * 0.125)
    return g.cast(g.matmul(g.cast(p, dtype="bf16"), v), dtype="f32", name="y")


def test_heads_that_one_position_parts_are_not_one_axis_with_the_batch() -> None:
    made = build(graph_of(packed), structure(64, 64))
    found = simulate(made.graph, made.verified, made.source, 1)
    assert any(run.graph.type_of("q").shape[1] > 1 for run in found.runs)
