"""Sums of rows of which each row has the element at a label: read by its address, once a row, where that can be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from emit_builds import SEEDS, case, graph_of
from row_builds import emitted
from tile_graphs import Body, region_of

from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.tensors.views import FULL, Role

ROWS, LENGTH = 6, 40000
Chosen = Callable[[GraphBuilder, Symbol, Symbol], Symbol]
PLACES = (0, LENGTH - 1, LENGTH, -1, 17, 20000)


def loss(chosen: Chosen, label: Callable[[GraphBuilder], Symbol] | None = None) -> Body:
    """The logarithm of a row's exponentials less the sum of what is chosen at its label."""

    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (ROWS, LENGTH), "bf16")
        target = label(g) if label else g.input("target", (ROWS, 1), "i32")
        hit = g.equal(g.iota(shape=(1, LENGTH), axis=1), target)
        own = g.reduce_sum(g.where(hit, chosen(g, x, target), 0.0), axis=1, keepdims=True)
        return g.sub(g.logsumexp(x, axis=1, keepdims=True), own, name="loss")

    return body


def element(_g: GraphBuilder, x: Symbol, _target: Symbol) -> Symbol:
    return x


def capped(g: GraphBuilder, x: Symbol, _target: Symbol) -> Symbol:
    """What is computed of an element is computed of the one, and zero where there is none."""
    return g.mul(g.tanh(g.mul(x, 0.1)), 10.0) + 3.0


def log_softmax(g: GraphBuilder, x: Symbol, _target: Symbol) -> Symbol:
    return x - g.logsumexp(x, axis=1, keepdims=True)


def biased(g: GraphBuilder, x: Symbol, _target: Symbol) -> Symbol:
    """A bias of columns is read at the label as well."""
    return g.add(x, g.input("bias", (1, LENGTH), "bf16"))


def counted(g: GraphBuilder, x: Symbol, _target: Symbol) -> Symbol:
    """A place counts columns, which the label is."""
    return g.mul(x, g.cast(g.iota(shape=(1, LENGTH), axis=1), "f32"))


CHOSEN: dict[str, Chosen] = {
    "element": element,
    "capped": capped,
    "log_softmax": log_softmax,
    "biased": biased,
    "counted": counted,
}


def compares(region: Region) -> bool:
    """Whether a region compares the columns with anything."""
    return any(getattr(item, "primitive", "") == "equal" and item.spans == FULL for item in region.running)


def by_address(region: Region) -> list[str]:
    """The tensors that are read at a label."""
    return [one.view.tensor for one in region.sources if one.view.chosen and one.spans == {Role.ROW}]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_it_computes_what_the_graph_means(name: str) -> None:
    made, region = emitted(loss(CHOSEN[name]), 2, 4096, 2), region_of(loss(CHOSEN[name]))
    assert not compares(region.in_parts or region)
    inputs = random_inputs(made.graph, 0)
    inputs["target"][:, 0] = PLACES
    assert case(made.graph, inputs=inputs).fault(made.source, SEEDS) is None


@pytest.mark.parametrize(("name", "read"), [("element", ["x"]), ("biased", ["bias", "x"])])
def test_all_that_varies_along_the_row_is_read_at_the_label(name: str, read: list[str]) -> None:
    region = region_of(loss(CHOSEN[name]))
    parts = region.in_parts or region
    assert sorted(by_address(parts)) == read
    chosen = next(one.view for one in parts.sources if one.view.chosen)
    assert chosen.nbytes == 2 * ROWS


def test_what_a_row_that_is_held_compares_stays_a_comparison() -> None:
    """Two loads one behind the other would be waited for in every tile."""

    def held(g: GraphBuilder) -> Symbol:
        x, target = g.input("x", (4096, 1024), "bf16"), g.input("target", (4096, 1), "i32")
        own = g.where(g.equal(g.iota(shape=(1, 1024), axis=1), target), x, 0.0)
        total = g.logsumexp(x, axis=1, keepdims=True)
        return g.sub(total, g.reduce_sum(own, axis=1, keepdims=True), name="loss")

    assert not by_address(region_of(held))


@pytest.mark.parametrize(
    "body",
    [
        loss(element, lambda g: g.add(g.input("target", (ROWS, 1), "i32"), 1)),
        loss(lambda g, x, _: g.slice(g.input("z", (ROWS, 2 * LENGTH), "bf16"), axis=1, stop=LENGTH)),
    ],
    ids=["a computed label", "a slice"],
)
def test_what_has_no_address_of_its_own_is_compared(body: Body) -> None:
    region = region_of(body)
    parts = region.in_parts or region
    assert compares(parts)
    assert not by_address(parts)


@pytest.mark.slow
def test_rows_far_apart_are_read_where_they_lie() -> None:
    """An element's offset is computed in 64 bits: rows of a tensor may begin beyond 2^31 elements."""
    made = emitted(loss(element), 2, 4096, 2)
    assert "rows.to(gl.int64) * x__row_stride + x_place.to(gl.int64)" in made.source
    graph = graph_of(loss(element))
    inputs = random_inputs(graph, 1)
    inputs["target"][:, 0] = np.arange(ROWS)
    assert case(graph, inputs=inputs).fault(made.source, SEEDS) is None
