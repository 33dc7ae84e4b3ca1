"""Graphs that read rows of tensors at indices, small enough to run as they are."""

from __future__ import annotations

from wsopt.graph.builder import GraphBuilder, Symbol


def chosen(g: GraphBuilder) -> Symbol:
    """Rows of a table, as they are."""
    table, tokens = g.input("table", (300, 512), "bf16", constant=True), g.input("tokens", (37,), "i32")
    return g.gather(table, tokens, name="y")


def embedded(g: GraphBuilder) -> Symbol:
    """Embedding: rows of a table times a number, with positions added that all batches share."""
    table, tokens = g.input("table", (300, 608), "bf16", constant=True), g.input("tokens", (2, 11), "i32")
    positions = g.input("positions", (11, 608), "bf16", constant=True)
    return g.cast(g.add(g.mul(g.gather(table, tokens), 2.0), positions), "bf16", name="y")


def padded(g: GraphBuilder) -> Symbol:
    """The same of narrow rows, zero where the index is that of padding: arithmetic reads indices too."""
    table, tokens = g.input("table", (50, 64), "f32"), g.input("tokens", (70,), "i32")
    row = g.reshape(tokens, shape=(70, 1))
    return g.cast(g.where(g.equal(row, 0), 0.0, g.gather(table, tokens)), "bf16", name="y")


def two_tables(g: GraphBuilder) -> Symbol:
    """Two choices of one table and one of another, with a row of a few heads each."""
    table, other = g.input("table", (60, 4, 128), "f16"), g.input("other", (9, 4, 128), "f16")
    first, second, kind = (g.input(name, (33,), "i32") for name in ("first", "second", "kind"))
    both = g.sub(g.gather(table, first), g.gather(table, second))
    return g.cast(g.add(both, g.gather(other, kind)), "f16", name="y")


def inner_axis(g: GraphBuilder) -> Symbol:
    """Places along the second axis, the same in every batch."""
    x, places = g.input("x", (3, 50, 256), "bf16"), g.input("places", (21,), "i32")
    return g.cast(g.silu(g.gather(x, places, axis=1)), "bf16", name="y")


def blocks(g: GraphBuilder) -> Symbol:
    """Blocks of rows by a table of blocks, as a paged cache has them."""
    cache, table = g.input("cache", (5, 16, 2048), "bf16"), g.input("table", (2, 3), "i32")
    return g.cast(g.mul(g.gather(cache, table), 0.5), "f8e4m3", name="y")


def normed(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Rows of a table and their norm: a tile holds whole rows."""
    table, tokens = g.input("table", (300, 500), "bf16", strides=(504, 1)), g.input("tokens", (37,), "i32")
    rows = g.gather(table, tokens)
    mean = g.reduce_mean(g.mul(rows, rows), axis=-1, keepdims=True)
    return g.rsqrt(g.add(mean, 1e-6), name="factor"), g.reduce_max(rows, axis=-1, name="largest")
