"""How tensors lie between kernels: those of a product with room behind rows that TMA could not begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.types import Graph
from wsopt.machine import Machine
from wsopt.partition.between import pitch, product_of, room
from wsopt.partition.build import read_cut
from wsopt.partition.check import faults
from wsopt.partition.make import build_cut
from wsopt.partition.pieces import pieces_of
from wsopt.partition.web import Web


def _linear(g: GraphBuilder, x: Symbol, columns: int, depth: int, name: str) -> Symbol:
    return g.matmul(
        x, g.input(f"w_{name}", (columns, depth), "bf16", constant=True), transpose_b=True, name=name
    )


def mlp(inner: int = 60, *, told: bool = False) -> Graph:
    """Two products with any width between them, which is an output too if it is `told`."""
    g = GraphBuilder("mlp")
    h = g.cast(
        g.relu(_linear(g, g.input("x", (70, 320), "bf16"), inner, 320, "up"), name="r"), "bf16", name="h"
    )
    y = g.cast(_linear(g, h, 50, inner, "down"), "bf16", name="y")
    g.output(*((h, y) if told else (y,)))
    return g.build()


def test_rows_of_a_products_elements_have_room_where_tma_needs_it() -> None:
    graph = mlp()
    assert [pitch(graph, name) for name in ("up", "r", "h", "y", "x", "w_down")] == [0, 0, 64, 0, 0, 0]
    assert {product_of(graph, name) for name in ("up", "r", "h")} == {"up"}
    assert room(graph.type_of("h"), 64) == (70, 64)
    assert pitch(mlp(64), "h") == pitch(mlp(told=True), "h") == 0


def test_what_no_product_makes_lies_densely() -> None:
    g = GraphBuilder("normed")
    n = g.cast(g.softmax(g.input("x", (70, 60), "bf16"), name="s"), "bf16", name="n")
    g.output(g.cast(_linear(g, n, 64, 60, "up"), "bf16", name="y"))
    graph = g.build()
    assert product_of(graph, "n") is None
    assert pitch(graph, "n") == 0


def test_a_piece_reads_rows_that_lie_apart_and_writes_them_with_their_product_alone() -> None:
    web = Web(mlp())
    every = {frozenset(one.nodes): one for n in range(1, 2 ** len(web.solid)) for one in pieces_of(web, n)}
    reading = [one.graph.input("h") for one in every.values() if one.graph.input("h")]
    assert reading
    assert {one.strides for one in reading if one} == {(64, 1)}
    writing = [one for one in every.values() if "h" in one.graph.outputs]
    assert writing
    assert all("up" in one.nodes for one in writing)


@pytest.mark.solver
@pytest.mark.compiler
def test_two_products_of_any_widths_become_two_kernels(tmp_path: Path, h200: Machine) -> None:
    build_cut(mlp(), h200, use_cache=False).save(tmp_path / "mlp")
    found = read_cut(tmp_path / "mlp")
    (place,) = found.record.places
    assert (place.tensor, place.pitch, place.nbytes) == ("h", 64, 70 * 64 * 2)
    assert '"h": (0, (70, 64), (70, 60), torch.bfloat16),' in (tmp_path / "mlp" / "kernel.py").read_text()
    assert [*faults(found.graph, found.record, found.kernels)] == []
