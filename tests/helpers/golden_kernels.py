"""Eight small kernels of every shape that an emitter knows, whose text is kept."""

from __future__ import annotations

import functools

import emit_builds as builds
import row_graphs
from emit_builds import Body, Emitted, build, graph_of, structure

from wsopt.program.types import Structure

KERNELS: dict[str, tuple[Body, Structure]] = {
    "plain": (builds.plain, structure(columns=128, consumers=2, subtiles=2)),
    "residual_ping_pong": (builds.residual, structure(consumers=2, ping_pong=True)),
    "clamped": (builds.clamped, structure()),
    "scaled": (builds.scaled, structure(depth=128, copies=2)),
    "streamed_rows": (row_graphs.layer_norm, structure(columns=1024, depth=1, consumers=2, rows=4)),
    "joint": (builds.plain, structure(columns=128, rows=128, warps=8, subtiles=2)),
    "normed_rows": (row_graphs.normed_product, structure(columns=128, consumers=2, subtiles=2)),
    "split": (builds.residual, structure(columns=128, consumers=2, subtiles=2, splits=3)),
}


@functools.cache
def emitted(name: str) -> Emitted:
    body, chosen = KERNELS[name]
    return build(graph_of(body, name), chosen)
