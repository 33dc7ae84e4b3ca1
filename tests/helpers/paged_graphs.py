"""Attention over keys and values that lie in pages, small enough to run as it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsopt.graph.builder import GraphBuilder, Symbol


@dataclass(frozen=True)
class Paged:
    """A decode attention: `queries` of each of `heads` groups on keys in pages of `page`, `places` of the cache's
    `pages` in each row of the table. The cache has its heads outside of a page where it is `by_head`.
    """

    page: int = 16
    places: int = 7
    pages: int = 9
    batches: int = 3
    heads: int = 2
    queries: int = 4
    width: int = 64
    by_head: bool = False
    lengths: bool = True

    @property
    def keys(self) -> int:
        """Keys of each sequence at most."""
        return self.page * self.places

    def __call__(self, g: GraphBuilder) -> Symbol:
        """The attention, as a graph's output."""
        q = g.input("q", (self.batches, self.heads, self.queries, self.width), "bf16")
        table = g.input("table", (self.batches, self.places), "i32")
        k, v = (self.seen(g, f"{name}_cache", table) for name in "kv")
        s = g.mul(g.matmul(q, k, transpose_b=True), 0.125)
        if self.lengths:
            n = g.reshape(g.input("n", (self.batches,), "i32"), shape=(self.batches, 1, 1, 1))
            s = g.where(g.iota(shape=(1, self.keys), axis=1) < n, s, -math.inf)
        weights = g.cast(g.softmax(s, axis=-1), dtype="bf16")
        return g.cast(g.matmul(weights, v), dtype="bf16", name="o")

    def seen(self, g: GraphBuilder, name: str, table: Symbol) -> Symbol:
        """A cache as [batches, heads, keys, width]."""
        inner = (self.heads, self.page) if self.by_head else (self.page, self.heads)
        cache = g.input(name, (self.pages, *inner, self.width), "bf16")
        pages = g.gather(cache, table, axis=0, name=f"{name}_pages")
        turned = g.transpose(pages, perm=(0, 2, 1, 3, 4) if self.by_head else (0, 3, 1, 2, 4))
        return g.reshape(turned, shape=(self.batches, self.heads, self.keys, self.width))
