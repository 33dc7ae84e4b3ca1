"""Operands written out so that one kernel's loop holds two products: what it means, and where it is taken."""

from __future__ import annotations

import numpy as np
import pytest

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.cut import cutter_of
from wsopt.partition.one_loop import with_one_loop
from wsopt.partition.pitched_copies import turns_masks, with_pitched_masks
from wsopt.partition.prices import Prices


def _attended(g: GraphBuilder, scores: Symbol, v: Symbol) -> Graph:
    weights = g.cast(g.softmax(g.mul(scores, 0.07)), "bf16")
    g.output(g.cast(g.matmul(weights, v), "bf16", name="o"))
    return g.build()


def two_parts(rows: int = 48, heads: int = 3) -> Graph:
    """Scores of a part of each head, and of one that is turned, whose keys all heads share."""
    g = GraphBuilder("two_parts")
    q, k, v = (g.input(name, (heads, rows, 128), "bf16") for name in "qkv")
    turned_q = g.input("turned_q", (heads, rows, 64), "bf16")
    turned_k = g.input("turned_k", (rows, 64), "bf16")
    scores = g.add(g.matmul(q, k, transpose_b=True), g.matmul(turned_q, turned_k, transpose_b=True))
    return _attended(g, scores, v)


def lying_other_ways() -> Graph:
    """The same with keys that lie along their width, and queries transposed."""
    g = GraphBuilder("lying")
    q, r = (g.input(name, (2, width, 40), "bf16") for name, width in (("q", 64), ("r", 32)))
    k, s = (g.input(name, (2, width, 56), "bf16") for name, width in (("k", 64), ("s", 32)))
    scores = g.add(g.matmul(q, k, transpose_a=True), g.matmul(r, s, transpose_a=True))
    return _attended(g, scores, g.input("v", (2, 56, 64), "bf16"))


def of_eight_bits(rows: int = 48, heads: int = 3) -> Graph:
    """Scores of f8, with a scale."""
    g = GraphBuilder("eight")
    q, k = (g.input(name, (heads, rows, 64), "f8e4m3") for name in "qk")
    scores = g.mul(g.matmul(q, k, transpose_b=True), g.input("scale", (heads, 1, 1), "f32"))
    return _attended(g, scores, g.input("v", (heads, rows, 64), "bf16"))


@pytest.mark.parametrize("graph", [two_parts(), lying_other_ways(), of_eight_bits()], ids=lambda g: g.name)
def test_what_is_written_out_means_the_same(graph: Graph) -> None:
    written, inputs = with_one_loop(graph), random_inputs(graph, 0)
    assert sum(node.op == "matmul" for node in written.nodes) == 2
    found, wanted = (evaluate(one, inputs)["o"].astype(np.float32) for one in (written, graph))
    assert np.linalg.norm(found - wanted) < 1e-3 * np.linalg.norm(wanted)
    assert with_one_loop(written) is written


@pytest.mark.parametrize("graph", [two_parts(1024, 16), of_eight_bits(1024, 8)], ids=lambda g: g.name)
def test_scores_stay_out_of_memory_where_they_are_large(graph: Graph, h200: Machine) -> None:
    cutter = cutter_of(graph, Prices(h200))
    chosen = cutter.chosen()
    assert chosen is not None
    *_, last = sorted(cutter.ours(chosen), key=lambda piece: len(piece.nodes))
    assert sum(node.op == "matmul" for node in last.graph.nodes) == 2


def test_a_sum_of_products_that_feeds_none_stays_as_it_is() -> None:
    g = GraphBuilder("lora")
    x, low = g.input("x", (64, 128), "bf16"), g.input("low", (64, 16), "bf16")
    w, up = g.input("w", (128, 96), "bf16", constant=True), g.input("up", (16, 96), "bf16", constant=True)
    g.output(g.cast(g.add(g.matmul(x, w), g.matmul(low, up)), "bf16", name="y"))
    graph = g.build()
    assert with_one_loop(graph) is graph


def test_a_sum_whose_products_others_read_stays_as_it_is() -> None:
    g = GraphBuilder("read")
    q, k, v = (g.input(name, (64, 64), "bf16") for name in "qkv")
    first = g.matmul(q, k, transpose_b=True)
    g.output(g.reduce_sum(first, axis=-1, name="z"))
    scores = g.add(first, g.matmul(k, q, transpose_b=True))
    graph = _attended(g, scores, v)
    assert with_one_loop(graph) is graph


def masked(rows: int, keys: int, heads: int = 2, *, penalty: bool = False) -> Graph:
    """Attention to keys that a mask a batch keeps, as it is or as a penalty that is computed of it."""
    g = GraphBuilder("masked")
    q, k, v = (g.input(name, (3, heads, rows if name == "q" else keys, 64), "bf16") for name in "qkv")
    keep, scores = g.input("keep", (3, 1, 1, keys), "bool"), g.matmul(q, k, transpose_b=True)
    if penalty:
        return _attended(g, g.add(scores, g.where(keep, 0.0, -1e9, name="penalty")), v)
    return _attended(g, g.where(keep, scores, -1e9), v)


@pytest.mark.parametrize("penalty", [False, True])
def test_a_mask_whose_rows_tma_does_not_begin_with_is_copied(penalty: bool) -> None:
    graph = masked(40, 100, penalty=penalty)
    written, inputs = with_pitched_masks(graph), random_inputs(graph, 0)
    assert {one.name for one in written.consumers("keep")} == {"keep_with_room"}
    assert (evaluate(written, inputs)["o"] == evaluate(graph, inputs)["o"]).all()
    assert (
        with_pitched_masks(masked(40, 112, penalty=penalty)).nodes == masked(40, 112, penalty=penalty).nodes
    )


@pytest.mark.parametrize("penalty", [False, True])
def test_scores_stay_out_of_memory_beside_such_a_mask(h200: Machine, penalty: bool) -> None:
    cutter = cutter_of(masked(512, 1501, 8, penalty=penalty), Prices(h200))
    chosen = cutter.chosen()
    assert chosen is not None
    *_, last = sorted(cutter.ours(chosen), key=lambda piece: len(piece.nodes))
    assert sum(node.op == "matmul" for node in last.graph.nodes) == 2


def biased(count: int, heads: int, *, gathered: bool) -> Graph:
    """Attention with a bias a head that lies with heads together, as a table's rows by relative position do."""
    g = GraphBuilder("biased")
    q, k, v = (g.input(name, (4, heads, count, 64), "bf16") for name in "qkv")
    if gathered:
        table = g.input("table", (2 * count - 1, heads), "f32")
        bias = g.gather(table, g.input("places", (count, count), "i32"))
    else:
        bias = g.input("bias", (count, count, heads), "f32")
    return _attended(g, g.matmul(q, k, transpose_b=True) + g.transpose(bias, perm=(2, 0, 1)), v)


@pytest.mark.parametrize("gathered", [False, True])
def test_a_bias_that_lies_turned_is_copied(h200: Machine, gathered: bool) -> None:
    graph = biased(512, 16, gathered=gathered)
    assert turns_masks(graph)
    cutter = cutter_of(graph, Prices(h200))
    chosen = cutter.chosen()
    assert chosen is not None
    *_, last = sorted(cutter.ours(chosen), key=lambda piece: len(piece.nodes))
    assert sum(node.op == "matmul" for node in last.graph.nodes) == 2


def test_masks_that_lie_along_their_keys_are_not() -> None:
    assert not turns_masks(masked(40, 112, penalty=True))
    assert not turns_masks(two_parts())
