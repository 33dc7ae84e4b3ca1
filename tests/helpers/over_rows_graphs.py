"""Graphs with reductions over the rows of a kernel, small enough to run as they are."""

from __future__ import annotations

from wsopt.graph.builder import GraphBuilder, Symbol


def norm_backward(g: GraphBuilder, rows: int = 69, columns: int = 512) -> tuple[Symbol, ...]:
    """dx and the weight's gradient of an RMS norm."""
    x, dy = g.input("x", (rows, columns), "bf16"), g.input("dy", (rows, columns), "bf16")
    weight = g.input("weight", (columns,), "bf16", constant=True)
    r = g.rsqrt(g.reduce_mean(x * x, axis=-1, keepdims=True) + 1e-6)
    xhat, scaled = x * r, dy * weight
    slope = g.reduce_mean(scaled * xhat, axis=-1, keepdims=True)
    dx = g.cast((scaled - xhat * slope) * r, dtype="bf16", name="dx")
    return dx, g.cast(g.reduce_sum(dy * xhat, axis=0), dtype="bf16", name="dweight")


def centred_backward(g: GraphBuilder, rows: int = 69, columns: int = 1000) -> tuple[Symbol, ...]:
    """dx and both gradients of a layer norm's vectors, of rows that are no power of two."""
    x, dy = g.input("x", (rows, columns), "f16"), g.input("dy", (rows, columns), "f16")
    weight = g.input("weight", (columns,), "f16", constant=True)
    centred = x - g.reduce_mean(x, axis=-1, keepdims=True)
    r = g.rsqrt(g.reduce_mean(centred * centred, axis=-1, keepdims=True) + 1e-5)
    xhat, scaled = centred * r, dy * weight
    slope = g.reduce_mean(scaled * xhat, axis=-1, keepdims=True)
    shift = g.reduce_mean(scaled, axis=-1, keepdims=True)
    dx = g.cast((scaled - shift - xhat * slope) * r, dtype="f16", name="dx")
    sums = g.reduce_sum(dy * xhat, axis=0), g.reduce_sum(dy, axis=0)
    return dx, g.cast(sums[0], dtype="f16", name="dweight"), g.cast(sums[1], dtype="f16", name="dbias")


def saved_backward(g: GraphBuilder, rows: int = 69, columns: int = 512) -> tuple[Symbol, ...]:
    """dx and a weight's gradient of a layer norm whose forward pass has left the mean and the scale of each row."""
    x, dy = g.input("x", (rows, columns), "bf16"), g.input("dy", (rows, columns), "bf16")
    weight = g.input("weight", (columns,), "f32", constant=True)
    mean, r = (g.input(name, (rows, 1), "f32") for name in ("mean", "r"))
    xhat, scaled = (x - mean) * r, dy * weight
    slope = g.reduce_mean(scaled * xhat, axis=-1, keepdims=True)
    shift = g.reduce_mean(scaled, axis=-1, keepdims=True)
    dx = g.cast((scaled - shift - xhat * slope) * r, dtype="bf16", name="dx")
    return dx, g.reduce_sum(dy * xhat, axis=0, name="dweight")


def gated_bias(g: GraphBuilder, rows: int = 69, columns: int = 1200) -> tuple[Symbol, ...]:
    """An elementwise gradient, and its sum over the rows scaled by column: tiles have some of the columns."""
    x, dy = g.input("x", (rows, columns), "bf16"), g.input("dy", (rows, columns), "bf16")
    scale = g.input("scale", (columns,), "f32")
    dx = g.silu(x) * dy
    return g.cast(dx, dtype="bf16", name="dx"), g.mul(g.reduce_sum(dx, axis=0), scale, name="dbias")


def extremes(g: GraphBuilder, rows: int = 69, columns: int = 512) -> tuple[Symbol, ...]:
    """Largest, least and sum of values that are not zero for an input of zeros, and softmax of the rows."""
    x = g.input("x", (rows, columns), "bf16")
    e = g.exp(x - 9.0)
    most, least = g.reduce_max(e, axis=0, keepdims=True, name="most"), g.reduce_min(e, axis=0, name="least")
    return g.cast(g.softmax(x), dtype="bf16", name="y"), most, least, g.reduce_sum(e, axis=0, name="total")


def bias(g: GraphBuilder, rows: int = 5000, columns: int = 512) -> Symbol:
    """The gradient of a bias alone."""
    return g.cast(g.reduce_sum(g.input("dy", (rows, columns), "bf16"), axis=0), dtype="bf16", name="db")
