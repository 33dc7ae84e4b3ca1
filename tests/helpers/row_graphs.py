"""Graphs whose rows are reduced, small enough to run as they are."""

from __future__ import annotations

from wsopt.graph.builder import GraphBuilder, Symbol


def softmax(g: GraphBuilder) -> Symbol:
    """y = softmax(x)."""
    return g.cast(g.softmax(g.input("x", (72, 512), "bf16"), axis=-1), dtype="bf16", name="y")


def layer_norm(g: GraphBuilder) -> Symbol:
    """Rows that end within a tile, of half precision, with vectors."""
    x = g.input("x", (70, 1000), "f16")
    weight, bias = (g.input(name, (1000,), "f16", constant=True) for name in ("weight", "bias"))
    return g.cast(g.layer_norm(x, weight, bias), dtype="f16", name="y")


def ragged_softmax(g: GraphBuilder) -> Symbol:
    """Rows of 600 elements, whose maximum is below zero, in batches of strided rows."""
    x = g.input("x", (3, 22, 600), "bf16", strides=(22 * 640 + 640, 640, 1))
    return g.cast(g.softmax(g.sub(x, 9.0), axis=-1), dtype="bf16", name="y")


def residual_norm(g: GraphBuilder) -> tuple[Symbol, ...]:
    """h = x + r and y = rms_norm(h), scaled by row: two tensors stream, two are stored."""
    x, r = g.input("x", (66, 768), "bf16"), g.input("r", (66, 768), "bf16")
    weight, scale = g.input("weight", (768,), "f32", constant=True), g.input("scale", (66, 1), "f32")
    h = g.add(x, r, name="sum")
    n = g.mul(g.rms_norm(h, weight), scale)
    return g.cast(h, dtype="bf16", name="h"), g.cast(n, dtype="bf16", name="y")


def written_out(g: GraphBuilder) -> Symbol:
    """Least, mean and largest of short rows by hand, in f32, into f8."""
    x = g.input("x", (300, 96), "f32")
    least, most = g.reduce_min(x, axis=1, keepdims=True), g.reduce_max(x, axis=1, keepdims=True)
    middle = g.reduce_mean(x, axis=1, keepdims=True)
    y = g.div(g.sub(x, middle), g.add(g.sub(most, least), 0.5))
    return g.cast(g.tanh(y), dtype="f8e4m3", name="y")


def masked(g: GraphBuilder) -> Symbol:
    """A causal softmax over scores that are given, the first row of each head all masked."""
    x = g.input("x", (2, 40, 256), "bf16")
    i, j = g.iota(shape=(40, 256), axis=0), g.iota(shape=(40, 256), axis=1)
    return g.cast(g.softmax(g.where(g.less(j, i), x, float("-inf")), axis=-1), dtype="bf16", name="y")


def normed_product(g: GraphBuilder, rows: int = 200, inner: int = 256) -> Symbol:
    """y = rms_norm(x) w'."""
    x, w = g.input("x", (rows, inner), "bf16"), g.input("w", (136, inner), "bf16", constant=True)
    power = g.reduce_mean(x * x, axis=-1, keepdims=True, name="power")
    h = g.cast(x * g.rsqrt(power + 1e-6), dtype="bf16")
    return g.cast(g.matmul(h, w, transpose_b=True, name="p"), dtype="bf16", name="y")
