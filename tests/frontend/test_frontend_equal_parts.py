"""Joined tensors whose parts differ in length are stored as parts of one length, and mean the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from emit_builds import build, graph_of, h200

from wsopt.frontend.equal_parts import with_equal_parts
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.lowering.structures import structures
from wsopt.simulation import simulate

Joined = Callable[[GraphBuilder, Symbol], Symbol]


def parts(g: GraphBuilder, x: Symbol, *ends: int) -> list[Symbol]:
    """`x` in parts that end at these places."""
    starts = (0, *ends[:-1])
    return [g.slice(x, axis=2, start=start, stop=end) for start, end in zip(starts, ends, strict=True)]


def tables(g: GraphBuilder, length: int) -> tuple[Symbol, Symbol]:
    cos, sin = (g.input(name, (24, 1, length), "f32") for name in ("cos", "sin"))
    return cos, sin


def rest_behind(g: GraphBuilder, x: Symbol) -> Symbol:
    """A quarter of each head is turned, half against half, and the rest stays."""
    cos, sin = tables(g, 16)
    first, second, rest = parts(g, x, 16, 32, 128)
    turned = first * cos - second * sin, second * cos + first * sin
    return g.concat(*turned, g.cast(rest, "f32"), axis=2)


def rest_before(g: GraphBuilder, x: Symbol) -> Symbol:
    cos, sin = tables(g, 32)
    rest, first, second = parts(g, x, 64, 96, 128)
    return g.concat(g.cast(rest, "f32"), first * cos - second * sin, second * cos + first * sin, axis=2)


def halves_inside(g: GraphBuilder, x: Symbol) -> Symbol:
    """What is turned is joined of exchanged halves first, and then with the rest."""
    cos, sin = tables(g, 64)
    turned, rest = parts(g, x, 64, 128)
    first, second = parts(g, turned, 32, 64)
    exchanged = g.concat(g.neg(second), g.cast(first, "f32"), axis=2)
    return g.concat(turned * cos + exchanged * sin, g.cast(rest, "f32"), axis=2)


def shared_by_heads(g: GraphBuilder, x: Symbol) -> Symbol:
    of_all = g.input("of_all", (24, 1, 64), "bf16")
    one_each = g.cast(g.iota(shape=(6, 1), axis=0) * 0, "f32")
    return g.concat(g.cast(x, "f32"), of_all + one_each, axis=2)


UNEQUAL: dict[str, tuple[Joined, int]] = {
    "rest behind": (rest_behind, 8),
    "rest before": (rest_before, 4),
    "halves inside": (halves_inside, 4),
    "shared by heads": (shared_by_heads, 3),
}


def graph_for(joined: Joined) -> Graph:
    return graph_of(lambda g: g.cast(joined(g, g.input("x", (24, 6, 128), "bf16")), "bf16", name="y"))


@pytest.mark.parametrize("form", UNEQUAL)
def test_parts_have_one_length(form: str) -> None:
    joined, count = UNEQUAL[form]
    graph = graph_for(joined)
    written, inputs = with_equal_parts(graph), random_inputs(graph, 0)
    *_, last = (node for node in written.nodes if node.op == "concat")
    assert len(last.inputs) == count
    assert len({written.type_of(name).shape for name in last.tensors}) == 1
    np.testing.assert_array_equal(evaluate(written, inputs)["y"], evaluate(graph, inputs)["y"])
    assert with_equal_parts(written) is written
    assert not find_region(graph).contractions


def along_the_rows(g: GraphBuilder, x: Symbol) -> Symbol:
    return g.concat(g.exp(x), g.slice(g.exp(x), axis=0, start=3), axis=0)


STAY: dict[str, Joined] = {
    "of one length": lambda g, x: g.concat(*reversed(parts(g, x, 64, 128)), axis=2),
    "of too many": lambda g, x: g.concat(*reversed(parts(g, x, 125, 128)), axis=2),
    "of short ones": lambda g, x: g.concat(*reversed(parts(g, x, 24, 64)), axis=2),
    "of rows": along_the_rows,
    "beside a reduction": lambda g, x: (
        g.concat(*parts(g, x, 32, 128), axis=2) * g.reduce_sum(x, axis=2, keepdims=True)
    ),
}


@pytest.mark.parametrize("form", STAY)
def test_others_stay(form: str) -> None:
    graph = graph_for(STAY[form])
    assert with_equal_parts(graph) is graph


@pytest.mark.slow
@pytest.mark.parametrize("form", UNEQUAL)
def test_parts_run(form: str) -> None:
    graph = graph_for(UNEQUAL[form][0])
    made = build(graph, next(structures(find_region(graph), h200())))
    assert simulate(graph, made.verified, made.source, 2).max_relative_error < 1e-5
