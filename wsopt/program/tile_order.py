"""The order in which blocks take tiles whose loops differ in length: in the model, and in every launcher.

The text of this file below its imports stands in every emitted kernel.py that deals tiles out; it therefore imports
nothing of the package. Bounds are triples (row, stream, constant): element j of the streamed axis counts for row i
only where row * i + stream * j + constant >= 0, with stream = 1 or -1.
"""

import heapq
from typing import Any

ROUNDS_TOGETHER = 3  # the tiles of so many last rounds of blocks are ordered by length
OVERHEAD_K_BLOCKS = 1  # what a tile takes outside its loop, in K-blocks


def k_blocks_between(
    bounds: Any, first: Any, last: Any, begin: Any, end: Any, depth: Any, least: Any = min, most: Any = max
) -> tuple[Any, Any]:
    """Begin and end of the K-blocks, out of [begin, end), in which any element counts for rows `first` to `last`.

    The end is not above the begin where none counts. Arguments may also be expressions of run-time values, given with
    their minimum and maximum as `least` and `most`.
    """
    for row, stream, constant in bounds:
        furthest = row * (last if row >= 0 else first) + constant
        if stream < 0:
            end = least(end, most(furthest + depth, 0) // depth)
        else:
            begin = most(begin, most(-furthest, 0) // depth)
    return begin, end


def k_block_counts(bounds: Any, row_extent: int, stream_extent: int, tile_rows: int, depth: int) -> list[int]:
    """K-blocks of every tile of rows, from the first row on."""
    whole = (0, -(-stream_extent // depth))
    counts = []
    for first in range(0, row_extent, tile_rows):
        begin, end = k_blocks_between(bounds, first, min(first + tile_rows, row_extent) - 1, *whole, depth)
        counts.append(max(end - begin, 0))
    return counts


def numbered(counts: list[Any], from_last: bool) -> list[Any]:
    """What tiles of rows have, in the order of tile numbers, which may begin at the last tile of rows."""
    return counts[::-1] if from_last else counts


def tiles_together(counts: list[int], tiles: int, blocks: int) -> int:
    """Number of tiles in the last rounds of persistent blocks, up to whole batch elements."""
    return min(-(-ROUNDS_TOGETHER * blocks // len(counts)) * len(counts), tiles)


def walk(counts: list[int], tiles: int, together: int) -> list[int]:
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
    taken = deal(counts, walk(counts, tiles, tiles_together(counts, tiles, blocks)), blocks)
    places = [blocks + 1]
    for own in taken:
        places.append(places[-1] + len(own))
    return [*places, *(tile for own in taken for tile in own)]
