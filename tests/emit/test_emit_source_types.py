"""Tensors of every element type beside products, rows and loops: vectors, scalars and full tiles."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest
from emit_builds import Body, Emitted, build, graph_of, structure
from other_compiler import compiled_by

from wsopt.codegen import compile_kernel
from wsopt.errors import CheckError
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


def hidden(g: GraphBuilder, x: Symbol, shape: tuple[int, ...], dtype: str) -> Symbol:
    """-inf where a mask does not hold."""
    m = g.input("m", shape, dtype)
    return g.where(m if dtype == "bool" else g.not_equal(m, 0), x, -math.inf)


def dropped(g: GraphBuilder, x: Symbol, shape: tuple[int, ...]) -> Symbol:
    """Dropout by a mask of what stays."""
    return g.mul(x, g.cast(g.input("m", shape, "bool"), "f32")) / 0.9


def _product(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (ROWS, 64), "bf16"), g.input("w", (COLUMNS, 64), "bf16")
    return g.matmul(x, w, transpose_b=True)


def masked_product(g: GraphBuilder) -> Symbol:
    return dropped(g, hidden_by_row(g, _product(g)), (ROWS, COLUMNS))


def hidden_by_row(g: GraphBuilder, x: Symbol) -> Symbol:
    return g.where(g.input("r", (COLUMNS,), "bool"), x, 0.5)


def masked_softmax(g: GraphBuilder) -> Symbol:
    return g.softmax(hidden(g, g.input("x", (ROWS, COLUMNS), "bf16"), (ROWS, COLUMNS), "bool"))


def _attention(g: GraphBuilder, dtype: str, *, drops: bool) -> Symbol:
    q, k, v = (g.input(name, (n, 64), "f16") for name, n in (("q", ROWS), ("k", COLUMNS), ("v", COLUMNS)))
    s = g.matmul(q, k, transpose_b=True) * 0.125
    p = (
        dropped(g, g.softmax(s), (ROWS, COLUMNS))
        if drops
        else g.softmax(hidden(g, s, (ROWS, COLUMNS), dtype))
    )
    return g.matmul(g.cast(p, dtype="f16"), v)


def masked_scores(g: GraphBuilder) -> Symbol:
    return _attention(g, "bool", drops=False)


def scores_masked_by_bytes(g: GraphBuilder) -> Symbol:
    return _attention(g, "i8", drops=False)


def dropped_scores(g: GraphBuilder) -> Symbol:
    return _attention(g, "", drops=True)


def dropout(g: GraphBuilder) -> Symbol:
    return dropped(g, g.input("x", (ROWS, 2 * COLUMNS), "bf16"), (ROWS, 2 * COLUMNS))


def conditions(g: GraphBuilder) -> Symbol:
    """Conditions that are computed of bools, and of numbers as they come."""
    x, m = g.input("x", (ROWS, 2 * COLUMNS), "f32"), g.input("m", (ROWS, 2 * COLUMNS), "bool")
    n = g.input("n", (ROWS, 2 * COLUMNS), "i8")
    both = g.logical_and(g.logical_not(m), g.logical_or(g.cast(n, "bool"), g.less(x, n)))
    return g.where(both, g.add(n, 300), x)


_ELEMENTS = Structure(2, 256, 1, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1)
MASKED: dict[str, tuple[Callable[[GraphBuilder], Symbol], Structure]] = {
    "product": (masked_product, structure(128, subtiles=2)),
    "swapped": (masked_product, structure(64, swap=True)),
    "rows": (masked_softmax, CUTS["rows"][1]),
    "loop": (masked_scores, CUTS["loop"][1]),
    "bytes": (scores_masked_by_bytes, CUTS["loop"][1]),
    "dropped": (dropped_scores, CUTS["loop"][1]),
    "elements": (dropout, _ELEMENTS),
    "conditions": (conditions, _ELEMENTS),
}


@functools.cache
def masked(name: str) -> Emitted:
    body, cut = MASKED[name]
    return build(graph_of(lambda g: g.cast(body(g), dtype="f32", name="y")), cut)


@pytest.mark.slow
@pytest.mark.parametrize("name", MASKED)
def test_a_mask_is_read(name: str) -> None:
    made = masked(name)
    assert simulate(made.graph, made.verified, made.source, 1).seeds == 1


@pytest.mark.slow
def test_a_mask_that_is_turned_round_gives_other_numbers() -> None:
    made = masked("loop")
    assert ".to(gl.int1)" in made.source
    turned = made.source.replace(".to(gl.int1)", ".to(gl.int1) == 0")
    with pytest.raises(CheckError):
        simulate(made.graph, made.verified, turned, 1)


@pytest.mark.compiler
def test_masks_compile(other_triton: str) -> None:
    sources = [masked(name).source for name in ("loop",)]
    found = [
        (one.spill_loads, one.stack_bytes, one.overwritten_operands) for one in map(compile_kernel, sources)
    ]
    assert found == [(0, 0, 0)] * len(sources)
    others = compiled_by(other_triton, sources)
    assert [(one["spill_loads"], one["stack_bytes"]) for one in others] == [(0, 0)] * len(sources)


@pytest.mark.compiler
@pytest.mark.parametrize(("name", "shape"), [("swapped", "row"), ("product", "row"), ("loop", "column")])
def test_masked_loads_of_f8_compile(name: str, shape: str) -> None:
    """Elements beyond the end are zeros of the tensor's own type."""
    body, cut = CUTS[name]
    made = build(graph_of(body("f8e4m3", SHAPES[shape])), cut)
    assert "other=0.0" in made.source
    assert compile_kernel(made.source).spill_loads == 0
