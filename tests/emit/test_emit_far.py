"""Tensors of more elements than 32 bits count, read and written by address: widened offsets, and refused calls."""

from __future__ import annotations

import numpy as np
import pytest
from emit_builds import Emitted, build, graph_of, h200

from wsopt.frontend.region import find_region
from wsopt.graph.agreement import Referee, expectations
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.graph.types import Graph
from wsopt.interpret import InterpreterError, execute
from wsopt.lowering.structures import structures
from wsopt.simulation import TOLERANCE, simulate


def softmax(batches: int, rows: int, columns: int) -> Graph:
    """A softmax of rows that TMA does not take, with a bias that batches share and a scale a row from a matrix."""

    def body(g: GraphBuilder) -> Symbol:
        x, b = g.input("x", (batches, rows, columns), "f32"), g.input("b", (rows, columns), "f32")
        s = g.input("s", (batches, rows, 1), "f32", strides=(rows * columns, columns, 1))
        return g.cast(g.softmax(g.add(g.mul(x, s), b)), "f32", name="y")

    return graph_of(body)


def made(graph: Graph) -> Emitted:
    return build(graph, next(structures(find_region(graph), h200())))


@pytest.fixture(scope="module")
def near() -> Emitted:
    return made(softmax(3, 19, 97))


def test_offsets_that_fit_are_counted_in_32_bits(near: Emitted) -> None:
    assert "batch * x_batch_stride" in near.source
    assert "_stride, gl.int64)" not in near.source


def test_offsets_that_may_not_fit_are_widened() -> None:
    far = made(softmax(80, 8192, 4097))
    for name in ("x", "y", "s"):
        assert f"batch * gl.cast({name}_batch_stride, gl.int64)" in far.source
    assert "rows * s_row_stride, " in far.source
    assert simulate(far.graph, far.verified, far.source, 1)


def test_rows_of_a_vector_are_widened_too() -> None:
    def body(g: GraphBuilder) -> Symbol:
        x, s = g.input("x", (2**20, 128), "f32"), g.input("s", (2**20, 1), "f32", strides=(4096, 1))
        return g.cast(g.softmax(g.mul(x, s)), "f32", name="y")

    assert "rows * gl.cast(s_row_stride, gl.int64)" in made(graph_of(body)).source


@pytest.mark.parametrize(
    ("name", "strides", "words"),
    [
        ("x", (2**30, 97, 1), "tensor x: elements along the batch axis reach 2^31 elements or more apart"),
        ("s", (97 * 19, 2**27, 1), "tensor s: elements along the row axis reach 2^31 elements or more apart"),
    ],
)
def test_a_call_that_reaches_farther_is_refused(
    near: Emitted, name: str, strides: tuple[int, ...], words: str
) -> None:
    inputs = random_inputs(near.graph, 0)
    steps = [4 * one for one in strides]
    inputs[name] = np.lib.stride_tricks.as_strided(inputs[name], strides=steps, writeable=False)
    with pytest.raises((InterpreterError, ValueError), match=words.replace("^", r"\^")):
        execute(near.source, inputs, seed=0)


def test_what_fits_is_computed(near: Emitted) -> None:
    inputs = random_inputs(near.graph, 0)
    referee = Referee(expectations(near.graph, inputs), {"y": TOLERANCE[near.graph.type_of("y").dtype]})
    assert referee.agreement("y", execute(near.source, inputs, seed=0).outputs["y"]).accepted
