"""Transposed results of products are computed in their order, and mean what they meant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from wsopt.errors import LoweringError
from wsopt.frontend.kinds import input_path
from wsopt.frontend.region import find_region
from wsopt.frontend.turned_products import with_turned_products
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph

Build = Callable[[GraphBuilder, Symbol], Symbol]
SWAP = (0, 2, 1)


def graph_of(build: Build, *, transpose_a: bool = False, transpose_b: bool = False) -> Graph:
    """What is made of the product of weights and of columns, in batches."""
    g = GraphBuilder("turned")
    w = g.input("w", (64, 32) if transpose_a else (32, 64), "bf16")
    x = g.input("x", (4, 48, 64) if transpose_b else (4, 64, 48), "bf16")
    g.output(build(g, g.matmul(w, x, transpose_a=transpose_a, transpose_b=transpose_b)))
    return g.build()


def with_bias(g: GraphBuilder, y: Symbol) -> Symbol:
    return g.transpose(g.relu(y + g.input("b", (32, 1), "f32")), perm=SWAP)


def with_residual(g: GraphBuilder, y: Symbol) -> Symbol:
    return g.transpose(y * 2.0 + g.input("r", (4, 32, 48), "f32"), perm=SWAP)


def with_positions(g: GraphBuilder, y: Symbol) -> Symbol:
    """What is computed in the order of the transpose reads it."""
    return g.exp(g.transpose(y, perm=SWAP)) + g.input("c", (32,), "f32")


def there_and_back(g: GraphBuilder, y: Symbol) -> Symbol:
    return g.relu(g.transpose(g.relu(g.transpose(y, perm=SWAP)), perm=SWAP))


def with_a_triangle(g: GraphBuilder, y: Symbol) -> Symbol:
    """A mask by rows and columns, whose axes change places with those of what is masked."""
    rows, columns = (g.iota(shape=shape, axis=axis) for shape, axis in (((1, 32, 1), 1), ((1, 1, 48), 2)))
    return g.transpose(g.where(columns >= rows, y, 0.0) + rows, perm=SWAP)


TURNED: dict[str, Build] = {
    "alone": lambda g, y: g.transpose(y, perm=SWAP),
    "with a bias": with_bias,
    "with a residual": with_residual,
    "read by others": with_positions,
    "there and back": there_and_back,
    "with a triangle": with_a_triangle,
}


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("form", TURNED)
def test_a_transposed_result_is_computed_in_its_order(
    form: str, transpose_a: bool, transpose_b: bool
) -> None:
    graph = graph_of(TURNED[form], transpose_a=transpose_a, transpose_b=transpose_b)
    turned = with_turned_products(graph)
    moved = [node.name for node in turned.nodes if node.op == "transpose"]
    assert all(input_path(turned, name) is not None for name in moved)
    assert turned.type_of(turned.outputs[0]) == graph.type_of(graph.outputs[0])
    inputs = random_inputs(graph, 0)
    (found,), (wanted,) = (evaluate(one, inputs).values() for one in (turned, graph))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert find_region(graph).contractions


HEADS = (0, 2, 3, 1)


def of_tokens(build: Build, *shape: int, transpose_a: bool = False) -> Graph:
    """What is made of the product of 96 tokens, in this shape, and one matrix of 32 columns."""
    g = GraphBuilder("tokens")
    x, w = g.input("x", shape, "bf16"), g.input("w", (32, 64), "bf16")
    g.output(build(g, g.matmul(x, w, transpose_a=transpose_a, transpose_b=True)))
    return g.build()


def as_heads(g: GraphBuilder, y: Symbol) -> Symbol:
    """The heads of each sequence's tokens, with the tokens together."""
    biased = g.cast(y + g.input("b", (32,), "f32"), "bf16")
    return g.transpose(g.reshape(biased, shape=(4, 24, 4, 8)), perm=HEADS)


def as_images(g: GraphBuilder, y: Symbol) -> Symbol:
    """The channels of each image, with the places together, plus another image as it lies and tokens of a third."""
    tokens = g.reshape(y + g.input("r", (96, 32), "f32"), shape=(4, 24, 32))
    return g.transpose(tokens, perm=SWAP) + g.input("c", (4, 32, 24), "f32")


def as_one_sequence(g: GraphBuilder, y: Symbol) -> Symbol:
    return g.transpose(g.reshape(y * 2.0, shape=(96, 32)), perm=(1, 0))


def with_places_of_columns(g: GraphBuilder, y: Symbol) -> Symbol:
    column = g.iota(shape=(1, 32), axis=1)
    return g.transpose(g.reshape(g.where(column < 5, y, 0.0), shape=(4, 24, 32)), perm=SWAP)


RESHAPED: dict[str, tuple[Build, tuple[int, ...]]] = {
    "heads of sequences": (as_heads, (4, 24, 64)),
    "heads of tokens": (lambda g, y: as_heads(g, g.reshape(y, shape=(4, 24, 32))), (96, 64)),
    "images": (as_images, (96, 64)),
    "one sequence": (as_one_sequence, (4, 24, 64)),
    "places of columns": (with_places_of_columns, (96, 64)),
    "heads before sequences": (
        lambda g, y: g.transpose(g.reshape(y, shape=(4, 24, 4, 8)), perm=(2, 3, 0, 1)),
        (96, 64),
    ),
}


@pytest.mark.parametrize("form", RESHAPED)
def test_a_reshape_may_stand_between(form: str) -> None:
    build, shape = RESHAPED[form]
    graph = of_tokens(build, *shape)
    turned = with_turned_products(graph)
    assert turned is not graph
    assert turned.type_of(turned.outputs[0]) == graph.type_of(graph.outputs[0])
    inputs = random_inputs(graph, 0)
    (found,), (wanted,) = (evaluate(one, inputs).values() for one in (turned, graph))
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-4)
    assert find_region(graph).contractions


def both_ways(g: GraphBuilder, y: Symbol) -> Symbol:
    g.output(g.relu(y))
    return g.transpose(y, perm=SWAP)


STAY: dict[str, Build] = {
    "both ways": both_ways,
    "rows last": lambda g, y: g.transpose(y, perm=(2, 0, 1)),
    "another shape between": lambda g, y: g.transpose(g.reshape(y, shape=(128, 48)), perm=(1, 0)),
    "no transpose": lambda g, y: g.relu(y),
}
CUT: dict[str, tuple[Build, tuple[int, ...], bool]] = {
    "parts of heads": (
        lambda g, y: g.transpose(g.reshape(y, shape=(4, 24, 4, 8)), perm=(0, 3, 1, 2)),
        (96, 64),
        False,
    ),
    "places of rows that are cut": (
        lambda g, y: g.transpose(g.reshape(y + g.iota(shape=(96, 1), axis=0), shape=(4, 24, 32)), perm=SWAP),
        (96, 64),
        False,
    ),
    "rows that lie apart": (
        lambda g, y: g.transpose(g.reshape(y, shape=(4, 24, 32)), perm=SWAP),
        (64, 96),
        True,
    ),
}


@pytest.mark.parametrize("form", CUT)
def test_not_every_reshape_may(form: str) -> None:
    build, shape, transpose_a = CUT[form]
    graph = of_tokens(build, *shape, transpose_a=transpose_a)
    assert with_turned_products(graph) is graph
    with pytest.raises(LoweringError):
        find_region(graph)


@pytest.mark.parametrize("form", STAY)
def test_others_stay(form: str) -> None:
    graph = graph_of(STAY[form])
    assert with_turned_products(graph) is graph
    if form != "no transpose":
        with pytest.raises(LoweringError):
            find_region(graph)
