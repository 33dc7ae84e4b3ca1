"""Kernels of every kind of launch, and tensors to launch them with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import attention_graphs as a
import element_graphs
import gather_graphs
import row_graphs as r
from attention_graphs import Sizes
from emit_builds import Emitted, build, graph_of, structure

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.graph.types import Graph
from wsopt.lowering.reduced import reduced
from wsopt.program.types import Sharing, Structure

SIZES = Sizes(batch=2, heads=2, queries=392, keys=392, inner=32, column=32)
SHORT = Sizes(batch=3, heads=2, queries=136, keys=200, inner=32, column=32)


def biased(g: GraphBuilder) -> Symbol:
    """y = x w' + b."""
    x, w = g.input("x", (520, 264), "bf16"), g.input("w", (392, 264), "bf16", constant=True)
    b = g.input("b", (392,), "bf16", constant=True)
    return g.cast(g.matmul(x, w, transpose_b=True, name="p") + b, dtype="bf16", name="y")


def gated(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Two products of x in batches, a residual with rows that lie apart, and two outputs."""
    x = g.input("x", (3, 200, 256), "bf16", strides=(200 * 264, 264, 1))
    w, v = (g.input(name, (256, 136), "bf16", constant=True) for name in ("w", "int"))
    c = g.input("c", (3, 200, 136), "bf16")
    p, q = g.matmul(x, w, name="p"), g.matmul(x, v, name="q")
    return g.cast(p * q + c, dtype="bf16", name="y"), g.cast(q, dtype="f32", name="z")


def scaled(g: GraphBuilder) -> Symbol:
    """f8 operands with factors of rows, which lie apart, and columns."""
    x, w = g.input("x", (392, 512), "f8e4m3"), g.input("w", (264, 512), "f8e4m3", constant=True)
    rows = g.input("rows", (392, 1), "f32", strides=(4, 1))
    columns = g.input("columns", (264,), "f32", constant=True)
    p = g.matmul(x, w, transpose_b=True, accumulate="fast", name="p")
    return g.cast(p * rows * columns, dtype="bf16", name="y")


def squared(g: GraphBuilder) -> Symbol:
    """One tensor that is read in two ways, after a short last K-block."""
    x = g.input("x", (264, 264), "bf16")
    return g.cast(g.matmul(x, x, transpose_b=True, name="p"), dtype="f16", name="y")


def unpacked(g: GraphBuilder) -> Symbol:
    """Weights of eight bits, which lie in fragments before the first launch."""
    x, q = g.input("x", (392, 256), "bf16"), g.input("q", (264, 256), "i8", constant=True)
    return g.cast(g.matmul(x, g.cast(q, "bf16"), transpose_b=True, name="p"), dtype="bf16", name="y")


@dataclass(frozen=True)
class Kernel:
    """How a kernel is made: `other` is the graph at other extents that it is launched for as well."""

    graph: Graph
    structure: Structure | None
    other: Graph | None = None
    kib: int = 227


def rows(body: Callable[[GraphBuilder], Any]) -> Kernel:
    return Kernel(graph_of(body), None)


def k_blocks(graph: Graph, other: Graph | None = None, *, persistent: bool = True) -> Kernel:
    cut = Structure(64, 32, 64, 2, 4, Sharing.COOPERATIVE, persistent, False, 1, 1)
    return Kernel(graph, cut, other)


KERNELS: dict[str, Kernel] = {
    "biased": Kernel(graph_of(biased), structure(128, consumers=2, subtiles=2)),
    "gated": Kernel(graph_of(gated), structure(64, persistent=False)),
    "split": Kernel(graph_of(biased), structure(64, consumers=2, splits=3)),
    "split batches": Kernel(graph_of(gated), structure(64, persistent=False, splits=2)),
    "scaled": Kernel(graph_of(scaled), structure(64, 128, consumers=2, swap=True)),
    "squared": Kernel(graph_of(squared), structure(64, 128, consumers=2, ping_pong=True, tail=16), kib=100),
    "softmax": rows(r.softmax),
    "ragged_softmax": rows(r.ragged_softmax),
    "residual_norm": rows(r.residual_norm),
    "positions": Kernel(
        graph_of(element_graphs.positions),
        Structure(2, 256, 1, 1, 4, Sharing.COOPERATIVE, False, False, 1, 1, occupancy=8),
    ),
    "embedded": rows(gather_graphs.embedded),
    "causal": k_blocks(a.attention(a.causal, SIZES), a.attention(a.causal, SHORT)),
    "all keys": k_blocks(a.attention(sizes=SIZES), a.attention(sizes=SHORT)),
    "window": k_blocks(a.attention(a.window, SIZES), a.attention(a.window, SHORT)),
    "lse": k_blocks(a.with_lse(a.causal, SIZES), a.with_lse(a.causal, SHORT)),
    "grouped": k_blocks(a.grouped("reshape", a.causal, SIZES), persistent=False),
    "packed": k_blocks(a.packed(a.causal, SIZES)),
    "slopes": k_blocks(a.attention(a.alibi, SIZES)),
    "biased scores": k_blocks(a.attention(a.bias("heads", "queries", "keys", dtype="bf16"), SIZES)),
}


PACKED = Kernel(graph_of(unpacked), structure(64, 32, consumers=2, swap=True))
"""One that Python packs a constant for: it is not exported."""


@functools.cache
def emitted(name: str) -> Emitted:
    """The kernel of this name."""
    kernel = KERNELS[name]
    return build(kernel.graph, kernel.structure or _row_structure(kernel.graph), kernel.kib)


def _row_structure(graph: Graph) -> Structure:
    from emit_builds import h200

    from wsopt.lowering.structures import structures

    return next(iter(structures(find_region(graph), h200())))


def inputs(name: str) -> list[dict[str, Any]]:
    """Inputs of several extents for a kernel."""
    kernel, made = KERNELS[name], emitted(name)
    graphs = [kernel.graph, reduced(kernel.graph, made.verified.program.structure, 3)]
    return [random_inputs(graph, 0) for graph in [*graphs, *([kernel.other] if kernel.other else [])]]
