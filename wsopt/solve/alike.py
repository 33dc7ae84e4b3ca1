"""Products of a loop that can change places: any order of theirs is as good as the one in which they are named.

A sum of products, as of a convolution's taps, has a product and two copies for each. Exchanging two of them gives a
schedule of the same time, and there are so many of those that nobody finds the best among all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from wsopt.program.ids import OpId, OpKind
from wsopt.program.operations import TileOp
from wsopt.program.program import TileProgram

_BARE = frozenset({OpKind.TMA_LOAD, OpKind.MMA, OpKind.RELEASE})
"""What a loop has that computes nothing beside products."""


def in_order(program: TileProgram) -> Iterator[tuple[OpId, OpId]]:
    """Pairs of operations of which the second needs not start before the first.

    Those are one consumer's products that are alike: they take the same time, read the same tiles in common with
    others, and of their own as many that take as long. Copies that take as long, each for one of them, come in the
    order in which they are waited for.
    """
    if not {op.kind for op in program.loop} <= _BARE:
        return
    products: dict[str, list[TileOp]] = {}
    for op in program.of(OpKind.MMA):
        products.setdefault(op.id.subject, []).append(op)
    copies: dict[str, list[TileOp]] = {}
    for op in program.of(OpKind.TMA_LOAD):
        copies.setdefault(op.id.subject, []).append(op)
    read = [tile for own in products.values() for tile in _tiles(own)]
    groups: dict[object, list[tuple[TileOp, ...]]] = {}
    for own in products.values():
        shared = frozenset(tile for tile in _tiles(own) if read.count(tile) > 1)
        alone = [op for tile in _tiles(own) if tile not in shared for op in copies[tile]]
        alone.sort(key=lambda op: (_place(op), _cost(op)))
        key = tuple((_place(op), _cost(op)) for op in (*own, *alone))
        groups.setdefault((key, shared), []).append((own[0], *alone))
    for group in groups.values():
        for one, other in itertools.pairwise(group):
            yield from ((first.id, second.id) for first, second in zip(one, other, strict=True))


def _tiles(own: list[TileOp]) -> tuple[str, ...]:
    """The names of the tiles that a product's operations read, each once."""
    return tuple(dict.fromkeys(value.subject for op in own for value in op.inputs))


def _place(op: TileOp) -> tuple[int, int]:
    """The consumer that an operation is of or for, -1 for all, and its K-block."""
    return -1 if op.id.instance is None else op.id.instance, op.id.k_block


def _cost(op: TileOp) -> tuple[int, ...]:
    return op.issue, op.busy, op.latency, op.instructions
