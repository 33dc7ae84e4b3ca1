"""Products whose rows are reduced after the loop: executed, compiled, and what a tile cannot hold refused."""

from __future__ import annotations

import functools
import re

import pytest
from emit_builds import SEEDS, Body, Emitted, build, case, graph_of, h200, small_case, structure
from emit_checks import check_machine_code

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.program.types import Structure


def softmax(g: GraphBuilder, columns: int = 128, inner: int = 200) -> Symbol:
    """y = softmax(x w' / 16)."""
    x, w = g.input("x", (200, inner), "bf16"), g.input("w", (columns, inner), "bf16", constant=True)
    scores = g.mul(g.matmul(x, w, transpose_b=True, name="p"), 0.0625)
    return g.cast(g.softmax(scores, axis=-1), dtype="bf16", name="y")


def narrow(g: GraphBuilder) -> Symbol:
    """Rows of 24, of which a tile has more columns."""
    return softmax(g, 24)


def wide(g: GraphBuilder) -> Symbol:
    """Rows of 200, of which a tile has more columns, as wide as they come."""
    return softmax(g, 200)


def normed(g: GraphBuilder) -> tuple[Symbol, ...]:
    """h = r + x w' + b and y = layer_norm(h), in batches: a tile, a column and two vectors beside the product."""
    x, w = g.input("x", (2, 72, 192), "f16"), g.input("w", (2, 128, 192), "f16")
    r, b = g.input("r", (2, 72, 128), "f16"), g.input("b", (128,), "f16", constant=True)
    gain, shift = (g.input(name, (128,), "f32", constant=True) for name in ("gain", "shift"))
    h = g.add(r, g.add(g.matmul(x, w, transpose_b=True, name="p"), b), name="sum")
    return g.cast(h, dtype="f16", name="h"), g.cast(g.layer_norm(h, gain, shift), dtype="f16", name="y")


def picked(g: GraphBuilder) -> Symbol:
    """Scores below half of their row's largest magnitude are zero; written out, the rows of two products."""
    x = g.input("x", (200, 128), "bf16")
    a, b = (g.input(name, (96, 128), "bf16", constant=True) for name in "ab")
    first, second = g.matmul(x, a, transpose_b=True, name="q"), g.matmul(x, b, transpose_b=True, name="p")
    both = g.mul(first, second)
    largest = g.reduce_max(g.abs(both), axis=1, keepdims=True)
    kept = g.where(g.greater(g.abs(both), g.mul(largest, 0.5)), both, 0.0)
    return g.cast(g.div(kept, largest), dtype="bf16", name="y")


def with_values(g: GraphBuilder) -> tuple[Symbol, ...]:
    """A softmax of a product's rows, the logarithm of its sum, and the largest, rounded."""
    x, w = g.input("x", (200, 128), "bf16"), g.input("w", (64, 128), "bf16", constant=True)
    p = g.matmul(x, w, transpose_b=True, name="p")
    largest = g.reduce_max(p, axis=1, keepdims=True)
    total = g.reduce_sum(g.exp(g.sub(p, largest)), axis=1, keepdims=True)
    lse = g.add(g.log(total), largest, name="lse")
    return (
        g.cast(g.softmax(p), "bf16", name="y"),
        lse,
        g.cast(g.reshape(largest, shape=(200,)), "bf16", name="m"),
    )


def values_alone(g: GraphBuilder) -> Symbol:
    """Sums of a product's rows, in batches: no tile is stored."""
    x, w = g.input("x", (2, 72, 128), "bf16"), g.input("w", (2, 96, 128), "bf16")
    return g.reduce_sum(g.relu(g.matmul(x, w, transpose_b=True)), axis=2, name="y")


def beside(g: GraphBuilder) -> tuple[Symbol, ...]:
    """A norm before a product of several tiles of columns, and its factor of each row, which is stored once."""
    x, w = g.input("x", (200, 128), "bf16"), g.input("w", (136, 128), "bf16", constant=True)
    power = g.reduce_mean(g.mul(x, x), axis=1, keepdims=True)
    factor = g.rsqrt(g.add(power, 1e-6), name="factor")
    h = g.cast(g.mul(x, factor), "bf16")
    return g.cast(g.matmul(h, w, transpose_b=True, name="p"), "bf16", name="y"), factor


@functools.cache
def emitted(body: Body, s: Structure) -> Emitted:
    return build(graph_of(body), s)


CUTS: tuple[tuple[Body, Structure], ...] = (
    (softmax, structure(columns=128, consumers=2)),
    (narrow, structure(columns=64, consumers=2, ping_pong=True)),
    (wide, structure(columns=256, consumers=2)),
    (normed, structure(columns=128, persistent=False)),
    (picked, structure(columns=128)),
    (with_values, structure(columns=64, consumers=2)),
    (values_alone, structure(columns=128)),
    (beside, structure(columns=64, consumers=2, subtiles=2)),
)


@pytest.mark.slow
@pytest.mark.parametrize(("body", "s"), CUTS)
def test_computes(body: Body, s: Structure) -> None:
    made = emitted(body, s)
    assert case(made.graph).fault(made.source, SEEDS) is None
    assert small_case(made).fault(made.source, 3) is None


def test_a_value_of_a_row_is_stored_by_its_first_tile_of_columns() -> None:
    made = emitted(*CUTS[-1])
    assert made.source.count("if column == 0:") == 1
    for wrong in ("if column >= 0:", "if column < 0:"):
        assert case(made.graph).fault(made.source.replace("if column == 0:", wrong), 1) is not None


@pytest.mark.compiler
@pytest.mark.parametrize(("body", "s"), [CUTS[0], CUTS[1], CUTS[3], CUTS[6]])
def test_machine_code_is_what_was_asked_for(body: Body, s: Structure) -> None:
    made = emitted(body, s)
    check_machine_code(made)


def test_a_tile_has_whole_rows_in_one_subtile() -> None:
    for body, columns in ((softmax, 128), (narrow, 64), (wide, 256)):
        found = list(structures(find_region(graph_of(body)), h200()))
        assert found
        assert {(s.columns, s.subtiles, s.swap) for s in found} == {(columns, 1, False)}


def test_rows_of_another_length_are_refused() -> None:
    made = emitted(softmax, CUTS[0][1])
    fault = case(graph_of(lambda g: softmax(g, 96))).check(made.source, 0)
    assert fault is not None
    assert "rows have 96 elements: this schedule reduces rows of 128" in fault
    assert case(graph_of(lambda g: softmax(g, 128, 520))).fault(made.source, 2) is None


def column_sums(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (200, 128), "bf16"), g.input("w", (64, 128), "bf16", constant=True)
    p = g.matmul(x, w, transpose_b=True)
    return g.sub(p, g.reduce_sum(p, axis=0, keepdims=True, name="s"), name="y")


REFUSALS: dict[str, tuple[Body, str]] = {
    "too wide": (
        lambda g: softmax(g, 512),
        "graph small: rows of 512 elements of a product are reduced, and a tile has at most 256 columns",
    ),
    "columns": (
        column_sums,
        "node s: reduce_sum along axis 0 of matmul_0, which is a row axis; only the column axis",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_not_lowered_is_named(name: str) -> None:
    body, message = REFUSALS[name]
    with pytest.raises(LoweringError, match=f"^{re.escape(message)}"):
        next(iter(structures(find_region(graph_of(body)), h200())))
