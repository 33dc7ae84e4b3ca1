"""Graphs in which nothing is multiplied or reduced, small enough to run as they are."""

from __future__ import annotations

from wsopt.graph.builder import GraphBuilder, Symbol


def gated(g: GraphBuilder) -> Symbol:
    """y = silu(a) * b, rounded between: as many rows as fit no tile, and columns that end within one."""
    a, b = (g.input(name, (21, 1280), "bf16") for name in "ab")
    return g.cast(g.mul(g.cast(g.silu(g.cast(a, "f32")), "bf16"), b), "bf16", name="y")


def biased(g: GraphBuilder) -> Symbol:
    """y = gelu(x + bias) times a scale of each row, to f8: vectors along both sides, and rows of 608."""
    x, bias = g.input("x", (37, 608), "bf16"), g.input("bias", (608,), "bf16", constant=True)
    return g.cast(g.mul(g.gelu(g.add(x, bias)), g.input("s", (37, 1), "f32")), "f8e4m3", name="y")


def residual(g: GraphBuilder) -> tuple[Symbol, ...]:
    """h = x + r and its double in f32, of three dimensions."""
    x, r = (g.input(name, (3, 5, 512), "f16") for name in "xr")
    h = g.add(x, r, name="sum")
    return g.cast(h, "f16", name="h"), g.mul(h, 2.0, name="double")


def odd(g: GraphBuilder) -> Symbol:
    """Rows of 100 halves, which TMA takes as one row of all."""
    x, y = (g.input(name, (7, 100), "bf16") for name in "xy")
    return g.cast(g.maximum(x, y), "bf16", name="z")


def short(g: GraphBuilder) -> Symbol:
    """Rows of 8 elements, which are cut anew; from f32 to bf16."""
    return g.cast(g.input("x", (1280, 8), "f32"), "bf16", name="y")


def vector(g: GraphBuilder) -> Symbol:
    """One dimension, cut into rows; from f8 to f16."""
    return g.cast(g.mul(g.input("x", (512 * 37,), "f8e5m2"), 0.5), "f16", name="y")


def positions(g: GraphBuilder) -> Symbol:
    """A table of positions that all batches share."""
    x, table = g.input("x", (3, 40, 512), "bf16"), g.input("table", (40, 512), "bf16", constant=True)
    return g.cast(g.add(x, table), "bf16", name="y")


def rotary(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Halves of heads turned by angles of their position: batches and heads that no table has."""
    first, second = (g.input(name, (2, 36, 4, 64), "bf16") for name in ("first", "second"))
    cos, sin = (g.input(name, (36, 1, 64), "f32") for name in ("cos", "sin"))
    left = g.sub(g.mul(first, cos), g.mul(second, sin))
    right = g.add(g.mul(second, cos), g.mul(first, sin))
    return g.cast(left, "bf16", name="left"), g.cast(right, "bf16", name="right")


def counted(g: GraphBuilder) -> Symbol:
    """A causal choice: indices along rows and columns of each batch."""
    x = g.input("x", (3, 40, 512), "bf16")
    i, j = (g.iota(shape=(40, 512), axis=axis) for axis in (0, 1))
    return g.cast(g.where(g.less_equal(j, i), x, -1.0), "bf16", name="y")


def columns_counted(g: GraphBuilder) -> Symbol:
    """An index along one dimension, whose rows are a cut of it."""
    x = g.input("x", (512 * 37,), "f32")
    return g.cast(g.add(x, g.cast(g.iota(shape=(512 * 37,), axis=0), "f32")), "f32", name="y")


def side_by_side(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Two tensors of one shape that share nothing."""
    x, y = g.input("x", (24, 256), "f32"), g.input("y", (24, 256), "f32")
    return g.cast(x, "bf16", name="a"), g.cast(g.neg(y), "f16", name="b")


def packed_gate(g: GraphBuilder) -> Symbol:
    """A gate and what it opens, one behind the other in one tensor."""
    x = g.input("x", (21, 2 * 608), "bf16")
    return g.cast(g.mul(g.silu(g.slice(x, stop=608)), g.slice(x, start=608)), "bf16", name="y")


def groups_of_channels(g: GraphBuilder) -> Symbol:
    """Channels last less their group's mean, times a factor of their group in an image, and weights of their own."""
    x = g.input("x", (2, 20, 8, 16), "bf16")
    mean, factor = (g.input(name, (2, 1, 8, 1), "f32") for name in ("mean", "factor"))
    return g.cast((x - mean) * factor * g.input("w", (8, 16), "bf16"), "bf16", name="y")


def upsampled(g: GraphBuilder) -> Symbol:
    """An image with each element twice along rows and columns, beside one of that size."""
    x, skip = g.input("x", (3, 5, 1, 12, 1), "bf16"), g.input("skip", (3, 10, 24), "bf16")
    y = g.add(x, g.reshape(skip, shape=(3, 5, 2, 12, 2)))
    return g.cast(g.reshape(y, shape=(3, 10, 24)), "bf16", name="y")


def turned(g: GraphBuilder) -> Symbol:
    """Rotary embedding of packed heads: halves of heads turned and joined, tables of both halves."""
    x = g.reshape(g.input("x", (2, 36, 4 * 128), "bf16"), shape=(2, 36, 4, 128))
    cos, sin = (g.input(name, (36, 1, 128), "f32") for name in ("cos", "sin"))
    (x1, x2), (c1, c2), (s1, s2) = ((g.slice(t, stop=64), g.slice(t, start=-64)) for t in (x, cos, sin))
    halves = g.sub(g.mul(x1, c1), g.mul(x2, s1)), g.add(g.mul(x2, c2), g.mul(x1, s2))
    return g.cast(g.concat(*halves), "bf16", name="y")


def half_turned(g: GraphBuilder) -> Symbol:
    """The same with the halves exchanged before, beside whole heads."""
    x = g.input("x", (36, 4, 128), "bf16")
    cos, sin = (g.input(name, (36, 1, 128), "bf16") for name in ("cos", "sin"))
    exchanged = g.concat(g.cast(g.neg(g.slice(x, start=64)), "bf16"), g.slice(x, stop=64))
    return g.cast(g.add(g.mul(x, cos), g.mul(exchanged, sin)), "bf16", name="y")


def stacked(g: GraphBuilder) -> Symbol:
    """Two inputs one behind the other along the rows, as they are."""
    x, y = g.input("x", (24, 256), "f32"), g.input("y", (24, 256), "f32")
    return g.concat(x, y, axis=0, name="z")


def biased_slice(g: GraphBuilder) -> Symbol:
    """Slices of rows, and of a vector along them that begins within no 16 bytes."""
    x, bias = g.input("x", (40, 512), "f16"), g.input("bias", (600,), "f16", constant=True)
    kept = g.slice(g.slice(x, axis=0, start=5, stop=38), start=104, stop=408)
    return g.cast(g.add(kept, g.slice(bias, start=7, stop=311)), "f16", name="y")


def padded(g: GraphBuilder) -> Symbol:
    """Zeros before and behind rows and columns, beside a tensor that is as large."""
    x, z = g.input("x", (37, 304), "bf16"), g.input("z", (42, 320), "bf16")
    return g.cast(g.add(g.pad(x, low=(2, 8), high=(3, 8)), z), "bf16", name="y")


def wider_heads(g: GraphBuilder) -> Symbol:
    """Packed heads of 64, with zeros behind each."""
    x = g.reshape(g.input("x", (37, 4 * 64), "f16"), shape=(37, 4, 64))
    return g.cast(g.silu(g.pad(x, low=(0, 0, 0), high=(0, 0, 32))), "f16", name="y")


def neighbours(g: GraphBuilder) -> Symbol:
    """What a 3x3 convolution sees of an image: slices of it with zeros around, joined and joined again."""
    x = g.pad(g.input("x", (2, 5, 12, 64), "bf16"), low=(0, 1, 1, 0), high=(0, 1, 1, 0))
    rows = [g.slice(x, axis=1, start=i, stop=i + 5) for i in range(3)]
    return g.concat(
        *(g.concat(*(g.slice(row, axis=2, start=j, stop=j + 12) for j in range(3))) for row in rows), name="y"
    )


def queries_of_all(g: GraphBuilder) -> Symbol:
    """Second halves of the heads of a part of a packed tensor: a slice of a reshaped slice."""
    part = g.slice(g.input("x", (37, 512), "bf16"), start=128, stop=384)
    return g.cast(g.neg(g.slice(g.reshape(part, shape=(37, 4, 64)), start=32)), "bf16", name="y")


def patches(g: GraphBuilder) -> Symbol:
    """A copy with rows of an image's patches: nothing is computed."""
    parts = g.reshape(g.input("x", (2, 8, 16, 16), "f16"), shape=(2, 2, 4, 4, 64))
    return g.transpose(parts, perm=(0, 1, 3, 2, 4), name="y")


def in_pairs(g: GraphBuilder) -> Symbol:
    """Neighbours turned by angles that all batches share: halves of pairs that lie side by side."""
    x, shape = g.input("x", (3, 9, 200, 2), "bf16"), (3, 9, 200)
    cos, sin = (g.input(name, (9, 200), "f32") for name in ("cos", "sin"))
    a, b = (g.reshape(g.slice(x, axis=3, start=at, stop=at + 1), shape=shape) for at in (0, 1))
    turned = (a * cos - b * sin, b * cos + a * sin)
    halves = (g.reshape(one, shape=(*shape, 1)) for one in turned)
    return g.cast(g.concat(*halves, axis=3), "bf16", name="y")
