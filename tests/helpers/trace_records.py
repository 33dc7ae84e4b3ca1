"""Records that a traced kernel would leave if everything went as predicted, or with operations that come later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wsopt.trace.files import Partition, Stamped

NOW = (1 << 32) - 5000
"""The clock when a tile begins: it goes round within the tile."""


def records(
    stamped: Stamped, iterations: int, *, late: Mapping[str, int] | None = None, waits: int = 0
) -> list[int]:
    """The words of one launch of tiles of so many iterations, which follow each other as predicted.

    Operations of `late` start so many cycles after their time; each is reached `waits` cycles before it starts.
    """
    words = [0] * stamped.words
    for partition in stamped.partitions:
        for block in range(stamped.blocks):
            for tile in range(stamped.tiles):
                first = block * stamped.block_words + partition.first + tile * partition.tile_words
                for place, time in _tile(stamped, partition, iterations, late or {}, waits):
                    words[first + place] = (NOW + time) % (1 << 32)
    return words


def _tile(
    stamped: Stamped, partition: Partition, iterations: int, late: Mapping[str, int], waits: int
) -> Iterator[tuple[int, int]]:
    """Every stamp of a tile: its word and its time."""
    events = len(partition.tile)
    end = 2000 + (iterations + 3) * stamped.runs
    for number, event in enumerate(partition.tile):
        yield number, 1 + number if event in ("tile", "loop") else end + 100 * number
    for iteration in range(iterations):
        for op in partition.ops:
            if op.started is None:
                continue
            row = (iteration + op.stage) * stamped.copies + op.k_block
            if row >= stamped.k_blocks:
                continue
            word = events + row * len(partition.passes)
            # The copies of a slot are started in the order of the text, not of the schedule.
            start = 10 * op.started + 200 * op.k_block if partition.role == "loader" else op.start
            time = 2000 + iteration * stamped.runs + start + late.get(op.op, 0)
            yield word + op.started, time
            if op.reached is not None:
                yield word + op.reached, time - waits
