"""Graphs of named extents that only several kernels compute: they are refused, and told how they would not be."""

from __future__ import annotations

from wsopt.graph.builder import GraphBuilder
from wsopt.graph.symbolic import SymbolicGraph
from wsopt.machine import Machine
from wsopt.partition.make import as_numbers


def layer(wide: int) -> SymbolicGraph:
    """Two products, of which one kernel computes both where the second has few columns."""
    g = GraphBuilder("layer")
    x = g.input("x", (g.dim("tokens", 1, 128), 64), "bf16")
    h = g.cast(g.relu(g.matmul(x, g.input("u", (64, 512), "bf16"))), "bf16")
    g.output(g.cast(g.matmul(h, g.input("d", (512, wide), "bf16")), "bf16", name="y"))
    return g.symbolic()


def test_what_is_cut_without_names_is_told(h200: Machine) -> None:
    assert as_numbers(layer(512), h200) == (
        "graph layer is not cut into several kernels, for it has named extents; with numbers in their place it is, "
        "such as tokens = 128"
    )


def test_nothing_is_told_where_one_kernel_computes_all(h200: Machine) -> None:
    assert not as_numbers(layer(64), h200)


def test_nothing_is_told_where_no_kernels_compute_it(h200: Machine) -> None:
    g = GraphBuilder("added")
    x = g.input("x", (g.dim("rows", 1, 64), 64), "f32")
    g.output(g.scatter_add(x, g.input("i", (8,), "i32"), g.input("r", (8, 64), "f32"), name="y"))
    assert not as_numbers(g.symbolic(), h200)
