"""From the words of a traced kernel's records to times: each tile's stamps in the order of the program.

A stamp is the lower half of the SM's clock, in cycles, and a word of 0 is none. Times are counted from a tile's first
stamp; the clock may have gone round once between two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wsopt.errors import CheckError
from wsopt.trace.files import Partition, Stamped

_ROUND = 1 << 32
_LOOP = "loop"

Place = tuple[int, int]
"""A stamp of a pass: the K-block of the tile, and the number of the stamp."""


@dataclass(frozen=True, slots=True)
class TileReadings:
    """The stamps of one tile of a partition: cycles since the first one, at which the clock was at `clock`. `passes`
    are those of the loop, by place; `after` is the time of the stamp that follows each of them.
    """

    block: int
    tile: int
    events: dict[str, int]
    passes: dict[Place, int]
    after: dict[Place, int]
    clock: int = 0


def readings(words: Sequence[int], stamped: Stamped, partition: Partition) -> Iterator[TileReadings]:
    """The traced tiles of a partition, of all blocks. `words` are the records of one launch.

    Raises CheckError for a stamp that comes before one that the program has before it.
    """
    for block in range(stamped.blocks):
        for tile in range(stamped.tiles):
            first = block * stamped.block_words + partition.first + tile * partition.tile_words
            own = words[first : first + partition.tile_words]
            if any(own):
                yield _tile(own, stamped, partition, block, tile)


def _tile(
    words: Sequence[int], stamped: Stamped, partition: Partition, block: int, tile: int
) -> TileReadings:
    events, passes, after = dict[str, int](), dict[Place, int](), dict[Place, int]()
    last: tuple[str | Place, int] | None = None
    time, clock = 0, 0
    for key, word in _in_order(words, stamped, partition):
        clock = clock if last is not None else word
        if last is not None:
            ahead = (word - last[1]) % _ROUND
            if ahead >= _ROUND // 2:
                where = f"block {block}, {partition.name}, tile {tile}"
                told = f"{_told(partition, key)} is stamped before {_told(partition, last[0])}"
                raise CheckError(f"{where}: {told}, which comes first in the program")
            time += ahead
            if isinstance(last[0], tuple):
                after[last[0]] = time
        if isinstance(key, tuple):
            passes[key] = time
        else:
            events[key] = time
        last = key, word
    return TileReadings(block, tile, events, passes, after, clock)


def _in_order(
    words: Sequence[int], stamped: Stamped, partition: Partition
) -> Iterator[tuple[str | Place, int]]:
    """A tile's stamps in the order of the program: those of its loop stand behind the stamp of the loop's begin."""
    tile, count = partition.tile, len(partition.passes)
    begins = tile.index(_LOOP) + 1 if _LOOP in tile else min(1, len(tile))
    for number, event in enumerate(tile[:begins]):
        if words[number]:
            yield event, words[number]
    for k_block in range(stamped.k_blocks if count else 0):
        for number in range(count):
            word = words[len(tile) + k_block * count + number]
            if word:
                yield (k_block, number), word
    for number, event in enumerate(tile[begins:], begins):
        if words[number]:
            yield event, words[number]


def _told(partition: Partition, key: str | Place) -> str:
    if isinstance(key, str):
        return key
    moment = partition.passes[key[1]]
    return f"{moment.op} ({moment.point}) of K-block {key[0]}"
