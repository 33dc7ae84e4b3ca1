"""Nodes that compute the same are one before a graph is cut, so that kernels read what they read once."""

from __future__ import annotations

import numpy as np

from wsopt.graph.builder import GraphBuilder
from wsopt.graph.reference import evaluate, random_inputs
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.partition.accept import Oracle
from wsopt.partition.common import with_common_nodes
from wsopt.partition.few_rows import with_parts_of_rows
from wsopt.partition.groups import groups
from wsopt.partition.web import Web


def moments(rows: int = 48, columns: int = 8) -> Graph:
    """The mean and the variance of each column, with a cast for each time that the tensor is read."""
    g = GraphBuilder("moments")
    x = g.input("x", (rows, columns), "bf16")
    mean = g.reduce_mean(g.cast(x, "f32"), axis=0, name="mean")
    square = g.reduce_mean(g.cast(x, "f32") * g.cast(x, "f32"), axis=0)
    g.output(mean, g.sub(square, mean * mean, name="variance"))
    return g.build()


def test_the_first_of_them_stays() -> None:
    graph = moments()
    written, inputs = with_common_nodes(graph), random_inputs(graph, 0)
    assert [node.op for node in written.nodes].count("cast") == 1
    one, other = evaluate(graph, inputs), evaluate(written, inputs)
    assert all(np.array_equal(one[name], other[name]) for name in graph.outputs)
    assert with_common_nodes(written) is written


def test_what_follows_from_them_is_common_too() -> None:
    g = GraphBuilder("chain")
    x = g.input("x", (8, 8), "f32")
    g.output(g.add(g.exp(g.neg(x)), g.sqrt(g.exp(g.neg(x))), name="y"))
    written = with_common_nodes(g.build())
    assert [node.op for node in written.nodes] == ["neg", "exp", "sqrt", "add"]


def test_outputs_and_what_differs_stay() -> None:
    g = GraphBuilder("apart")
    x = g.input("x", (8, 8), "f32")
    g.output(g.exp(x, name="y"), g.exp(x, name="z"), g.add(g.mul(x, 0.0), g.mul(x, -0.0), name="sum"))
    graph = g.build()
    assert with_common_nodes(graph) is graph


def test_a_tensor_is_read_once_for_both(h200: Machine) -> None:
    """Sums of parts of all rows are together in one kernel, whether or not each has a cast of its own."""

    def parts(graph: Graph) -> set[frozenset[str]]:
        web = Web(with_parts_of_rows(graph, h200))
        together = groups(web, Oracle(h200))
        reduced = {
            node.name for node in web.solid if node.op == "reduce_mean" and node.name.endswith("_part")
        }
        return {frozenset(web.names(group)) & reduced for group in together} - {frozenset()}

    graph = moments(rows=32768, columns=1024)
    for written in (graph, with_common_nodes(graph)):
        (both,) = parts(written)
        assert len(both) == 2
