"""Products of a loop that can change places: which are found, and that their order costs nothing."""

from __future__ import annotations

import pytest
from emit_builds import MARGIN, graph_of, h200, structure

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.perf.price import lower
from wsopt.program.program import TileProgram
from wsopt.solve import alike
from wsopt.solve.alike import in_order
from wsopt.solve.optimum import Outcome, solve


def taps(g: GraphBuilder, *, gate: bool = False) -> Symbol:
    """Three products of tensors of their own, added up; or of one tensor with three weights."""
    shared = [g.input("x", (512, 256), "bf16")] if gate else []
    products = list[Symbol]()
    for name in "abc":
        x = shared[0] if gate else g.input(f"x{name}", (512, 256), "bf16")
        products.append(g.matmul(x, g.input(f"w{name}", (256, 128), "bf16", constant=True), name=name))
    first, second, third = products
    return g.cast(first + second + third, "bf16", name="y")


def program(*, gate: bool, consumers: int = 1) -> TileProgram:
    graph = graph_of(lambda g: taps(g, gate=gate))
    return lower(find_region(graph), structure(consumers=consumers), h200())


def test_products_and_their_copies_come_as_they_are_named() -> None:
    pairs = [(one.subject, other.subject) for one, other in in_order(program(gate=False))]
    assert pairs == [
        *(("a", "b"), ("wa", "wb"), ("xa", "xb")),
        *(("b", "c"), ("wb", "wc"), ("xb", "xc")),
    ]


def test_what_they_share_has_no_order() -> None:
    pairs = [(one.subject, other.subject) for one, other in in_order(program(gate=True, consumers=2))]
    assert pairs == [("a", "b"), ("wa", "wb"), ("b", "c"), ("wb", "wc")]


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("consumers", [1, 2])
def test_an_order_costs_nothing(gate: bool, consumers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = solve(program(gate=gate, consumers=consumers), h200(), MARGIN)
    monkeypatch.setattr(alike, "in_order", lambda program: ())
    free = solve(program(gate=gate, consumers=consumers), h200(), MARGIN)
    assert found.outcome is free.outcome is Outcome.OPTIMAL
    assert found.objective == free.objective
