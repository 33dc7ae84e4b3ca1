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
