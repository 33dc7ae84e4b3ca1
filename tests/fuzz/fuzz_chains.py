"""Random graphs of two chained products: attention with masks, biases, groups and statistics, and its kin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fuzz_draft import Draft
from fuzz_steps import condition, function, indices, steps, store, store_some

from wsopt.graph.builder import Symbol

DECODE = "family decode"
"""Graphs of few queries and many keys, whose loops are split over blocks."""
FEW, MANY = (1, 2, 4, 5, 8, 16, 40, 72), (2048, 4000, 4096, 8192, 16384, 33000)
HEADS = (16, 32, 64, 64, 80, 96, 128, 128, 8, 40, 192, 256)


@dataclass(frozen=True, slots=True)
class Chain:
    """Queries, keys and values, already in the shapes in which they are multiplied."""

    q: Symbol
    k: Symbol
    v: Symbol
    dtype: str


def lengths(d: Draft) -> tuple[int, int]:
    """How many queries and keys there are."""
    if DECODE in d.features:
        return d.pick(FEW), d.pick(MANY)
    queries = d.extent(most=1024)
    if d.chance(0.6):
        return queries, queries
    d.mark("cross lengths")
    return queries, d.extent(most=1024)


def plain(d: Draft, dtype: str, lead: tuple[int, ...]) -> Chain:
    """Three tensors of the same batches."""
    queries, keys = lengths(d)
    inner = d.pick(HEADS)
    column = inner if d.chance(0.75) else d.pick(HEADS)
    shapes = {"q": (queries, inner), "k": (keys, inner), "v": (keys, column)}
    return Chain(*(d.tensor(name, (*lead, *shape), dtype) for name, shape in shapes.items()), dtype)


def batched(d: Draft, dtype: str) -> Chain:
    d.mark("batch")
    return plain(d, dtype, (d.pick((1, 2, 3, 4)),))


def two_batches(d: Draft, dtype: str) -> Chain:
    d.mark("two batch axes")
    return plain(d, dtype, (d.pick((1, 2, 3)), d.pick((1, 2, 4))))


def unbatched(d: Draft, dtype: str) -> Chain:
    return plain(d, dtype, ())


def grouped(d: Draft, dtype: str) -> Chain:
    """Several query heads for each head of keys and values, by reshapes."""
    d.mark("two batch axes")
    batch, heads, groups = d.pick((1, 2)), d.pick((1, 2, 3)), d.pick((2, 4))
    queries, keys = lengths(d)
    inner = d.pick(HEADS)
    q = d.tensor("q", (batch, heads * groups, queries, inner), dtype, plain=True)
    q = d.g.reshape(q, shape=(batch, heads, groups, queries, inner))
    k, v = (
        d.g.reshape(
            d.tensor(name, (batch, heads, keys, inner), dtype, plain=True),
            shape=(batch, heads, 1, keys, inner),
        )
        for name in "kv"
    )
    return Chain(q, k, v, dtype)


def packed(d: Draft, dtype: str) -> Chain:
    """Heads that lie beside one another in each row of the sequence."""
    batch, heads, inner = d.pick((1, 2)), d.pick((2, 4)), d.pick((32, 64, 128))
    queries, keys = lengths(d)

    def apart(name: str, length: int) -> Symbol:
        x = d.tensor(name, (batch, length, heads * inner), dtype, plain=True)
        return d.g.transpose(d.g.reshape(x, shape=(batch, length, heads, inner)), perm=(0, 2, 1, 3))

    return Chain(apart("q", queries), apart("k", keys), apart("v", keys), dtype)


def one_tensor(d: Draft, dtype: str) -> Chain:
    """One tensor is queries, keys and values."""
    x = d.tensor("x", (d.extent(most=1024), d.pick(HEADS)), dtype)
    return Chain(x, x, x, dtype)


KINDS: Mapping[str, tuple[float, Callable[[Draft, str], Chain]]] = {
    "chain without batch": (2, unbatched),
    "chain batched": (3, batched),
    "chain with heads": (3, two_batches),
    "chain grouped": (1, grouped),
    "chain packed": (1, packed),
    "chain of one tensor": (0.5, one_tensor),
}


def capped(d: Draft, score: Symbol) -> Symbol:
    return d.g.tanh(score / 5.0) * 5.0


def hidden(d: Draft, score: Symbol) -> Symbol:
    low = d.pick((-math.inf, -math.inf, -math.inf, -1e30, -1e4))
    return d.g.where(condition(d, score), score, low)


def added_mask(d: Draft, score: Symbol) -> Symbol:
    return score + d.g.where(condition(d, score), 0.0, d.pick((-math.inf, -1e9)))


def biased(d: Draft, score: Symbol) -> Symbol:
    *lead, rows, columns = score.shape
    shape = d.pick(((columns,), (rows, columns), (*lead, 1, columns), (rows, 1), (*lead, rows, columns)))
    return score + d.source("bias", shape)


def sloped(d: Draft, score: Symbol) -> Symbol:
    """A slope by head times the distance."""
    i = d.g.iota(shape=(score.shape[-2], 1), axis=0)
    j = d.g.iota(shape=(1, score.shape[-1]), axis=1)
    slope = d.tensor("slope", (*score.shape[-3:-2], 1, 1), "f32")
    return score + slope * (d.g.cast(d.g.abs(j - i), dtype="f32") * -0.02)


def rounded(d: Draft, score: Symbol) -> Symbol:
    return d.g.cast(score, dtype=d.pick(("bf16", "f16")))


def bent(d: Draft, score: Symbol) -> Symbol:
    return function(d, score)


def scaled_by(d: Draft, score: Symbol) -> Symbol:
    """Scores times a factor of the head or of the query."""
    return score * d.source("scale", d.pick(((*score.shape[:-2], 1, 1), (score.shape[-2], 1))))


def segments(d: Draft, score: Symbol) -> Symbol:
    """Queries see keys of their own segment and of earlier ones."""
    *_, rows, columns = score.shape
    a, b = d.tensor("segment", (rows, 1), "i32"), d.tensor("segment", (columns,), "i32")
    return d.g.where(a >= b if d.chance(0.5) else d.g.equal(a, b), score, d.pick((-1e4, -math.inf)))


def by_length(d: Draft, score: Symbol) -> Symbol:
    """Keys up to a length, or in a chunk of a longer sequence, that the call says."""
    i, j = indices(d, score)
    lead = len(score.shape) - 2
    shape = d.pick(((), (score.shape[0],) if lead else ()))
    n = d.tensor("length", shape, "i32", plain=True)
    if shape:
        n = d.g.reshape(n, shape=(*shape, *(1,) * (lead + 1)))
    seen = {
        "length": lambda: j < n,
        "length, causal": lambda: (j < n) & (j <= i),
        "from a length": lambda: d.g.greater_equal(j, n),
        "from a magnitude": lambda: d.g.greater_equal(j, d.g.abs(n)),
        "near a length": lambda: d.g.less(d.g.abs(j - n), max(2, score.shape[-1] // 3)),
        "chunk": lambda: j <= i + n,
        "chunk window": lambda: (j <= i + n) & (i + n - j < max(2, score.shape[-1] // 4)),
    }
    kind = d.pick(tuple(seen))
    d.mark(f"mask {kind}")
    return d.g.where(seen[kind](), score, d.pick((-math.inf, -math.inf, -math.inf, -1e30)))


SCORES: Mapping[str, tuple[float, Callable[[Draft, Symbol], Symbol]]] = {
    "hidden scores": (5, hidden),
    "added mask": (1, added_mask),
    "capped scores": (1, capped),
    "biased scores": (2, biased),
    "sloped scores": (1, sloped),
    "rounded scores": (0.5, rounded),
    "function of scores": (0.7, bent),
    "scaled scores": (0.7, scaled_by),
    "segments": (0.5, segments),
    "scores by length": (1, by_length),
}


def scores(d: Draft, chain: Chain) -> Symbol:
    """The product of queries and keys, scaled, with some steps after it."""
    score = d.g.matmul(chain.q, chain.k, transpose_b=True) * float(chain.q.shape[-1] ** -0.5)
    for _ in range(d.weighted({0: 3, 1: 5, 2: 2})):
        kind = d.weighted({name: weight for name, (weight, _) in SCORES.items()})
        d.mark(kind)
        score = SCORES[kind][1](d, score)
    if DECODE in d.features and d.chance(0.5):
        d.mark("scores by length")
        score = by_length(d, score)
    return score


def weights(d: Draft, score: Symbol) -> Symbol:
    """What the values are multiplied by: a softmax, one written out, or the scores themselves."""
    g = d.g
    kind = d.weighted({"softmax": 6, "written out": 2, "linear": 1, "logsumexp": 1, "sigmoid": 0.5})
    d.mark(f"weights {kind}")
    if kind == "softmax":
        return g.softmax(score)
    if kind == "linear":
        return g.where(condition(d, score), g.maximum(score, -50.0), 0.0)
    if kind == "sigmoid":
        return g.sigmoid(score)
    largest = g.reduce_max(score, axis=-1, keepdims=True)
    exponentials = g.exp(score - largest)
    total = g.reduce_sum(exponentials, axis=-1, keepdims=True)
    if kind == "logsumexp":
        store(d, largest + g.log(total), "lse")
    return exponentials / total


def chain_graph(d: Draft) -> None:
    """Attention and its kin."""
    dtype = d.weighted({"bf16": 6, "f16": 4, "f8e4m3": 0.3})
    d.mark(f"product of {dtype}")
    kind = d.weighted({name: weight for name, (weight, _) in KINDS.items()})
    d.mark(kind)
    chain = KINDS[kind][1](d, dtype)
    left = d.g.cast(weights(d, scores(d, chain)), dtype=dtype)
    mixed = d.g.matmul(left, chain.v)
    if kind == "chain packed":
        batch, heads, rows, inner = mixed.shape
        mixed = d.g.cast(d.g.transpose(mixed, perm=(0, 2, 1, 3)), dtype=dtype)
        d.g.output(d.g.reshape(mixed, shape=(batch, rows, heads * inner)))
        return
    store_some(d, steps(d, mixed, 2 if d.chance(0.3) else 0))
