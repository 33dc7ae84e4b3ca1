"""How tensors lie between kernels: those of a product with room behind rows that TMA could not begin with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.machine import Machine
from wsopt.partition.between import maker_of, pitch, room, room_of
from wsopt.partition.build import read_cut
from wsopt.partition.check import faults
from wsopt.partition.cut import check_cuttable
from wsopt.partition.make import build_cut
from wsopt.partition.pieces import pieces_of
from wsopt.partition.pitched_copies import with_pitched_copies
from wsopt.partition.web import Web
from wsopt.simulation import simulate


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
    assert {maker_of(graph, name) for name in ("up", "r", "h")} == {"up"}
    assert room(graph.type_of("h"), 64) == (70, 64)
    assert pitch(mlp(64), "h") == pitch(mlp(told=True), "h") == 0


def _fed(made: Callable[[GraphBuilder, Symbol], Symbol], *, transposed: bool = False) -> Graph:
    """A product of what is `made` of rows of 60, and of nothing else."""
    g = GraphBuilder("fed")
    n = g.cast(made(g, g.input("x", (70, 60), "bf16")), "bf16", name="n")
    if transposed:
        w = g.input("w", (70, 64), "bf16", constant=True)
        g.output(g.cast(g.matmul(g.transpose(n, perm=(1, 0)), w), "bf16", name="y"))
    else:
        g.output(g.cast(_linear(g, n, 64, 60, "up"), "bf16", name="y"))
    return g.build()


@pytest.mark.parametrize("transposed", [False, True])
def test_rows_that_are_reduced_have_room_for_a_product(transposed: bool) -> None:
    graph = _fed(lambda g, x: g.softmax(x, name="s"), transposed=transposed)
    assert [maker_of(graph, name) for name in ("s", "n")] == [None, "s"]  # a product reads n
    assert pitch(graph, "n") == 64


def test_what_is_made_of_elements_alone_lies_densely() -> None:
    for made in (
        lambda g, x: g.silu(x),
        lambda g, x: g.softmax(x, axis=0),
    ):
        graph = _fed(made)
        assert maker_of(graph, "n") is None
        assert pitch(graph, "n") == 0


def _normed_product(axis: int) -> Graph:
    """Two products with 60 columns between them, which are divided by a norm along an axis, written out."""
    g = GraphBuilder("normed")
    u = _linear(g, g.input("x", (70, 320), "bf16"), 60, 320, "up")
    r = g.rsqrt(g.reduce_sum(g.mul(u, u), axis=axis, keepdims=True, name="sum"))
    n = g.cast(g.mul(u, r), "bf16", name="n")
    g.output(g.cast(_linear(g, n, 50, 60, "down"), "bf16", name="y"))
    return g.build()


def test_what_is_reduced_of_a_product_comes_behind_its_kernel(h200: Machine) -> None:
    assert maker_of(_normed_product(1), "n") == "sum"
    assert maker_of(_normed_product(0), "n") is None
    for axis in (
        0,
        1,
    ):  # the columns' norms are complete when all rows are: n is copied for room behind its rows
        check_cuttable(_normed_product(axis), h200)


def test_rows_that_no_product_takes_lie_densely() -> None:
    g = GraphBuilder("twice")
    n = g.cast(g.softmax(g.input("x", (70, 60), "bf16"), name="s"), "bf16", name="n")
    g.output(g.reduce_sum(g.exp(n), axis=1, name="y"))
    assert pitch(g.build(), "n") == 0


def test_a_piece_reads_rows_that_lie_apart_and_writes_them_with_their_product_alone() -> None:
    web = Web(mlp())
    every = {frozenset(one.nodes): one for n in range(1, 2 ** len(web.solid)) for one in pieces_of(web, n)}
    reading = [one.graph.input("h") for one in every.values() if one.graph.input("h")]
    assert reading
    assert {one.strides for one in reading if one} == {(64, 1)}
    writing = [one for one in every.values() if "h" in one.graph.outputs]
    assert writing
    assert all("up" in one.nodes for one in writing)


def odd(*, constant: bool = False, residual: bool = False) -> Graph:
    """A product of activations whose rows TMA cannot begin with."""
    g = GraphBuilder("odd")
    x = g.input("x", (70, 61), "bf16")
    p = g.matmul(x, g.input("w", (61, 61), "bf16", constant=constant), name="p")
    g.output(g.cast(g.add(p, x) if residual else p, "bf16", name="y"))
    return g.build()


def test_an_operand_that_tma_cannot_begin_with_is_copied() -> None:
    graph = with_pitched_copies(odd(residual=True))
    moved = {node.name for node in graph.nodes if node.op in ("pad", "slice")}
    assert moved == {"x_with_room", "x_copied", "w_with_room", "w_copied"}
    assert graph.type_of("x_with_room").shape == (70, 64)
    assert room_of(graph, "x_copied") == "x_with_room"
    assert pitch(graph, "x_copied") == 64
    assert {node.name for node in graph.consumers("x")} == {
        "x_with_room"
    }  # what is added reads the copy as well
    inputs = random_inputs(graph, 0)
    assert (evaluate(graph, inputs)["y"] == evaluate(odd(residual=True), inputs)["y"]).all()


def test_a_constant_that_is_padded_before_the_launch_is_not_copied() -> None:
    names = {node.name for node in with_pitched_copies(odd(constant=True)).nodes}
    assert {"x_copied"} <= names
    assert "w_copied" not in names


def pitched(strides: tuple[int, int], dtype: str = "bf16", *, constant: bool = False) -> Graph:
    """A product of rows of whole 16 bytes, which lie apart in memory."""
    g = GraphBuilder("pitched")
    x = g.input("x", (64, 128), dtype, strides=strides, constant=constant)
    g.output(g.cast(g.matmul(x, g.input("w", (128, 128), dtype)), "bf16", name="y"))
    return g.build()


@pytest.mark.parametrize(("dtype", "apart", "room"), [("bf16", 300, 136), ("f16", 129, 136)])
@pytest.mark.parametrize("constant", [False, True])
def test_whole_rows_that_begin_where_tma_does_not_are_copied(
    h200: Machine, dtype: str, apart: int, room: int, constant: bool
) -> None:
    plain = pitched((apart, 1), dtype, constant=constant)
    graph = with_pitched_copies(plain)
    assert graph.type_of("x_with_room").shape == (64, room)
    assert pitch(graph, "x_copied") == room
    assert "w_copied" not in {node.name for node in graph.nodes}
    inputs = random_inputs(plain, 0)
    assert (evaluate(graph, inputs)["y"] == evaluate(plain, inputs)["y"]).all()
    check_cuttable(plain, h200)


def test_whole_rows_that_lie_apart_as_tma_takes_them_stay() -> None:
    for graph in (pitched((304, 1)), pitched((128, 1)), pitched((1, 64))):
        assert with_pitched_copies(graph) is graph


def test_a_graph_whose_rows_tma_takes_stays_as_it_is() -> None:
    for graph in (mlp(), _fed(lambda g, x: g.softmax(x))):
        assert with_pitched_copies(graph) is graph


def test_a_copy_is_a_piece_that_writes_rows_apart() -> None:
    web = Web(with_pitched_copies(odd(constant=True)))
    assert [node.name for node in web.solid] == ["x_with_room", "p", "y"]
    every = [one for n in range(1, 2 ** len(web.solid)) for one in pieces_of(web, n)]
    copies = [one for one in every if one.graph.outputs == ("x_copied",)]
    assert [sorted(one.nodes) for one in copies] == [["x_copied", "x_with_room"]]
    read = [one.graph.input("x_copied") for one in every if one.graph.input("x_copied")]
    assert read
    assert {one.strides for one in read if one} == {(64, 1)}


@pytest.mark.solver
@pytest.mark.compiler
def test_a_product_of_rows_of_any_width_becomes_two_kernels(tmp_path: Path, h200: Machine) -> None:
    build_cut(odd(constant=True), h200, use_cache=False).save(tmp_path / "odd")
    found = read_cut(tmp_path / "odd")
    (place,) = found.record.places
    assert (place.tensor, place.pitch, place.nbytes) == ("x_copied", 64, 70 * 64 * 2)
    assert [(step.inputs, step.outputs) for step in found.record.steps] == [
        (("x",), ("x_copied",)),
        (("x_copied", "w"), ("y",)),
    ]
    copy, product = found.kernels
    assert "x_copied_row_stride" in copy.kernel  # where the next row begins is what a launch says
    assert "Rows of x_copied begin 64 elements apart" in (tmp_path / "odd" / "report.txt").read_text()
    for kernel in (copy, product):
        assert simulate(kernel.graph, kernel.verified, kernel.kernel, 1).max_relative_error < 1e-2
    assert [*faults(found.graph, found.record, found.kernels)] == []


@pytest.mark.solver
@pytest.mark.compiler
def test_two_products_of_any_widths_become_two_kernels(tmp_path: Path, h200: Machine) -> None:
    build_cut(mlp(), h200, use_cache=False).save(tmp_path / "mlp")
    found = read_cut(tmp_path / "mlp")
    (place,) = found.record.places
    assert (place.tensor, place.pitch, place.nbytes) == ("h", 64, 70 * 64 * 2)
    assert '"h": (0, (70, 64), (70, 60), torch.bfloat16),' in (tmp_path / "mlp" / "kernel.py").read_text()
    assert [*faults(found.graph, found.record, found.kernels)] == []
