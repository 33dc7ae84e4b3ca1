"""Small kernels of every shape that an emitter knows, whose text is kept."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from functools import partial

import element_graphs
import emit_builds as builds
import over_rows_graphs
import row_graphs
from emit_builds import Body, Emitted, build, graph_of, structure

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Structure


def decoded(g: GraphBuilder, keys: int = 8192, batches: int = 2) -> Symbol:
    """o = softmax(q k' / 8) v for a few queries, over as many keys of each element as `n` says."""
    q, n = g.input("q", (batches, 40, 64), "bf16"), g.input("n", (batches,), "i32")
    k, v = (g.input(name, (batches, keys, wide), "bf16") for name, wide in (("k", 64), ("v", 128)))
    s = g.mul(g.matmul(q, k, transpose_b=True), 0.125)
    seen = g.iota(shape=(1, keys), axis=1) < g.reshape(n, shape=(batches, 1, 1))
    weights = g.cast(g.softmax(g.where(seen, s, -math.inf), axis=-1), dtype="bf16")
    return g.cast(g.matmul(weights, v), dtype="bf16", name="o")


KERNELS: dict[str, tuple[Body, Structure]] = {
    "plain": (builds.plain, structure(columns=128, consumers=2, subtiles=2)),
    "residual_ping_pong": (builds.residual, structure(consumers=2, ping_pong=True)),
    "clamped": (builds.clamped, structure()),
    "scaled": (builds.scaled, structure(depth=128, copies=2)),
    "streamed_rows": (row_graphs.layer_norm, structure(columns=1024, depth=1, consumers=2, rows=4)),
    "joint": (builds.plain, structure(columns=128, rows=128, warps=8, subtiles=2)),
    "elements": (element_graphs.biased, structure(columns=256, depth=1, consumers=2, rows=2)),
    "long_rows": (row_graphs.long_softmax, structure(columns=2048, depth=1, consumers=2, rows=2)),
    "joined": (element_graphs.turned, structure(columns=64, depth=1, rows=16)),
    "pairs": (
        element_graphs.in_pairs,
        replace(structure(columns=128, depth=1, rows=4, persistent=False), group=1, occupancy=8),
    ),
    "saved_rows": (
        partial(over_rows_graphs.saved_backward, columns=1024),
        structure(columns=1024, depth=1, consumers=2, rows=2),
    ),
    "normed_rows": (row_graphs.normed_product, structure(columns=128, consumers=2, subtiles=2)),
    "row_values": (row_graphs.weights_and_logsumexp, structure(columns=512, depth=1, consumers=2, rows=4)),
    "split": (builds.residual, structure(columns=128, consumers=2, subtiles=2, splits=3)),
    "added": (builds.residual, structure(columns=128, consumers=2, subtiles=2, splits=3, atomics=True)),
    "combined": (decoded, structure(columns=128, depth=128, subtiles=2, splits=3)),
    "shared": (
        partial(decoded, batches=6),
        replace(structure(columns=128, depth=128, subtiles=2), shares=True),
    ),
    "shared_products": (
        builds.residual,
        replace(structure(columns=128, consumers=2, subtiles=2), shares=True),
    ),
}


@functools.cache
def emitted(name: str) -> Emitted:
    body, chosen = KERNELS[name]
    return build(graph_of(body, name), chosen)
