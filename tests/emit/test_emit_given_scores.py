"""A softmax of a tensor in front of a product: its maxima and sums go on from K-block to K-block, as in attention."""

from __future__ import annotations

import functools
import math

import pytest
from emit_builds import Emitted, build, check_computes, check_shows

from wsopt.graph.builder import GraphBuilder
from wsopt.graph.types import Graph
from wsopt.program.types import Sharing, Structure


def mixed(dtype: str, *, bias: bool = False, lengths: bool = False, rows: int = 72) -> Graph:
    """The mean of values, weighted by the softmax of given scores."""
    g, keys = GraphBuilder("given"), 168
    x = g.input("x", (2, rows, keys), dtype)
    v = g.input("v", (2, keys, 64), "bf16")
    s = x
    if bias:
        s = g.add(s, g.input("bias", (keys,), "bf16"))
    if lengths:
        s = g.where(g.less(g.iota(shape=(1, 1, keys), axis=2), g.input("n", (2, 1, 1), "i32")), s, -math.inf)
    g.output(g.cast(g.matmul(g.cast(g.softmax(s), dtype="bf16"), v), dtype="bf16", name="out"))
    return g.build()


GRAPHS = {
    "bf16": mixed("bf16"),
    "f32": mixed("f32"),
    "f16 and a bias": mixed("f16", bias=True),
    "bf16 and lengths": mixed("bf16", lengths=True),
}


@functools.cache
def emitted(name: str, consumers: int = 1, splits: int = 1) -> Emitted:
    many = splits > 1
    s = Structure(
        64, 64, 64, consumers, 4, Sharing.COOPERATIVE, many, False, 1, 1, early_release=True, splits=splits
    )
    return build(GRAPHS[name], s)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("consumers", [1, 2])
def test_computes(name: str, consumers: int) -> None:
    check_computes(emitted(name, consumers))


@pytest.mark.slow
def test_computes_in_parts_of_rows() -> None:
    check_computes(emitted("bf16", splits=2))


def test_nothing_is_held_and_no_scores_are_multiplied() -> None:
    source = emitted("bf16").source
    assert "_held" not in source
    assert "x_ring" in source


@pytest.mark.slow
def test_sums_that_are_not_rescaled_show() -> None:
    source = emitted("bf16").source
    line = next(
        line for line in source.splitlines() if "expand_dims(gl.convert_layout(" in line and " * " in line
    )
    check_shows(emitted("bf16"), line + "\n", "")
