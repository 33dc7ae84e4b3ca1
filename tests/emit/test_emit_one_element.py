"""Slices of one element of a dimension, and joined parts of one: what lies next to it begins further inside."""

from __future__ import annotations

import numpy as np
import pytest
from emit_builds import Body, Emitted, build, case, graph_of, h200

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.simulation import simulate
from wsopt.tensors.views import Role, View


def third(g: GraphBuilder, parts: int = 3, heads: int = 4) -> Symbol:
    """The keys of queries, keys and values that lie side by side, with heads in front of rows."""
    x, y = g.input("x", (2, 24, parts, heads, 32), "bf16"), g.input("y", (2, heads, 24, 32), "bf16")
    keys = g.transpose(g.slice(x, axis=2, start=1, stop=2, name="s"), perm=(2, 0, 3, 1, 4))
    return g.cast(g.reshape(keys, shape=(2, heads, 24, 32)) * y, "bf16", name="z")


def of_a_row(g: GraphBuilder) -> Symbol:
    """A softmax of one of three tensors that lie side by side, times the last of some vectors."""
    x, w = g.input("x", (40, 3, 256), "bf16"), g.input("w", (4, 256), "f32")
    rows = g.reshape(g.slice(x, axis=1, start=2, stop=3), shape=(40, 256))
    return g.cast(g.softmax(rows) * g.slice(w, axis=0, start=3, stop=4), "bf16", name="z")


def split(g: GraphBuilder) -> Symbol:
    """One of the parts into which a reshape takes rows."""
    part = g.slice(g.reshape(g.input("x", (24, 128), "bf16"), shape=(24, 4, 32)), axis=1, start=3, stop=4)
    return g.cast(part * 2.0, "bf16", name="z")


def stacked(axis: int, rows: int = 24) -> Body:
    """Two tensors on top of each other, along a dimension of their own."""

    def body(g: GraphBuilder) -> Symbol:
        shape = [rows, 128]
        shape.insert(axis, 1)
        x, y = (g.reshape(g.input(name, (rows, 128), "bf16") * 2.0, shape=tuple(shape)) for name in "xy")
        return g.cast(g.concat(x, y, axis=axis), "bf16", name="z")

    return body


def two_rows(g: GraphBuilder) -> Symbol:
    x, y = (g.input(name, (1, 128), "bf16") for name in "xy")
    return g.cast(g.concat(x * 2.0, y + 1.0, axis=0), "bf16", name="z")


def one_row(g: GraphBuilder) -> Symbol:
    """The last of some rows, which is a row for itself alone."""
    return g.cast(g.slice(g.input("x", (4, 128), "bf16"), axis=0, start=3) * 2.0, "bf16", name="z")


def one_soft_row(g: GraphBuilder) -> Symbol:
    return g.cast(g.softmax(g.slice(g.input("x", (4, 128), "bf16"), axis=0, start=3)), "bf16", name="z")


def soft_rows(g: GraphBuilder) -> Symbol:
    """A softmax of one row of each of some matrices."""
    return g.cast(g.softmax(g.slice(g.input("x", (3, 8, 128), "bf16"), axis=1, start=7)), "bf16", name="z")


def last_token(g: GraphBuilder) -> Symbol:
    """Attention of the last of some queries."""
    q = g.slice(g.input("q", (2, 16, 64), "bf16"), axis=1, start=15)
    k, v = (g.input(name, (2, 192, 64), "bf16") for name in "kv")
    weights = g.softmax(g.matmul(q, k, transpose_b=True) * 0.125)
    return g.cast(g.matmul(g.cast(weights, "bf16"), v), "bf16", name="z")


BODIES: tuple[Body, ...] = (
    third, of_a_row, split, stacked(0), stacked(1), two_rows, one_row, one_soft_row, soft_rows, last_token,
)  # fmt: skip


def made(body: Body) -> Emitted:
    graph = graph_of(body)
    return build(graph, next(structures(find_region(graph), h200())))


@pytest.mark.parametrize("body", [one_soft_row, soft_rows, last_token])
def test_a_slice_of_one_row_has_rows(body: Body) -> None:
    """What is computed of it has them too, so that what follows may be along them."""
    region = find_region(graph_of(body))
    views = [source.view for source in region.sources]
    views += [one.left for one in region.contractions if isinstance(one.left, View)]
    assert views
    assert all(Role.ROW in view.roles for view in views)


def test_an_output_beside_a_slice_of_one_row_has_its_own_extents() -> None:
    """The tensor's second dimension is no longer one of elements alone: its parts begin where the row does."""
    (output,) = find_region(graph_of(one_row)).outputs
    assert output.shape == (1, (2, 64))


@pytest.mark.slow
@pytest.mark.parametrize("body", BODIES)
def test_computes(body: Body) -> None:
    kernel = made(body)
    assert case(kernel.graph).fault(kernel.source, 2) is None
    assert simulate(kernel.graph, kernel.verified, kernel.source, 2).seeds == 2


@pytest.mark.parametrize(
    ("parts", "heads", "told"),
    [(4, 4, "dimension 2 has 4 elements: a slice of 3"), (3, 8, "dimension 3 has 8 elements: a slice of 4")],
)
def test_a_call_has_the_dimensions_that_were_there(parts: int, heads: int, told: str) -> None:
    kernel, other = made(third), graph_of(lambda g: third(g, parts, heads))
    fault = case(other).check(kernel.source, 0)
    assert fault is not None
    assert f"tensor x: {told}" in fault


def test_what_lies_apart_at_a_call_is_refused() -> None:
    """Where heads are dense in the graph, they are at a call: an offset says where those of keys begin."""
    kernel = made(third)
    inputs = case(kernel.graph).inputs
    apart = np.zeros((2, 24, 3, 8, 32), inputs["x"].dtype)[:, :, :, :4]
    fault = case(kernel.graph, inputs={**inputs, "x": apart}).check(kernel.source, 0)
    assert fault is not None
    assert "tensor x: dimensions 2 and 3 do not lie contiguously" in fault
