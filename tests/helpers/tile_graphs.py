"""Regions for the tile tests, built in one line each."""

from __future__ import annotations

from collections.abc import Callable

from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.tensors.views import Role

Body = Callable[[GraphBuilder], Symbol | tuple[Symbol, ...]]


def region_of(body: Body) -> Region:
    """The region of the graph whose outputs `body` returns."""
    g = GraphBuilder("small")
    found = body(g)
    g.output(*(found if isinstance(found, tuple) else (found,)))
    return find_region(g.build())


def product(g: GraphBuilder, m: int = 256, n: int = 512, k: int = 128, dtype: str = "bf16") -> Symbol:
    """x[m, k] times the transpose of w[n, k], called p."""
    return g.matmul(g.input("x", (m, k), dtype), g.input("w", (n, k), dtype), transpose_b=True, name="p")


def plain(m: int, n: int, k: int, dtype: str = "bf16") -> Region:
    """A product and a cast to bf16."""
    return region_of(lambda g: g.cast(product(g, m, n, k, dtype), dtype="bf16", name="y"))


def gated(m: int, n: int, k: int) -> Region:
    """silu(x a) * (x b): two products that share the loop."""

    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (m, k), "bf16")
        a, b = (g.input(name, (n, k), "bf16", constant=True) for name in "ab")
        gate, up = g.matmul(x, a, transpose_b=True, name="gate"), g.matmul(x, b, transpose_b=True, name="up")
        return g.cast(g.silu(gate) * up, dtype="bf16", name="y")

    return region_of(body)


def chained(rows: int, keys: int, columns: int) -> Region:
    """Attention of 8 heads: softmax of a product, times another tensor."""

    def body(g: GraphBuilder) -> Symbol:
        q = g.input("q", (8, rows, columns), "bf16")
        k, v = (g.input(name, (8, keys, columns), "bf16") for name in "kv")
        p = g.softmax(g.matmul(q, k, transpose_b=True) * 0.125, axis=2)
        return g.cast(g.matmul(g.cast(p, "bf16"), v), "bf16", name="y")

    return region_of(body)


def extents(region: Region) -> dict[Role, int]:
    """Extents by role."""
    return dict(region.extents)
