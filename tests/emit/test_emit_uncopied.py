"""Tiles that TMA does not copy: elements that lie apart, as those of interleaved pairs, and rows of any width."""

from __future__ import annotations

import math

import numpy as np
import pytest
from emit_builds import Body, case, check_computes, check_shows, kernels_of

from wsopt.codegen import compile_kernel
from wsopt.errors import CheckError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.interpret import execute
from wsopt.program.types import Sharing, Structure


def turned_pairs(g: GraphBuilder) -> Symbol:
    """Rotary embedding of neighbours: the first and the second of each pair, joined to pairs again."""
    x = g.reshape(g.input("x", (48, 4, 64), "bf16"), shape=(48, 4, 32, 2))
    first, second = (g.slice(x, start=at, stop=at + 1) for at in (0, 1))
    cos, sin = (g.input(name, (48, 1, 32, 1), "f32") for name in ("cos", "sin"))
    left, right = first * cos - second * sin, second * cos + first * sin
    return g.cast(g.reshape(g.concat(left, right), shape=(48, 4, 64)), "bf16", name="y")


def turned_by_all(g: GraphBuilder) -> Symbol:
    """The same by tables that have an angle for each of a pair, and a pair exchanged."""
    x, cos, sin = g.input("x", (48, 4, 64), "bf16"), *(g.input(n, (48, 1, 64), "f32") for n in ("c", "s"))
    pairs = g.reshape(x, shape=(48, 4, 32, 2))
    first, second = (g.slice(pairs, start=at, stop=at + 1) for at in (0, 1))
    exchanged = g.reshape(g.concat(g.cast(g.neg(second), "bf16"), first), shape=(48, 4, 64))
    return g.cast(g.add(g.mul(x, cos), g.mul(exchanged, sin)), "bf16", name="y")


def gate_of_pairs(width: int) -> Body:
    """A gate and what it opens, side by side: half as many columns are stored as are read."""

    def body(g: GraphBuilder) -> Symbol:
        pairs = g.reshape(g.input("x", (21, 2 * width), "f16"), shape=(21, width, 2))
        gate, up = (g.reshape(g.slice(pairs, start=at, stop=at + 1), shape=(21, width)) for at in (0, 1))
        return g.cast(g.mul(g.silu(gate), up), "f16", name="y")

    return body


def norm_of_firsts(g: GraphBuilder) -> Symbol:
    """A sum of squares of the first of each pair, and the second ones over its root; of a tensor of pairs."""
    x = g.input("x", (37, 200, 2), "f32")
    first, second = (g.reshape(g.slice(x, start=at, stop=at + 1), shape=(37, 200)) for at in (0, 1))
    scale = g.rsqrt(g.add(g.reduce_sum(g.mul(first, first), axis=1, keepdims=True), 1.0))
    return g.cast(g.mul(second, scale), "f32", name="y")


def second_of_three(g: GraphBuilder) -> Symbol:
    """One colour of an image beside a mask."""
    x, m = g.input("x", (64, 256, 3), "f16"), g.input("m", (64, 256), "f32")
    return g.cast(g.mul(g.reshape(g.slice(x, start=1, stop=2), shape=(64, 256)), m), "f16", name="y")


def odd_rows(g: GraphBuilder) -> Symbol:
    """Rows of an odd width beside rows that lie further apart, and stored without room between them."""
    x, z = g.input("x", (37, 301), "bf16"), g.input("z", (37, 301), "bf16", strides=(304, 1))
    return g.cast(g.mul(g.silu(x), z), "bf16", name="y")


def odd_softmax(g: GraphBuilder) -> tuple[Symbol, ...]:
    """A softmax of rows of an odd width, with a bias of that width, and its logarithm's sum."""
    x, b = g.input("x", (37, 201), "bf16", strides=(208, 1)), g.input("b", (37, 201), "bf16")
    s = g.add(x, b)
    return g.cast(g.softmax(s), "bf16", name="y"), g.logsumexp(s, axis=-1, name="l")


def moved_in(g: GraphBuilder) -> Symbol:
    """A tensor that begins behind three zeros in each row, and ends before some."""
    x, z = g.input("x", (24, 500), "bf16"), g.input("z", (24, 512), "bf16")
    return g.cast(g.add(g.pad(x, low=(0, 3), high=(0, 9)), z), "bf16", name="y")


def stored_as_they_are(g: GraphBuilder) -> Symbol:
    """Two tensors side by side, of which TMA takes neither the second one nor its place."""
    x, z = g.input("x", (21, 28), "bf16", strides=(48, 1)), g.input("z", (21, 28), "bf16")
    return g.concat(x, z, name="y")


def cut(rows: int, columns: int, consumers: int = 1) -> Structure:
    return Structure(rows, columns, 1, consumers, 4, Sharing.COOPERATIVE, True, False, 1, 1)


CASES: dict[str, tuple[Body, Structure]] = {
    "turned pairs": (turned_pairs, cut(16, 32, 2)),
    "turned by all": (turned_by_all, cut(16, 32, 2)),
    "a gate of pairs": (gate_of_pairs(608), cut(2, 256, 2)),
    "a wide gate of pairs": (gate_of_pairs(1024), cut(2, 512)),
    "a gate of pairs that ends within a part": (gate_of_pairs(640), cut(2, 256, 2)),
    "a norm of firsts": (norm_of_firsts, cut(4, 256)),
    "second of three": (second_of_three, cut(4, 256)),
    "odd rows": (odd_rows, cut(2, 256, 2)),
    "odd softmax": (odd_softmax, cut(4, 256, 2)),
    "stored as they are": (stored_as_they_are, cut(4, 32)),
    "moved in": (moved_in, cut(4, 256)),
}
emitted = kernels_of(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    check_computes(emitted(name))


@pytest.mark.slow
def test_what_lies_outside_is_zero_whatever_the_tensor_holds() -> None:
    made = emitted("moved in")
    known = case(made.graph)
    known.inputs["x"][...] = math.inf
    (expected,) = (one.value for one in case(made.graph, inputs=known.inputs).referee.expected.values())
    assert not any(map(math.isinf, expected[:, :3].ravel().tolist()))
    assert case(made.graph, inputs=known.inputs).fault(made.source, 1) is None


FAULTS = {
    ("odd rows", "columns, 0) < column_extent"): "columns, 0) < column_extent + 1",
    ("turned pairs", "rows, 1) < row_extent"): "rows, 1) < row_extent + 1",
    ("turned pairs", ".split()[1]"): ".split()[0]",
    ("a gate of pairs", "(column_tile * TILE_COLUMNS) * 2"): "column_tile * TILE_COLUMNS",
    ("second of three", "x_column_stride + 1"): "x_column_stride",
    (
        "turned pairs",
        "[CONSUMER_ROWS, 2 * TILE_COLUMNS]), PAIRS_LAYOUT)",
    ): "[2 * TILE_COLUMNS, CONSUMER_ROWS]).trans(), PAIRS_LAYOUT)",
    ("moved in", "+ -3 < 500"): "+ -3 < 501",
    ("moved in", "+ -3 >= 0"): "+ -3 >= -1",
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "good"), FAULTS)
def test_faults_are_found(name: str, good: str) -> None:
    check_shows(emitted(name), good, FAULTS[name, good])


def test_a_call_has_the_pairs_that_the_kernel_knows() -> None:
    made = emitted("a norm of firsts")
    wide = np.zeros((37, 200, 3), np.float32)
    for x, message in (
        (wide, "dimension 2 has 3 elements, expected 2"),
        (wide[..., ::2], "elements 1 apart"),
    ):
        with pytest.raises(CheckError, match=message):
            execute(made.source, {"x": x}, seed=0, processors=2)


@pytest.mark.compiler
@pytest.mark.parametrize("name", CASES)
def test_it_compiles(name: str) -> None:
    assert compile_kernel(emitted(name).source).spill_loads == 0
