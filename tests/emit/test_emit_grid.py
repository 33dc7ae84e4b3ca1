"""How the place of a tile follows from its number: exactly, though it is divided by f32 where tiles are few."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import element_graphs
import numpy as np
import pytest
from emit_builds import Emitted, build, graph_of, h200

from wsopt.emit.grid import LARGEST_QUOTIENT
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.interpret import InterpreterError, execute
from wsopt.lowering.structures import structures

ULP = 2.0**-23
"""The last place of an f32 between 1 and 2."""


def first(body: Callable[[GraphBuilder], Symbol | tuple[Symbol, ...]]) -> Emitted:
    graph = graph_of(body)
    return build(graph, next(structures(find_region(graph), h200())))


def divided(number: int, by: int, off: float) -> tuple[int, int]:
    """What a kernel's `divide` gives, in f32, with a reciprocal that is so far off, of its own size."""
    reciprocal = np.float32(1 / np.float32(by) * (1 + off))
    quotient = int(np.float32(np.float32(number) * reciprocal))
    rest = number - quotient * by
    if rest < 0:
        return quotient - 1, rest + by
    return (quotient + 1, rest - by) if rest >= by else (quotient, rest)


@pytest.mark.parametrize("off", [-2 * ULP, -ULP, 0.0, ULP, 2 * ULP])
def test_numbers_are_divided_exactly_up_to_the_largest_quotient(off: float) -> None:
    drawn = random.Random(0)
    for _ in range(4000):
        by = math.ceil(2 ** drawn.uniform(0, 24))
        whole = math.floor(2 ** drawn.uniform(0, 20))
        for number in (whole * by, whole * by + by - 1, max(0, whole * by - 1)):
            assert divided(number, by, off) == divmod(number, by)


def test_beyond_it_they_are_not() -> None:
    missed = [divided(whole * 3, 3, 2 * ULP) != (whole, 0) for whole in range(2**24, 2**24 + 64)]
    assert any(missed)


def test_a_kernel_of_few_tiles_divides_by_f32() -> None:
    source = first(element_graphs.positions).source
    assert "gl.cast(number, gl.float32) * (1.0 / gl.cast(by, gl.float32))" in source
    assert "batch, tile = divide(tile, row_tiles * column_tiles)" in source


def many(batches: int) -> Callable[[GraphBuilder], Symbol]:
    """A table added to so many matrices of 64 columns."""

    def body(g: GraphBuilder) -> Symbol:
        x, t = g.input("x", (batches, 4, 64), "bf16"), g.input("t", (4, 64), "bf16")
        return g.cast(g.add(x, t), "bf16", name="y")

    return body


def test_a_kernel_of_many_tiles_divides_whole_numbers() -> None:
    made = first(many(LARGEST_QUOTIENT))
    assert made.verified.program.grid.tiles > LARGEST_QUOTIENT // 16
    assert "return number // by, number % by" in made.source
    assert "gl.cast(number" not in made.source


def test_a_kernel_of_rows_alone_divides_nothing() -> None:
    made = first(lambda g: g.cast(g.softmax(g.input("x", (96, 512), "bf16")), "bf16", name="y"))
    assert "divide(" not in made.source


def test_a_call_of_too_many_tiles_is_refused() -> None:
    made = first(many(5))
    assert "gl.cast(number" in made.source
    own = random_inputs(made.graph, 0)
    batches = LARGEST_QUOTIENT * made.verified.program.structure.tile_rows + 1
    x = np.broadcast_to(own["x"][:1], (batches, *own["x"].shape[1:]))
    with pytest.raises(
        InterpreterError, match=r"tiles, too many for this kernel: compile the graph at these"
    ):
        execute(made.source, {"x": x, "t": own["t"]}, seed=0)
