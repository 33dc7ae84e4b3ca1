"""Graphs that one kernel does not compute: blocks of a transformer, and rows between products."""

from __future__ import annotations

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.types import Graph


def _normed(g: GraphBuilder, x: Symbol, name: str) -> Symbol:
    weight = g.input(f"{name}_w", x.shape[-1:], "bf16", constant=True)
    return g.cast(g.rms_norm(x, weight), "bf16", name=name)


def _feed_forward(g: GraphBuilder, x: Symbol, inner: int) -> Symbol:
    """Residual, norm, gate and up projections, down projection."""
    outer = x.shape[-1]
    gate, up = (g.input(f"{name}_w", (inner, outer), "bf16", constant=True) for name in ("gate", "up"))
    down = g.input("down_w", (outer, inner), "bf16", constant=True)
    h = _normed(g, x, "h")
    act = g.silu(g.matmul(h, gate, transpose_b=True, name="gate"), name="act")
    gated = g.mul(act, g.matmul(h, up, transpose_b=True, name="up"), name="gated")
    m = g.cast(gated, "bf16", name="m")
    return g.cast(g.add(g.matmul(m, down, transpose_b=True, name="down"), x, name="res"), "bf16", name="y")


def mlp(tokens: int = 64, outer: int = 128, inner: int = 256) -> Graph:
    """A gated feed-forward layer behind a norm, with its residual."""
    g = GraphBuilder("mlp")
    g.output(_feed_forward(g, g.input("x", (tokens, outer), "bf16"), inner))
    return g.build()


def gated_product() -> Graph:
    """Two kernels that are quickly found: a norm with its weight, and a product with tensors around it."""
    g = GraphBuilder("gated_product")
    x = g.input("x", (64, 128), "bf16")
    w = g.input("w", (128, 128), "bf16", constant=True)
    s, r = (g.input(name, (64, 128), "bf16") for name in "sr")
    act = g.silu(g.matmul(_normed(g, x, "h"), w, transpose_b=True, name="p"), name="act")
    g.output(g.cast(g.sub(g.mul(act, s, name="gated"), r, name="less"), "bf16", name="y"))
    return g.build()


def block(tokens: int = 512, heads: int = 4, groups: int = 2, depth: int = 64, inner: int = 512) -> Graph:
    """A decoder's block: norm, causal attention of query heads in groups, residual, feed-forward layer."""
    g = GraphBuilder("block")
    outer, shared = heads * depth, heads // groups
    x = g.input("x", (tokens, outer), "bf16")
    h = _normed(g, x, "h0")

    def projected(name: str, count: int, view: tuple[int, ...], symbol: Symbol) -> Symbol:
        w = g.input(f"w{name}", (count * depth, outer), "bf16", constant=True)
        y = g.cast(g.matmul(symbol, w, transpose_b=True, name=f"{name}_"), "bf16", name=name)
        return g.transpose(g.reshape(y, view), (1, 2, 0, 3), name=f"{name}h")

    q = projected("q", heads, (tokens, groups, shared, depth), h)
    k = projected("k", groups, (tokens, groups, 1, depth), h)
    v = projected("v", groups, (tokens, groups, 1, depth), h)
    scaled = g.mul(g.matmul(q, k, transpose_b=True, name="scores"), depth**-0.5, name="scaled")
    i, j = g.iota(shape=(tokens, 1), axis=0, name="i"), g.iota(shape=(1, tokens), axis=1, name="j")
    masked = g.where(g.greater_equal(i, j, name="causal"), scaled, float("-inf"), name="masked")
    p = g.cast(g.softmax(masked, name="p_"), "bf16", name="p")
    o = g.cast(g.matmul(p, v, name="o_"), "bf16", name="o")
    oh = g.reshape(g.transpose(o, (2, 0, 1, 3)), (tokens, outer), name="oh")
    wo = g.input("wo", (outer, outer), "bf16", constant=True)
    r = g.cast(g.add(g.matmul(oh, wo, transpose_b=True, name="proj"), x, name="r_"), "bf16", name="r")
    g.output(_feed_forward(g, r, inner))
    return g.build()


def rows_between() -> Graph:
    """Three products one after the other, two of them alike, with rows that are normed between them."""
    g = GraphBuilder("between")
    x = g.input("x", (128, 512), "bf16")
    for name, rounded, columns in (("p", "q", 512), ("r", "s", 512), ("t", "u", 256)):
        w = g.input(f"w_{name}", (512, columns), "bf16", constant=True)
        y = g.cast(g.matmul(x, w, name=name), "bf16", name=rounded)
        x = g.cast(g.softmax(y, name=f"soft_{name}"), "bf16", name=f"rows_{name}")
    g.output(x)
    return g.build()
