"""Equal shares: the K-blocks of all tiles, one tile's behind another's, cut into as many pieces as there are blocks.

The model cuts as every such kernel does (`templates/shares.jinja`): shares differ by one K-block at most, and a tile
without any counts for one, since somebody has to end it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from wsopt.program.facts import Shares
from wsopt.program.tile_order import OVERHEAD_K_BLOCKS


def begin_of(block: int, blocks: int, total: int) -> int:
    """The first K-block, of `total`, of a block's share."""
    return block * total // blocks


def shares_of(k_iterations: Sequence[float], blocks: int) -> Shares:
    """The longest share of tiles with so many iterations each, of which part of one counts as a whole."""
    counts = [max(1, math.ceil(count)) for count in k_iterations]
    ends = [*itertools.accumulate(counts)]
    blocks = min(blocks, ends[-1])
    cuts = [begin_of(block, blocks, ends[-1]) for block in range(blocks + 1)]
    touched, parts = [0] * blocks, [0] * len(counts)
    block = 0
    for tile, end in enumerate(ends):
        begin = end - counts[tile]
        while cuts[block + 1] <= begin:
            block += 1
        for other in range(block, blocks):
            if cuts[other] >= end:
                break
            touched[other] += 1
            parts[tile] += 1
    works = ((cuts[one + 1] - cuts[one], tiles) for one, tiles in enumerate(touched))
    longest, tiles = max(works, key=lambda work: work[0] + OVERHEAD_K_BLOCKS * work[1])
    left = [count for count in parts if count > 1]
    return Shares(tiles, longest, sum(left), max(left, default=1))


def of_products(tiles: int, iterations: int, blocks: int) -> Shares:
    """The longest share where all tiles have so many iterations: whole tiles, as many as all blocks have one each of,
    and a share of those that are left.
    """
    rounds, left = divmod(tiles, blocks)
    rest = shares_of([iterations] * left, blocks) if left else Shares(0, 0, 0, 1)
    longest = rounds * iterations + rest.k_iterations
    cut = rest.k_iterations / longest
    return Shares(rounds + rest.tiles, longest, rest.parts, rest.most, cut)
