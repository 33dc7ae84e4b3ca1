"""Chains of products that are not lowered: each refusal names the node, the axis where there is one, and why."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from attention_graphs import Parts, Sizes, parts, scores
from tile_graphs import Body, region_of

from wsopt.errors import LoweringError
from wsopt.graph.builder import GraphBuilder, Symbol

SMALL = Sizes(batch=1, heads=1, queries=32, keys=48)


def loop(between: Callable[[Parts, Symbol], Symbol], sizes: Sizes = SMALL) -> Body:
    """A chain of products with something between them that ends in the second product's left operand."""

    def body(g: GraphBuilder) -> Symbol:
        p = parts(g, sizes)
        left = g.cast(between(p, scores(p)), dtype=sizes.dtype, name="left")
        return g.cast(g.matmul(left, p.v, name="pv"), dtype=sizes.dtype, name="o")

    return body


def softmax_of_softmax(p: Parts, x: Symbol) -> Symbol:
    return p.g.softmax(p.g.softmax(x, name="first"), name="second")


def squared(p: Parts, x: Symbol) -> Symbol:
    return p.g.sqrt(p.g.softmax(x, name="p"), name="root")


def shifted_by_sum(p: Parts, x: Symbol) -> Symbol:
    return p.g.exp(x - p.g.reduce_sum(x, axis=-1, keepdims=True, name="total"), name="e")


def difference(p: Parts, x: Symbol) -> Symbol:
    return p.g.softmax(x, name="a") - p.g.softmax(x * 2.0 + p.columns, name="b")


def plain_maximum(p: Parts, x: Symbol) -> Symbol:
    return x - p.g.reduce_max(x, axis=-1, keepdims=True, name="m")


def over_rows(p: Parts, x: Symbol) -> Symbol:
    return x - p.g.reduce_max(x, axis=-2, keepdims=True, name="m")


def over_heads(p: Parts, x: Symbol) -> Symbol:
    return x - p.g.reduce_sum(x, axis=1, keepdims=True, name="m")


def normed(p: Parts, x: Symbol) -> Symbol:
    w, b = (p.g.input(name, (p.sizes.keys,), "f32") for name in "wb")
    return p.g.layer_norm(x, w, b, name="n")


def scaled_before(g: GraphBuilder) -> Symbol:
    p = parts(g, SMALL)
    q = g.cast(p.q * 0.25, dtype="bf16", name="qs")
    weights = g.cast(g.softmax(g.matmul(q, p.k, transpose_b=True, name="s")), dtype="bf16")
    return g.matmul(weights, p.v, name="pv")


def three_products(g: GraphBuilder) -> Symbol:
    p = parts(g, SMALL)
    o = g.matmul(g.cast(g.softmax(scores(p)), dtype="bf16"), p.v, name="pv")
    return g.matmul(g.cast(o, dtype="bf16"), g.input("w", (16, 16), "bf16"), name="y")


def weights_too(g: GraphBuilder) -> tuple[Symbol, ...]:
    p = parts(g, SMALL)
    weights = g.cast(g.softmax(scores(p), name="p"), dtype="bf16", name="w")
    return g.matmul(weights, p.v, name="pv"), weights


def beside(g: GraphBuilder) -> Symbol:
    p = parts(g, SMALL)
    o = g.matmul(g.cast(g.softmax(scores(p)), dtype="bf16"), p.v, name="pv")
    return o + g.matmul(g.input("x", (32, 24), "bf16"), g.input("w", (24, 16), "bf16"), name="xw")


def two_inner(g: GraphBuilder) -> Symbol:
    p = parts(g, SMALL)
    a, b = g.input("a", (1, 1, 32, 8), "bf16"), g.input("b", (1, 1, 48, 8), "bf16")
    x = scores(p) + g.matmul(a, b, transpose_b=True, name="ab")
    return g.matmul(g.cast(g.softmax(x), dtype="bf16"), p.v, name="pv")


def two_streams(g: GraphBuilder) -> Symbol:
    p = parts(g, SMALL)
    k, v = (g.input(name, (1, 1, 64, 16), "bf16") for name in ("k2", "v2"))
    o = g.matmul(g.cast(g.softmax(scores(p)), dtype="bf16"), p.v, name="pv")
    x = g.matmul(p.q, k, transpose_b=True, name="s2")
    return o + g.matmul(g.cast(g.softmax(x), dtype="bf16"), v, name="pv2")


def two_values(g: GraphBuilder, more: int = 8) -> tuple[Symbol, ...]:
    p = parts(g, SMALL)
    weights = g.cast(g.softmax(scores(p)), dtype="bf16")
    other = g.input("v2", (1, 1, SMALL.keys, more), "bf16")
    return g.matmul(weights, p.v, name="pv"), g.matmul(weights, other, name="pv2")


def two_softmaxes(g: GraphBuilder) -> tuple[Symbol, ...]:
    x = g.input("x", (32, 24), "bf16")
    first, second = (g.input(f"w{n}", (24, n), "bf16") for n in (64, 32))
    return g.softmax(g.matmul(x, first, name="a")), g.softmax(g.matmul(x, second, name="b"))


def streamed_rows(g: GraphBuilder) -> Symbol:
    """The bias is over queries and keys, and then of keys and queries: the two would be one axis."""
    p = parts(g, Sizes(batch=1, heads=1, queries=32, keys=32))
    x = scores(p)
    x = x + g.transpose(x, perm=(0, 1, 3, 2))
    return g.matmul(g.cast(g.softmax(x), dtype="bf16"), p.v, name="pv")


def four_batches(g: GraphBuilder) -> Symbol:
    shape, order = (2, 3, 4, 5, 32, 16), (3, 2, 1, 0, 4, 5)
    q, k, v = (g.transpose(g.input(name, shape, "bf16"), perm=order) for name in "qkv")
    x = g.matmul(q, k, transpose_b=True, name="s")
    return g.matmul(g.cast(g.softmax(x), dtype="bf16"), v, name="pv")


def across_heads(g: GraphBuilder) -> Symbol:
    """A reshape that cuts the axis of 32 queries at 8 and at 12."""
    q = g.reshape(g.input("q", (2, 12, 16), "bf16"), shape=(3, 8, 16), name="cut")
    k, v = (g.input(name, (48, 16), "bf16") for name in "kv")
    weights = g.cast(g.softmax(g.matmul(q, k, transpose_b=True)), dtype="bf16")
    return g.matmul(weights, v, name="pv")


def split_keys(g: GraphBuilder) -> Symbol:
    """Scores in blocks of keys, with a softmax of the whole."""
    p = parts(g, SMALL)
    x = g.reshape(scores(p), shape=(1, 1, 32, 6, 8), name="blocks")
    x = g.reshape(x + g.input("b", (6, 1), "f32"), shape=(1, 1, 32, 48), name="whole")
    return g.matmul(g.cast(g.softmax(x), dtype="bf16"), p.v, name="pv")


def f8_chain(g: GraphBuilder) -> Symbol:
    q, k, v = (g.input(name, (64, 64), "f8e4m3") for name in "qkv")
    weights = g.cast(g.softmax(g.matmul(q, k, transpose_b=True, name="s")), dtype="f8e4m3")
    return g.matmul(weights, v, name="pv")


def repeated(g: GraphBuilder) -> tuple[Symbol, ...]:
    p = parts(g, SMALL)
    x = scores(p)
    largest = g.reduce_max(x, axis=-1, keepdims=True)
    o = g.matmul(g.cast(g.exp(x - largest), dtype="bf16"), p.v, name="pv")
    wide = g.cast(g.iota(shape=(32, 16), axis=0), dtype="f32") + g.reshape(largest, shape=(32, 1))
    return o + wide, g.mul(wide, 1.0, name="w")


REFUSALS: dict[str, tuple[Body, str]] = {
    "softmax of softmax": (
        loop(softmax_of_softmax),
        "node second: the maximum is of values that depend on a reduction along the same axis (node first)",
    ),
    "root of softmax": (
        loop(squared),
        "node pv: cannot be summed in one pass along the streamed axis; node p: its sum is complete only",
    ),
    "shifted by a sum": (
        loop(shifted_by_sum),
        "node pv: cannot be summed in one pass along the streamed axis; node e: exp2 of what depends on",
    ),
    "difference": (
        loop(difference),
        "node pv: cannot be summed in one pass along the streamed axis; node a: its sum is complete only",
    ),
    "plain maximum": (
        loop(plain_maximum),
        "node pv: cannot be summed in one pass along the streamed axis; node m: its maximum is complete only",
    ),
    "over rows": (
        loop(over_rows),
        "node m: reduce_max along axis 2 of t, which is a row axis; only the streamed axis is reduced",
    ),
    "over heads": (
        loop(over_heads, Sizes(batch=2, heads=3)),
        "node m: reduce_sum along axis 1 of t, which is a batch axis; only the streamed axis is reduced",
    ),
    "layer_norm": (
        loop(normed),
        "node n: cannot be summed in one pass along the streamed axis; node n: its sum is complete only after",
    ),
    "scaled before": (
        scaled_before,
        "node s: operand 0 of the matmul is computed by cast node qs; it has to be an input of the graph (or a "
        "reshape or transpose of one)",
    ),
    "three products": (
        three_products,
        "node y: an operand depends on pv, which is complete only after the loop; a kernel has one loop",
    ),
    "weights stored": (
        weights_too,
        "output w varies along the streamed axis, which a kernel never holds whole",
    ),
    "another product": (
        beside,
        "node xw: it feeds none of the products pv, and has not their loop; a kernel has one",
    ),
    "two inner axes": (two_inner, "matmuls s, ab contract axes of different extents; a kernel holds one"),
    "two streams": (two_streams, "matmuls pv, pv2 do not share their streamed axis; a kernel has one"),
    "values of two widths": (
        two_values,
        "matmuls pv, pv2 have 16, 8 columns, and the products of one kernel have equally many; compile each as a "
        "graph of its own, or put v, v2 into one tensor, for one matmul with all their columns",
    ),
    "values too wide to join": (
        lambda g: two_values(g, 256),
        "matmuls pv, pv2 have 16, 256 columns, and the products of one kernel have equally many; compile each as a "
        "graph of its own",
    ),
    "reduced rows of two widths": (
        two_softmaxes,
        "matmuls a, b have 64, 32 columns, and the products of one kernel have equally many; compile each as a "
        "graph of its own",
    ),
    "rows that stream": (
        streamed_rows,
        "node pv: an axis would be both a stream and a row axis of one kernel",
    ),
    "four batches": (
        four_batches,
        "the products have 4 batch axes that do not lie contiguously in every tensor; a kernel takes three",
    ),
    "across": (across_heads, "node cut: the reshape neither splits axes nor merges whole ones"),
    "split keys": (split_keys, "node pv: a reshape splits or merges the stream axis (dimension 2 of v)"),
    "f8": (
        f8_chain,
        "node s: operands of f8e4m3 are not lowered in a chain of products; declare inputs as one",
    ),
    "wide head": (
        loop(lambda p, x: p.g.softmax(x), Sizes(1, 1, 32, 48, inner=512)),
        "node s: dimension 3 of q (extent 512) is contracted whole in every step of the loop: at most 256",
    ),
    "wide column": (
        loop(lambda p, x: p.g.softmax(x), Sizes(1, 1, 32, 48, column=512)),
        "node pv: dimension 3 of v (extent 512) is a column axis, which a block holds whole: at most 256",
    ),
    "output of columns": (repeated, "output w repeats its values along an axis; store them once"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_has_no_place_in_a_loop_is_named(case: str) -> None:
    body, message = REFUSALS[case]
    with pytest.raises(LoweringError, match=f"^{re.escape(message)}"):
        region_of(body)
