"""Kernels of rows for the emit tests: structures without products, and kernels of graphs that are cut to them."""

from __future__ import annotations

import functools

from emit_builds import Body, Emitted, build, graph_of

from wsopt.program.types import Sharing, Structure


def structure(rows: int, columns: int, consumers: int = 1, warps: int = 4) -> Structure:
    """A structure of tiles of rows, which persistent blocks take."""
    return Structure(rows, columns, 1, consumers, warps, Sharing.COOPERATIVE, True, False, 1, 1)


@functools.cache
def emitted(
    body: Body, rows: int, columns: int, consumers: int = 1, warps: int = 4, kib: int = 227
) -> Emitted:
    """The kernel of a graph cut to such a structure, for a block of so much shared memory."""
    return build(graph_of(body), structure(rows, columns, consumers, warps), kib)
