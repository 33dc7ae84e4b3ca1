"""Transpositions of many axes: the exchanges that they are made of, and graphs with them written out."""

from __future__ import annotations

import itertools

import pytest
from whole_graphs_listed import whole_graph

from wsopt.graph.builder import GraphBuilder
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.machine.types import Machine
from wsopt.partition.cut import check_cuttable
from wsopt.partition.transpositions import exchanges, with_exchanges


@pytest.mark.parametrize("axes", range(1, 7))
def test_exchanges_of_blocks_make_every_order(axes: int) -> None:
    for perm in itertools.permutations(range(axes)):
        now = tuple(range(axes))
        for places in exchanges(perm):
            now = tuple(now[place] for place in places)
            ends = [n for n, place in enumerate(places) if n and place != places[n - 1] + 1]
            assert len(ends) <= 3, "each has four runs of axes at most"
        assert now == perm


@pytest.mark.parametrize("name", ["patches_of_a_batch", "windows_of_heads"])
def test_what_is_written_out_means_the_same(name: str) -> None:
    graph = whole_graph(name)
    written, inputs = with_exchanges(graph), random_inputs(graph, 0)
    assert len(written.nodes) > len(graph.nodes)
    assert evaluate(written, inputs)["y"].tobytes() == evaluate(graph, inputs)["y"].tobytes()
    assert with_exchanges(written) is written


def test_axes_of_one_element_count_nowhere() -> None:
    g = GraphBuilder("few")
    x = g.input("x", (4, 1, 8, 1, 8, 64), "bf16")
    g.output(g.transpose(g.cast(x, "f32"), perm=(2, 1, 0, 5, 3, 4), name="y"))
    graph = g.build()
    assert with_exchanges(graph) is graph


def test_nothing_but_a_transposition_of_many_axes_is_cut(h200: Machine) -> None:
    """Patches of images of four dimensions side by side: nothing is computed, and no single kernel copies it."""
    g = GraphBuilder("patches")
    x = g.input("x", (8, 16, 64, 64), "bf16")
    parts = g.reshape(x, (8, 16, 32, 2, 32, 2))
    g.output(g.reshape(g.transpose(parts, perm=(0, 2, 4, 3, 5, 1)), (8, 1024, 64), name="y"))
    check_cuttable(g.build(), h200)
