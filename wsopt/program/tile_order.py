"""The order in which blocks take tiles whose loops differ in length: in the model, and in every launcher.

The text of this file below its imports stands in every emitted kernel.py that deals tiles out; it therefore imports
nothing of the package.
"""

import heapq
from typing import Any

WAVES_TOGETHER = 3  # the tiles of so many last waves are ordered by length
OVERHEAD_K_BLOCKS = 1  # what a tile takes outside its loop, in K-blocks


def k_block_counts(row_extent: int, tile_rows: int, between: Any) -> list[int]:
    """K-blocks of every tile of rows, from the first row on; `between(row, last_row)` is where they begin and end."""
    counts = []
    for row in range(0, row_extent, tile_rows):
        begin, end = between(row, min(row + tile_rows, row_extent) - 1)
        counts.append(max(end - begin, 0))
    return counts


def numbered(counts: list[Any], from_last: bool) -> list[Any]:
    """What tiles of rows have, in the order of tile numbers, which may begin at the last tile of rows."""
    return counts[::-1] if from_last else counts


def tiles_together(counts: list[int], tiles: int, blocks: int) -> int:
    """Number of tiles in the last waves of persistent blocks, up to whole batch elements."""
    return min(-(-WAVES_TOGETHER * blocks // len(counts)) * len(counts), tiles)


def rasterization_order(counts: list[int], tiles: int, together: int) -> list[int]:
    """Tile numbers in the order in which they are dealt out; `counts` has the K-blocks of a batch element's tiles.

    Batch elements follow each other, for they share operands in L2. The last `together` tiles go by their length, the
    longest first: otherwise the longest of the last batch element would come when most blocks have ended.
    """
    last = sorted(range(tiles - together, tiles), key=lambda tile: -counts[tile % len(counts)])
    return [*range(tiles - together), *last]


def deal(counts: list[int], order: list[int], blocks: int) -> list[list[int]]:
    """Tiles of every block: the next tile in `order` is for the block that comes free first."""
    free = [(0, block) for block in range(blocks)]
    taken: list[list[int]] = [[] for _ in range(blocks)]
    for tile in order:
        time, block = free[0]
        taken[block].append(tile)
        heapq.heapreplace(free, (time + counts[tile % len(counts)] + OVERHEAD_K_BLOCKS, block))
    return taken


def order_table(counts: list[int], tiles: int, blocks: int) -> list[int]:
    """The table that a kernel reads: where each block's tiles begin and the last one's end, then the tiles."""
    taken = deal(counts, rasterization_order(counts, tiles, tiles_together(counts, tiles, blocks)), blocks)
    places = [blocks + 1]
    for own in taken:
        places.append(places[-1] + len(own))
    return [*places, *(tile for own in taken for tile in own)]
