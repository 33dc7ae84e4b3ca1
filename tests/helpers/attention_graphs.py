"""Graphs of the attention family at small extents, written as a user would."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.types import Graph


@dataclass(frozen=True)
class Sizes:
    """Extents of one attention: heads are of the keys, groups of query heads for each."""

    batch: int = 2
    heads: int = 2
    queries: int = 72
    keys: int = 72
    inner: int = 16
    column: int = 16
    dtype: str = "bf16"


@dataclass(frozen=True)
class Parts:
    """What an attention is built of, for a mask or a bias to be put in: scores are scaled."""

    g: GraphBuilder
    sizes: Sizes
    q: Symbol
    k: Symbol
    v: Symbol
    rows: Symbol
    columns: Symbol


Score = Callable[[Parts, Symbol], Symbol]


def parts(g: GraphBuilder, sizes: Sizes) -> Parts:
    """Inputs q, k, v of (batch, heads, sequence, head) and the indices along queries and keys."""
    s = sizes
    q = g.input("q", (s.batch, s.heads, s.queries, s.inner), s.dtype)
    k = g.input("k", (s.batch, s.heads, s.keys, s.inner), s.dtype)
    v = g.input("v", (s.batch, s.heads, s.keys, s.column), s.dtype)
    rows = g.iota(shape=(s.queries, 1), axis=0, name="i")
    return Parts(g, s, q, k, v, rows, g.iota(shape=(1, s.keys), axis=1, name="j"))


def scores(p: Parts) -> Symbol:
    """The scaled product of queries and keys."""
    return p.g.mul(p.g.matmul(p.q, p.k, transpose_b=True, name="s"), 1 / math.sqrt(p.sizes.inner), name="t")


def attention(score: Score = lambda _, x: x, sizes: Sizes = Sizes()) -> Graph:
    """softmax(score(q k^T / sqrt d)) v."""
    g = GraphBuilder("attention")
    p = parts(g, sizes)
    weights = g.cast(g.softmax(score(p, scores(p)), name="p"), dtype=sizes.dtype, name="pc")
    g.output(g.cast(g.matmul(weights, p.v, name="pv"), dtype=sizes.dtype, name="o"))
    return g.build()


def masked(p: Parts, condition: Symbol, x: Symbol) -> Symbol:
    """x where the condition holds, -inf elsewhere."""
    return p.g.where(condition, x, -math.inf, name="masked")


def causal(p: Parts, x: Symbol) -> Symbol:
    """No key after the query; with unequal lengths the last query sees the last key."""
    shift = p.sizes.keys - p.sizes.queries
    return masked(p, p.columns <= (p.rows + shift if shift else p.rows), x)


def window(p: Parts, x: Symbol) -> Symbol:
    """Keys at most 20 before the query and none after it."""
    near = p.g.logical_and(p.columns <= p.rows, p.rows - p.columns <= 20)
    return masked(p, near, x)


def around(p: Parts, x: Symbol) -> Symbol:
    """Keys less than 20 away on both sides."""
    return masked(p, p.g.abs(p.rows - p.columns) < 20, x)


def nested(p: Parts, x: Symbol) -> Symbol:
    """A causal mask inside one of a window, each its own choice, the outer one the other way round."""
    far = p.g.logical_or(p.rows - p.columns > 20, p.g.greater(p.columns, p.rows))
    return p.g.where(far, -math.inf, causal(p, x), name="far")


def soft_cap(p: Parts, x: Symbol) -> Symbol:
    """30 tanh(x / 30)."""
    return p.g.tanh(x / 30.0, name="bent") * 30.0


def slopes(p: Parts) -> Symbol:
    """One factor a head."""
    return p.g.input("slopes", (p.sizes.heads, 1, 1), "f32")


def alibi(p: Parts, x: Symbol) -> Symbol:
    """A slope by head times the distance, causal."""
    distance = p.g.cast(p.columns - p.rows, dtype="f32", name="distance")
    return causal(p, x + slopes(p) * distance)


def bias(*shape: str, dtype: str = "bf16") -> Score:
    """A tensor that is added to the scores, of the extents named."""

    def add(p: Parts, x: Symbol) -> Symbol:
        extents = [1 if name == "one" else getattr(p.sizes, name) for name in shape]
        return x + p.g.input("bias", extents, dtype)

    return add


def key_limit(p: Parts, x: Symbol) -> Symbol:
    """No key from the 37th on."""
    return masked(p, p.columns < 37, x)


def per_head(p: Parts, x: Symbol) -> Symbol:
    """Scores times a factor of the head, of any sign."""
    return x * slopes(p)


def everything(p: Parts, x: Symbol) -> Symbol:
    """A cap inside a mask that is causal and a window."""
    return window(p, soft_cap(p, x))


def segments(p: Parts, x: Symbol) -> Symbol:
    """Queries see keys of their own segment: no affine condition, and causal beside it."""
    g, s = p.g, p.sizes
    a, b = g.input("a", (s.batch, 1, s.queries, 1), "i32"), g.input("b", (s.batch, 1, 1, s.keys), "i32")
    return masked(p, g.logical_and(g.less(a, b), p.columns <= p.rows), x)


def added(low: float) -> Score:
    """A causal mask that is added to the scores."""
    return lambda p, x: x + p.g.where(p.g.greater(p.columns, p.rows), low, 0.0)


def chosen(low: float) -> Score:
    """A causal mask with a number of its own."""
    return lambda p, x: p.g.where(p.columns <= p.rows, x, low)


def whole_rows(p: Parts, x: Symbol) -> Symbol:
    """Rows from the 20th on see no key at all."""
    return masked(p, p.g.logical_and(p.rows < 20, p.columns <= p.rows), x)


def even(p: Parts, x: Symbol) -> Symbol:
    """Every second key: an index times a number, which no K-block is split by."""
    return p.g.where(p.g.greater_equal(p.columns * 2 - p.rows, 0), x, -math.inf)


def written_out(
    score: Score = causal, sizes: Sizes = Sizes(), *, lse: bool = False, safe: bool = False
) -> Graph:
    """Attention with its softmax in single steps."""
    g = GraphBuilder("written_out")
    p = parts(g, sizes)
    x = score(p, scores(p))
    largest = g.reduce_max(x, axis=-1, keepdims=True, name="m")
    shift = g.where(g.equal(largest, -math.inf), 0.0, largest) if safe else largest
    weights = g.exp(x - shift, name="e")
    total = g.reduce_sum(weights, axis=-1, keepdims=True, name="l")
    g.output(
        g.cast(
            g.matmul(g.cast(weights / total, dtype=sizes.dtype), p.v, name="pv"), dtype=sizes.dtype, name="o"
        )
    )
    if lse:
        g.output(g.add(largest, g.log(total), name="lse"))
    return g.build()


def with_sink(score: Score = causal, sizes: Sizes = Sizes()) -> Graph:
    """Attention whose softmax has one more column, a number a head, that no value belongs to."""
    g = GraphBuilder("with_sink")
    p = parts(g, sizes)
    x, sink = score(p, scores(p)), g.input("sink", (sizes.heads, 1, 1), "f32")
    largest = g.maximum(g.reduce_max(x, axis=-1, keepdims=True), sink, name="m")
    weights = g.exp(x - largest, name="e")
    total = g.reduce_sum(weights, axis=-1, keepdims=True) + g.exp(sink - largest)
    weights = g.cast(weights / total, dtype=sizes.dtype)
    g.output(g.cast(g.matmul(weights, p.v), dtype=sizes.dtype, name="o"))
    return g.build()


def with_joined_sink(score: Score = causal, sizes: Sizes = Sizes()) -> Graph:
    """The same as a column that is put behind the scores and left out behind the softmax."""
    g = GraphBuilder("with_joined_sink")
    p, s = parts(g, sizes), sizes
    sink = g.input("sink", (s.batch, s.heads, s.queries, 1), "f32")
    joined = g.concat(score(p, scores(p)), sink, axis=-1, name="c")
    joined = g.softmax(joined - g.reduce_max(joined, axis=-1, keepdims=True), name="p")
    weights = g.cast(g.slice(joined, axis=3, start=0, stop=s.keys), dtype=s.dtype)
    g.output(g.cast(g.matmul(weights, p.v), dtype=s.dtype, name="o"))
    return g.build()


def with_lse(score: Score = causal, sizes: Sizes = Sizes()) -> Graph:
    """A softmax, and beside it the logarithm of its sum written out."""
    g = GraphBuilder("with_lse")
    p = parts(g, sizes)
    x = score(p, scores(p))
    weights = g.cast(g.softmax(x, name="p"), dtype=sizes.dtype)
    g.output(g.cast(g.matmul(weights, p.v, name="pv"), dtype=sizes.dtype, name="o"))
    largest = g.reduce_max(x, axis=-1, name="m")
    column = g.reshape(largest, shape=(*largest.shape, 1))
    g.output(g.add(largest, g.log(g.reduce_sum(g.exp(x - column), axis=3)), name="lse"))
    return g.build()


def grouped(how: str, score: Score | None = None, sizes: Sizes = Sizes(), groups: int = 3) -> Graph:
    """Query heads that share keys: by reshapes of q, k, v and the result, or as the inputs lie."""
    g, s = GraphBuilder(f"grouped_{how}"), sizes
    b, h, n, m, d = s.batch, s.heads, s.queries, s.keys, s.inner
    if how == "reshape":
        q = g.reshape(g.input("q", (b, h * groups, n, d), s.dtype), shape=(b, h, groups, n, d))
    else:
        q = g.input("q", (b, h, groups, n, d), s.dtype)
    k, v = (g.input(name, (b, h, m, e), s.dtype) for name, e in (("k", d), ("v", s.column)))
    k, v = (g.reshape(x, shape=(b, h, 1, m, x.shape[-1])) for x in (k, v))
    i, j = g.iota(shape=(n, 1), axis=0, name="i"), g.iota(shape=(1, m), axis=1, name="j")
    p = Parts(g, s, q, k, v, i, j)
    x = scores(p)
    weights = g.cast(g.softmax(score(p, x) if score else x, name="p"), dtype=s.dtype)
    o = g.cast(g.matmul(weights, v, name="pv"), dtype=s.dtype, name="o5" if how == "reshape" else "o")
    g.output(g.reshape(o, shape=(b, h * groups, n, s.column), name="o") if how == "reshape" else o)
    return g.build()


def projected(score: Score | None = None, sizes: Sizes = Sizes(), groups: int = 3) -> Graph:
    """Query heads that share keys, as projections of tokens lie: three batch axes, no two of which lie together."""
    g, s = GraphBuilder("projected"), sizes
    b, h, n, m = s.batch, s.heads, s.queries, s.keys
    q = g.transpose(g.input("q", (b, n, h, groups, s.inner), s.dtype), perm=(0, 2, 3, 1, 4))
    k, v = (
        g.transpose(g.input(name, (b, m, h, 1, e), s.dtype), perm=(0, 2, 3, 1, 4))
        for name, e in (("k", s.inner), ("v", s.column))
    )
    i, j = g.iota(shape=(n, 1), axis=0, name="i"), g.iota(shape=(1, m), axis=1, name="j")
    x = scores(p := Parts(g, s, q, k, v, i, j))
    weights = g.cast(g.softmax(score(p, x) if score else x, name="p"), dtype=s.dtype)
    o = g.cast(g.matmul(weights, v, name="pv"), dtype=s.dtype)
    g.output(g.transpose(o, perm=(0, 3, 1, 2, 4), name="o"))
    return g.build()


def multi_query(score: Score | None = None, sizes: Sizes = Sizes()) -> Graph:
    """Keys and values with one head, by broadcasting."""
    g, s = GraphBuilder("multi_query"), sizes
    q = g.input("q", (s.batch, s.heads, s.queries, s.inner), s.dtype)
    k = g.input("k", (s.batch, 1, s.keys, s.inner), s.dtype)
    v = g.input("v", (s.batch, 1, s.keys, s.column), s.dtype)
    i, j = g.iota(shape=(s.queries, 1), axis=0), g.iota(shape=(1, s.keys), axis=1)
    p = Parts(g, s, q, k, v, i, j)
    x = scores(p)
    weights = g.cast(g.softmax(score(p, x) if score else x), dtype=s.dtype)
    g.output(g.cast(g.matmul(weights, v), dtype=s.dtype, name="o"))
    return g.build()


def linear(score: Score | None = None, sizes: Sizes = Sizes(), *, normal: bool = False) -> Graph:
    """(q k^T) v with no softmax; with `normal` divided by the sums of the absolute scores."""
    g = GraphBuilder("linear")
    p = parts(g, sizes)
    x = scores(p)
    x = score(p, x) if score else x
    if normal:
        x = x / g.maximum(g.reduce_sum(g.abs(x), axis=-1, keepdims=True), 1.0)
    g.output(g.cast(g.matmul(g.cast(x, dtype=sizes.dtype), p.v, name="pv"), dtype=sizes.dtype, name="o"))
    return g.build()


def rms_normed(p: Parts, x: Symbol) -> Symbol:
    """Scores over the root of their mean square, weighted by key."""
    return p.g.rms_norm(x, p.g.input("weight", (p.sizes.keys,), "f32"))


def zero_causal(p: Parts, x: Symbol) -> Symbol:
    """Scores of later keys are zero."""
    return p.g.where(p.columns <= p.rows, x, 0.0, name="masked")


def rescaled(p: Parts, x: Symbol) -> Symbol:
    """Scores that fade with the distance, causal: retention."""
    fade = p.g.exp(p.g.cast(p.columns - p.rows, dtype="f32") * 0.1)
    return p.g.where(p.columns <= p.rows, x * fade, 0.0)


def two_values(sizes: Sizes = Sizes()) -> Graph:
    """Two value tensors that share one softmax."""
    g = GraphBuilder("two_values")
    p = parts(g, sizes)
    w = g.input("w", (sizes.batch, sizes.heads, sizes.keys, sizes.column), sizes.dtype)
    weights = g.cast(g.softmax(causal(p, scores(p))), dtype=sizes.dtype)
    for name, value in (("o", p.v), ("u", w)):
        g.output(g.cast(g.matmul(weights, value), dtype=sizes.dtype, name=name))
    return g.build()


def gated_output(sizes: Sizes = Sizes()) -> Graph:
    """Causal attention whose output is multiplied by a tensor of its extents."""
    g = GraphBuilder("gated_output")
    p = parts(g, sizes)
    weights = g.cast(g.softmax(causal(p, scores(p)), name="p"), dtype=sizes.dtype)
    gate = g.input("gate", (sizes.batch, sizes.heads, sizes.queries, sizes.column), sizes.dtype)
    g.output(g.cast(g.matmul(weights, p.v, name="pv") * gate, dtype=sizes.dtype, name="o"))
    return g.build()


def packed(score: Score | None = None, sizes: Sizes = Sizes()) -> Graph:
    """Heads packed behind the sequence, (batch, sequence, heads x head), taken apart by views."""
    g, s = GraphBuilder("packed"), sizes

    def heads(name: str, length: int, head: int) -> Symbol:
        x = g.input(name, (s.batch, length, s.heads * head), s.dtype)
        return g.transpose(g.reshape(x, shape=(s.batch, length, s.heads, head)), perm=(0, 2, 1, 3))

    q, k, v = heads("q", s.queries, s.inner), heads("k", s.keys, s.inner), heads("v", s.keys, s.column)
    i, j = g.iota(shape=(s.queries, 1), axis=0), g.iota(shape=(1, s.keys), axis=1)
    p = Parts(g, s, q, k, v, i, j)
    x = scores(p)
    o = g.matmul(g.cast(g.softmax(score(p, x) if score else x), dtype=s.dtype), v)
    o = g.cast(g.transpose(o, perm=(0, 2, 1, 3)), dtype=s.dtype)
    g.output(g.reshape(o, shape=(s.batch, s.queries, s.heads * s.column), name="o"))
    return g.build()


def merged_heads(sizes: Sizes = Sizes()) -> Graph:
    """Batch and heads made one axis by the graph itself, with a bias by head before that."""
    g, s = GraphBuilder("merged"), sizes
    both = s.batch * s.heads
    q, k, v = (
        g.reshape(g.input(name, (s.batch, s.heads, n, d), s.dtype), shape=(both, n, d))
        for name, n, d in (("q", s.queries, s.inner), ("k", s.keys, s.inner), ("v", s.keys, s.column))
    )
    x = g.reshape(g.matmul(q, k, transpose_b=True), shape=(s.batch, s.heads, s.queries, s.keys))
    x = g.reshape(x + g.input("bias", (s.heads, 1, s.keys), "f32"), shape=(both, s.queries, s.keys))
    g.output(g.cast(g.matmul(g.cast(g.softmax(x), dtype=s.dtype), v), dtype=s.dtype, name="o"))
    return g.build()


def transposed(sizes: Sizes = Sizes()) -> Graph:
    """Scores as keys by queries, a softmax down the columns, and a product of their transpose."""
    g, s = GraphBuilder("transposed"), sizes
    p = parts(g, s)
    x = g.matmul(p.k, p.q, transpose_b=True, name="s") * 0.25
    weights = g.cast(g.softmax(x, axis=2), dtype=s.dtype)
    g.output(g.cast(g.matmul(weights, p.v, transpose_a=True), dtype=s.dtype, name="o"))
    return g.build()


def shared(sizes: Sizes = Sizes()) -> Graph:
    """One tensor as query, key and value, without batches, and a mean and a minimum beside the softmax."""
    g, s = GraphBuilder("shared"), sizes
    x = g.input("x", (s.keys, s.inner), s.dtype)
    t = g.matmul(x, x, transpose_b=True, name="s") * 0.1
    o = g.matmul(g.cast(g.softmax(t), dtype=s.dtype), x)
    spread = g.reduce_mean(t, axis=1, keepdims=True) - g.reduce_min(t, axis=1, keepdims=True)
    g.output(g.cast(o * spread, dtype=s.dtype, name="o"))
    return g.build()


def cleaned(sizes: Sizes = Sizes()) -> Graph:
    """Rows with nothing, whose nan the graph replaces by zeros itself."""
    g = GraphBuilder("cleaned")
    p = parts(g, sizes)
    seen = g.logical_and(p.rows < 20, p.columns <= p.rows)
    x = g.where(seen, scores(p), -math.inf)
    e = g.exp(x - g.reduce_max(x, axis=-1, keepdims=True))
    weights = g.where(seen, e / g.reduce_sum(e, axis=-1, keepdims=True), 0.0)
    g.output(g.cast(g.matmul(g.cast(weights, dtype=sizes.dtype), p.v), dtype=sizes.dtype, name="o"))
    return g.build()
