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


def sums(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Least, mean and sum of squares of rows of 600 that end within a tile: no tile is stored."""
    x = g.input("x", (3, 22, 600), "bf16")
    squares = g.reduce_sum(g.mul(x, x), axis=-1, keepdims=True, name="squares")
    return (
        g.reduce_min(x, axis=-1, name="least"),
        g.cast(g.reduce_mean(x, axis=-1), "bf16", name="middle"),
        squares,
    )


def weights_and_logsumexp(g: GraphBuilder) -> tuple[Symbol, ...]:
    """A softmax written out, and the logarithm of its sum beside it."""
    x = g.input("x", (72, 512), "bf16")
    largest = g.reduce_max(x, axis=-1, keepdims=True)
    grown = g.exp(g.sub(x, largest))
    total = g.reduce_sum(grown, axis=-1, keepdims=True)
    logarithm = g.add(g.log(total), largest, name="lse")
    return g.cast(g.div(grown, total), "bf16", name="p"), logarithm


def quantized(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Parts of 128 of rows to f8, with the scale of each: rows that are parts of a dimension."""
    x = g.reshape(g.input("x", (10, 512), "bf16"), shape=(10, 4, 128))
    largest = g.reduce_max(g.abs(x), axis=-1, keepdims=True)
    scale = g.mul(g.maximum(largest, 1e-12), 1 / 448, name="scale")
    return scale, g.cast(g.div(x, scale), "f8e4m3", name="q")


def cross_entropy(g: GraphBuilder) -> Symbol:
    """A loss of each row: the logarithm of a sum of exponentials less the element that an index names."""
    x, target = g.input("x", (70, 512), "bf16"), g.input("target", (70,), "i32")
    largest = g.reduce_max(x, axis=-1, keepdims=True)
    total = g.reduce_sum(g.exp(g.sub(x, largest)), axis=-1)
    named = g.equal(g.iota(shape=(1, 512), axis=1), g.reshape(target, shape=(70, 1)))
    hit = g.reduce_sum(g.where(named, x, 0.0), axis=-1)
    return g.sub(g.add(g.log(total), g.reduce_max(x, axis=-1)), hit, name="loss")


def one_vector(g: GraphBuilder) -> Symbol:
    """A norm of a single row, which has no axis of rows."""
    x, weight = g.input("x", (1000,), "f16"), g.input("weight", (1000,), "f16", constant=True)
    return g.cast(g.rms_norm(x, weight), "f16", name="y")


def logged(g: GraphBuilder) -> Symbol:
    """The logarithm of a softmax, written out."""
    x = g.input("x", (70, 256), "bf16")
    less = g.sub(x, g.reduce_max(x, axis=-1, keepdims=True))
    return g.cast(g.sub(less, g.log(g.reduce_sum(g.exp(less), axis=-1, keepdims=True))), "bf16", name="y")


def long_logsumexp(g: GraphBuilder, columns: int = 40000) -> Symbol:
    """The logarithm of a sum of exponentials of rows that no SM holds: one pass."""
    x = g.input("x", (10, columns), "bf16")
    largest = g.reduce_max(x, axis=-1, keepdims=True)
    total = g.reduce_sum(g.exp(g.sub(x, largest)), axis=-1, keepdims=True)
    return g.add(g.log(total), largest, name="lse")


def logarithms(g: GraphBuilder, columns: int = 512) -> tuple[Symbol, ...]:
    """The same as one operation, held or not, and a row less its own: rows may be all -inf, or have an inf."""
    x = g.input("x", (20, columns), "bf16")
    lse = g.logsumexp(x, axis=-1, keepdims=True, name="lse")
    return lse, g.cast(g.sub(x, lse), "bf16", name="y")


def long_softmax(g: GraphBuilder, columns: int = 36000) -> Symbol:
    """A softmax of rows that no SM holds, all below zero: two passes, in an odd number of parts."""
    return g.cast(g.softmax(g.sub(g.input("x", (10, columns), "bf16"), 9.0)), "bf16", name="y")


def long_norm(g: GraphBuilder) -> tuple[Symbol, ...]:
    """A residual, its norm with a weight and a factor of each row, and the norm's own factor, of long rows."""
    x, r = g.input("x", (3, 3, 36864), "f16"), g.input("r", (3, 3, 36864), "f16")
    weight, scale = g.input("weight", (36864,), "f16", constant=True), g.input("scale", (3, 3, 1), "f32")
    h = g.add(x, r)
    factor = g.rsqrt(g.add(g.reduce_mean(g.mul(h, h), axis=-1, keepdims=True), 1e-6), name="factor")
    return g.cast(g.mul(g.mul(g.mul(h, factor), weight), scale), "f16", name="y"), factor


def sliced_norm(g: GraphBuilder) -> Symbol:
    """A norm of the heads of the second of three packed tensors."""
    x, weight = g.input("x", (24, 3 * 512), "bf16"), g.input("weight", (128,), "bf16", constant=True)
    heads = g.reshape(g.slice(x, start=512, stop=1024), shape=(24, 4, 128))
    return g.cast(g.rms_norm(heads, weight), "bf16", name="y")
