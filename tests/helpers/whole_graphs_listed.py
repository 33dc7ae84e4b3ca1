"""Small graphs of whole layers, as models have them: each is one kernel, or is cut into several.

`tests/partition/whole_graphs.py` compiles and simulates them; the tests ask whether kernels can be made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.types import Graph

Body = Callable[[GraphBuilder], "Symbol | tuple[Symbol, ...]"]

NEGATIVE = float("-inf")


def _weight(g: GraphBuilder, name: str, *shape: int) -> Symbol:
    return g.input(name, shape, "bf16", constant=True)


def _linear(g: GraphBuilder, x: Symbol, name: str, columns: int) -> Symbol:
    """x @ w.T, rounded."""
    w = _weight(g, f"{name}_w", columns, x.shape[-1])
    return g.cast(g.matmul(x, w, transpose_b=True), "bf16", name=name)


def _normed(g: GraphBuilder, x: Symbol, name: str) -> Symbol:
    return g.cast(g.rms_norm(x, _weight(g, f"{name}_w", x.shape[-1])), "bf16", name=name)


def _turned(g: GraphBuilder, x: Symbol, name: str) -> Symbol:
    """Rotary embedding of [tokens, heads, width]: halves of heads, turned by angles of their position."""
    tokens, _, width = x.shape
    half = width // 2
    cos, sin = (g.input(f"{name}_{what}", (tokens, 1, half), "f32", constant=True) for what in ("cos", "sin"))
    first, second = g.slice(x, stop=half), g.slice(x, start=half)
    left = g.sub(g.mul(first, cos), g.mul(second, sin))
    right = g.add(g.mul(second, cos), g.mul(first, sin))
    return g.cast(g.concat(left, right), "bf16", name=name)


def _heads(g: GraphBuilder, x: Symbol, heads: int) -> Symbol:
    return g.reshape(x, shape=(x.shape[0], heads, x.shape[1] // heads))


def _attended(g: GraphBuilder, q: Symbol, k: Symbol, v: Symbol) -> Symbol:
    """Causal attention of [tokens, heads, width] each, as [tokens, heads * width]."""
    tokens, heads, width = q.shape
    keys, groups = k.shape[:2]
    qh = g.transpose(g.reshape(q, shape=(tokens, groups, heads // groups, width)), perm=(1, 2, 0, 3))
    kh, vh = (
        g.transpose(g.reshape(one, shape=(keys, groups, 1, width)), perm=(1, 2, 0, 3)) for one in (k, v)
    )
    scores = g.mul(g.matmul(qh, kh, transpose_b=True), width**-0.5)
    i, j = g.iota(shape=(tokens, 1), axis=0), g.iota(shape=(1, keys), axis=1)
    weights = g.cast(g.softmax(g.where(g.greater_equal(i, j), scores, NEGATIVE)), "bf16")
    o = g.cast(g.matmul(weights, vh), "bf16")
    return g.reshape(g.transpose(o, perm=(2, 0, 1, 3)), shape=(tokens, heads * width))


def fused_qkv(g: GraphBuilder) -> tuple[Symbol, ...]:
    """A norm with its weight, queries, keys and values by one product, and their rotary embedding."""
    tokens, heads, groups, width = 128, 4, 2, 64
    x = g.input("x", (tokens, 256), "bf16")
    joined = _linear(g, _normed(g, x, "h"), "qkv", (heads + 2 * groups) * width)
    ends = (heads * width, (heads + groups) * width)
    q, k = (g.slice(joined, start=start, stop=stop) for start, stop in ((0, ends[0]), ends))
    v = g.slice(joined, start=ends[1])
    return (
        _turned(g, _heads(g, q, heads), "q"),
        _turned(g, _heads(g, k, groups), "k"),
        g.cast(v, "bf16", name="v"),
    )


def llama_block(g: GraphBuilder) -> Symbol:
    """A decoder's block with rotary embedding and queries in groups."""
    tokens, heads, groups, width, inner = 128, 4, 2, 64, 384
    x = g.input("x", (tokens, heads * width), "bf16")
    h = _normed(g, x, "h0")
    q = _turned(g, _heads(g, _linear(g, h, "q_", heads * width), heads), "q")
    k = _turned(g, _heads(g, _linear(g, h, "k_", groups * width), groups), "k")
    v = _heads(g, _linear(g, h, "v_", groups * width), groups)
    o = _attended(g, q, k, v)
    wo, down = _weight(g, "wo", heads * width, heads * width), _weight(g, "down_w", heads * width, inner)
    r = g.cast(g.add(g.matmul(o, wo, transpose_b=True), x), "bf16", name="r")
    h = _normed(g, r, "h1")
    gate, up = (
        g.matmul(h, _weight(g, f"{name}_w", inner, heads * width), transpose_b=True)
        for name in ("gate", "up")
    )
    m = g.cast(g.mul(g.silu(gate), up), "bf16", name="m")
    return g.cast(g.add(g.matmul(m, down, transpose_b=True), r), "bf16", name="y")


def odd_mlp(g: GraphBuilder) -> Symbol:
    """Two products with odd widths: 200 in, 344 inside, 136 out."""
    x = g.input("x", (72, 200), "bf16")
    up, down = _weight(g, "up", 344, 200), _weight(g, "down", 136, 344)
    bias, last = _weight(g, "bias", 344), _weight(g, "last", 136)
    h = g.cast(g.gelu(g.add(g.matmul(x, up, transpose_b=True), bias), approximate="tanh"), "bf16", name="h")
    return g.cast(g.add(g.matmul(h, down, transpose_b=True), last), "bf16", name="y")


def lora(g: GraphBuilder) -> Symbol:
    """x @ W + (x @ A) @ B of rank 16."""
    x = g.input("x", (128, 256), "bf16")
    low = g.cast(g.matmul(x, _weight(g, "a", 256, 16)), "bf16", name="low")
    more = g.mul(g.matmul(low, _weight(g, "b", 16, 384)), 2.0)
    return g.cast(g.add(g.matmul(x, _weight(g, "w", 256, 384)), more), "bf16", name="y")


def linear_logsumexp(g: GraphBuilder) -> Symbol:
    """The logits of a vocabulary, and the logarithm of each row's sum of exponentials."""
    x = g.input("x", (64, 128), "bf16")
    logits = g.matmul(x, _weight(g, "w", 32000, 128), transpose_b=True)
    return g.logsumexp(g.cast(logits, "bf16"), axis=-1, name="y")


def cross_entropy(g: GraphBuilder) -> Symbol:
    """The loss of each row: its logarithm of the sum of exponentials, less its target's logit."""
    x, target = g.input("x", (64, 128), "bf16"), g.input("target", (64, 1), "i32")
    w = _weight(g, "w", 32000, 128)
    logits = g.cast(g.matmul(x, w, transpose_b=True), "bf16", name="logits")
    at = g.equal(g.iota(shape=(1, 32000), axis=1), target)
    chosen = g.reduce_sum(g.where(at, logits, 0.0), axis=-1)
    return g.sub(g.logsumexp(logits, axis=-1), chosen, name="loss")


def log_softmax(g: GraphBuilder) -> Symbol:
    """Logarithms of a softmax over a large vocabulary."""
    x = g.input("x", (4, 128256), "bf16")
    return g.cast(g.sub(x, g.logsumexp(x, axis=-1, keepdims=True)), "bf16", name="y")


def silu_gate(g: GraphBuilder) -> Symbol:
    """A gate times what it opens."""
    a, b = (g.input(name, (96, 1280), "bf16") for name in "ab")
    return g.cast(g.mul(g.silu(a), b), "bf16", name="y")


def quantized_rows(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Rows in f8, with a scale each."""
    x = g.input("x", (96, 1024), "bf16")
    largest = g.reduce_max(g.abs(x), axis=-1, keepdims=True)
    scale = g.div(g.where(g.equal(largest, 0.0), 448.0, largest), 448.0, name="scale")
    return g.cast(g.div(x, scale), "f8e4m3", name="q"), scale


def product_gradients(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Gradients of y = x @ w.T with respect to x and w."""
    dy, x = g.input("dy", (128, 384), "bf16"), g.input("x", (128, 256), "bf16")
    dx = g.cast(g.matmul(dy, _weight(g, "w", 384, 256)), "bf16", name="dx")
    return dx, g.cast(g.matmul(dy, x, transpose_a=True), "bf16", name="dw")


def bias_gradient(g: GraphBuilder) -> Symbol:
    """Gradient of a bias: a sum over all rows."""
    return g.cast(g.reduce_sum(g.input("dy", (128, 384), "bf16"), axis=0), "bf16", name="db")


def attention_probabilities(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Attention that hands out its probabilities too."""
    q, k, v = (g.input(name, (4, 128, 64), "bf16") for name in "qkv")
    scores = g.mul(g.matmul(q, k, transpose_b=True), 0.125)
    p = g.cast(g.softmax(scores), "bf16", name="p")
    return g.cast(g.matmul(p, v), "bf16", name="o"), p


def chunked_prefill(g: GraphBuilder) -> Symbol:
    """A chunk of queries, in groups, behind cached keys: the first query's position comes at run time."""
    groups, shared, tokens, keys, width = 2, 2, 64, 256, 64
    q = g.input("q", (groups, shared, tokens, width), "bf16")
    k, v = (g.input(name, (groups, 1, keys, width), "bf16") for name in "kv")
    offset = g.input("offset", (), "i32")
    scores = g.mul(g.matmul(q, k, transpose_b=True), width**-0.5)
    i, j = g.iota(shape=(tokens, 1), axis=0), g.iota(shape=(1, keys), axis=1)
    seen = g.less_equal(j, g.add(i, offset))
    p = g.cast(g.softmax(g.where(seen, scores, NEGATIVE)), "bf16")
    return g.cast(g.matmul(p, v), "bf16", name="o")


def attention_sink(g: GraphBuilder) -> Symbol:
    """Each head has a logit beside its scores that takes part in the softmax's sum alone."""
    heads, tokens, width = 4, 128, 64
    q, k, v = (g.input(name, (heads, tokens, width), "bf16") for name in "qkv")
    sink = g.input("sink", (heads, 1, 1), "f32", constant=True)
    scores = g.mul(g.matmul(q, k, transpose_b=True), width**-0.5)
    i, j = g.iota(shape=(tokens, 1), axis=0), g.iota(shape=(1, tokens), axis=1)
    scores = g.where(g.greater_equal(i, j), scores, NEGATIVE)
    peak = g.reduce_max(scores, axis=-1, keepdims=True)
    weights = g.exp(g.sub(scores, peak))
    total = g.add(g.reduce_sum(weights, axis=-1, keepdims=True), g.exp(g.sub(sink, peak)))
    return g.cast(g.matmul(g.cast(g.div(weights, total), "bf16"), v), "bf16", name="o")


def batched_views(g: GraphBuilder) -> Symbol:
    """Products of [batch, tokens, heads, width] seen as [batch, heads, tokens, width]."""
    a, b = (g.transpose(g.input(name, (2, 128, 3, 64), "bf16"), perm=(0, 2, 1, 3)) for name in "ab")
    return g.cast(g.matmul(a, b, transpose_b=True), "bf16", name="y")


def _taps(g: GraphBuilder, x: Symbol, places: tuple[tuple[int, int], ...], size: tuple[int, int]) -> Symbol:
    """Of [batch, height, width, channels] the neighbours that a convolution sees, joined along channels."""
    found = []
    for i, j in places:
        rows = g.slice(x, axis=1, start=i, stop=i + size[0])
        found.append(g.slice(rows, axis=2, start=j, stop=j + size[1]))
    return g.concat(*(g.concat(*found[first : first + 3]) for first in range(0, 9, 3)))


def pointwise_convolution(g: GraphBuilder) -> tuple[Symbol, ...]:
    """A 1x1 convolution with a bias, channels last and channels first."""
    x, w = g.input("x", (2, 8, 16, 64), "bf16"), _weight(g, "w", 128, 64)
    biased = g.add(g.matmul(x, w, transpose_b=True), _weight(g, "bias", 128))
    first = g.reshape(g.input("first", (2, 64, 8, 16), "bf16"), shape=(2, 64, 128))
    return g.cast(biased, "bf16", name="y"), g.cast(g.matmul(w, first), "bf16", name="z")


def convolution(g: GraphBuilder) -> Symbol:
    """A 3x3 convolution with zeros around the image, as a product of each element's neighbours."""
    x = g.pad(g.input("x", (2, 8, 16, 64), "bf16"), low=(0, 1, 1, 0), high=(0, 1, 1, 0))
    near = _taps(g, x, tuple((i, j) for i in range(3) for j in range(3)), (8, 16))
    rows = g.reshape(near, shape=(2 * 8 * 16, 9 * 64))
    return g.cast(g.matmul(rows, _weight(g, "w", 9 * 64, 128)), "bf16", name="y")


def strided_convolution(g: GraphBuilder) -> Symbol:
    """A 3x3 convolution with a stride of two of an image with zeros around it, given as pairs of rows and of columns:
    [batch, height / 2, width, 2 * channels] are the bytes of [batch, height, width, channels].
    """
    batch, height, width, channels = 2, 18, 34, 64
    pairs = g.input("x", (batch, height // 2, width, 2 * channels), "bf16")
    tall, wide, found = height // 2 - 1, width // 2 - 1, []
    for i, j in ((i, j) for i in range(3) for j in range(3)):
        lower, right = i % 2 * (width // 2) + j // 2, j % 2 * channels
        rows = g.slice(pairs, axis=1, start=i // 2, stop=i // 2 + tall)
        columns = g.slice(rows, axis=2, start=lower, stop=lower + wide)
        found.append(g.slice(columns, start=right, stop=right + channels))
    near = g.concat(*(g.concat(*found[first : first + 3]) for first in range(0, 9, 3)))
    rows = g.reshape(near, shape=(batch * tall * wide, 9 * channels))
    return g.cast(g.relu(g.matmul(rows, _weight(g, "w", 9 * channels, 128))), "bf16", name="y")


def patches(g: GraphBuilder) -> Symbol:
    """Patches of 4x4 of an image as rows of a product: a convolution whose stride is its size."""
    batch, height, width, channels, size = 2, 32, 64, 16, 4
    x = g.input("x", (batch, height, width, channels), "bf16")
    parts = g.reshape(x, shape=(batch, height // size, size, width // size, size * channels))
    rows = g.reshape(g.transpose(parts, perm=(0, 1, 3, 2, 4)), shape=(256, size * size * channels))
    y = g.matmul(rows, _weight(g, "w", 128, size * size * channels), transpose_b=True)
    return g.cast(g.add(y, _weight(g, "bias", 128)), "bf16", name="y")


def patches_of_a_batch(g: GraphBuilder) -> Symbol:
    """Rows of three colours of a patch of 14 x 14, with what is added at each place: six axes in another order."""
    x, w = g.input("x", (2, 3, 28, 28), "bf16"), _weight(g, "w", 64, 588)
    apart = g.transpose(g.reshape(x, shape=(2, 3, 2, 14, 2, 14)), perm=(0, 2, 4, 1, 3, 5))
    y = g.matmul(g.reshape(apart, shape=(8, 588)), w, transpose_b=True)
    return g.cast(g.add(g.reshape(y, shape=(2, 4, 64)), _weight(g, "places", 4, 64)), "bf16", name="y")


def windows_of_heads(g: GraphBuilder) -> Symbol:
    """Attention within windows of 8 x 8 of images whose heads lie behind rows and columns."""

    def windows(name: str) -> Symbol:
        x = g.reshape(g.input(name, (2, 16, 16, 2, 32), "bf16"), shape=(2, 2, 8, 2, 8, 2, 32))
        return g.reshape(g.transpose(x, perm=(0, 1, 3, 5, 2, 4, 6)), shape=(8, 2, 64, 32))

    scores = g.mul(g.matmul(windows("q"), windows("k"), transpose_b=True), 32**-0.5)
    return g.cast(g.matmul(g.cast(g.softmax(scores), "bf16"), windows("v")), "bf16", name="y")


def embedding(g: GraphBuilder) -> Symbol:
    """Rows of a table by tokens, times a number, and positions."""
    table, tokens = _weight(g, "table", 32000, 256), g.input("tokens", (2, 48), "i32")
    positions = _weight(g, "positions", 48, 256)
    return g.cast(g.add(g.mul(g.gather(table, tokens), 16.0), positions), "bf16", name="y")


def embedded_queries(g: GraphBuilder) -> Symbol:
    """Rows of a table, their norm, and a product of them: gathered by a kernel before."""
    x = g.gather(_weight(g, "table", 1000, 256), g.input("tokens", (128,), "i32"), name="x")
    return _linear(g, _normed(g, x, "h"), "q", 128)


def cached_attention(g: GraphBuilder) -> tuple[Symbol, ...]:
    """Attention of one query whose key and value are appended to those of a cache, which are results as well."""
    q = g.input("q", (2, 4, 1, 64), "bf16")

    def appended(name: str) -> Symbol:
        cache, one = (g.input(f"{name}{what}", (2, 4, n, 64), "bf16") for what, n in (("s", 63), ("", 1)))
        return g.concat(cache, one, axis=2, name=f"{name}_all")

    k, v = appended("k"), appended("v")
    p = g.cast(g.softmax(g.mul(g.matmul(q, k, transpose_b=True), 0.125)), "bf16")
    return g.cast(g.matmul(p, v), "bf16", name="y"), k, v


def shifted_windows(g: GraphBuilder) -> Symbol:
    """A layer norm of an image whose rows and columns begin elsewhere, in windows of 8 by 8."""
    x = g.input("x", (2, 16, 16, 64), "bf16")
    for axis in (1, 2):
        x = g.concat(g.slice(x, axis=axis, start=4), g.slice(x, axis=axis, stop=4), axis=axis)
    windows = g.transpose(g.reshape(x, shape=(2, 2, 8, 2, 8, 64)), perm=(0, 1, 3, 2, 4, 5))
    rows = g.reshape(windows, shape=(8, 64, 64))
    return g.cast(g.layer_norm(rows, _weight(g, "w", 64), _weight(g, "b", 64)), "bf16", name="y")


def paired_rotary(g: GraphBuilder) -> Symbol:
    """Queries of a product, of which neighbours are turned: the first and the second of each pair."""
    x = g.input("x", (128, 256), "bf16")
    pairs = g.reshape(_heads(g, _linear(g, x, "q_", 256), 4), shape=(128, 4, 32, 2))
    cos, sin = (g.input(name, (128, 1, 32, 1), "f32", constant=True) for name in ("cos", "sin"))
    first, second = g.slice(pairs, stop=1), g.slice(pairs, start=1)
    turned = g.concat(first * cos - second * sin, second * cos + first * sin)
    return g.cast(g.reshape(turned, shape=(128, 256)), "bf16", name="y")


GRAPHS: Mapping[str, Body] = {
    body.__name__: body
    for body in (
        fused_qkv,
        llama_block,
        odd_mlp,
        lora,
        linear_logsumexp,
        cross_entropy,
        log_softmax,
        silu_gate,
        quantized_rows,
        product_gradients,
        bias_gradient,
        attention_probabilities,
        chunked_prefill,
        attention_sink,
        batched_views,
        pointwise_convolution,
        convolution,
        strided_convolution,
        patches,
        patches_of_a_batch,
        windows_of_heads,
        embedding,
        embedded_queries,
        cached_attention,
        shifted_windows,
        paired_rotary,
    )
}


def whole_graph(name: str) -> Graph:
    """One of them, by name."""
    g = GraphBuilder(name)
    found = GRAPHS[name](g)
    g.output(*(found if isinstance(found, tuple) else (found,)))
    return g.build()
