"""A tile as it was stamped: every operation that the records of a traced kernel have, for traces of Perfetto."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wsopt.pages.drawn import Bar, Picture, Row
from wsopt.pages.measured import measured_picture, refuse
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.trace.files import FOLDER, RECORDS, Partition, load_stamped
from wsopt.trace.readings import TileReadings, readings

_ROUND = 1 << 32


def measured_bars(build: Path, verified: VerifiedSchedule, trace: Mapping[str, Any]) -> Picture:
    """The first tile of the first block of the last launch that was recorded, every operation as it was stamped;
    without the records an iteration of medians. Begins with the block's start as predicted.
    """
    path = build / FOLDER / RECORDS
    if not path.is_file():
        return _medians(verified, trace)
    stamped = load_stamped(build)
    try:
        words = json.loads(path.read_text("utf-8"))["launches"][-1]
        tiles = {one.name: list(readings(words, stamped, one))[:1] for one in stamped.partitions}
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise refuse(path, f"are no records of this release; trace the build again ({error})") from error
    first = _earliest(tiles)
    rows, bars = list[Row](), list[Bar]()
    for partition in stamped.partitions:
        for tile in tiles[partition.name]:
            rows.append(Row(partition.name, "role"))
            begin = verified.schedule.prediction.start + (tile.clock - first) % _ROUND
            bars += sorted(
                _stamped(tile, partition, stamped.copies, len(rows) - 1, begin), key=lambda b: b.begin
            )
    total = max((bar.end for bar in bars), default=1.0)
    return Picture(tuple(rows), tuple(bars), (), (), total, (0.0, total))


def _earliest(tiles: Mapping[str, list[TileReadings]]) -> int:
    """The earliest clock at which a tile begins: all others are ahead of it by less than half a round."""
    clocks = [one.clock for own in tiles.values() for one in own]
    ahead = (one for one in clocks if all((other - one) % _ROUND < _ROUND // 2 for other in clocks))
    return next(ahead, 0)


def _stamped(tile: TileReadings, partition: Partition, copies: int, row: int, begin: float) -> Iterator[Bar]:
    """The bars of a tile of a partition: from each operation's start until the thread comes to the next stamp."""
    by_stamp = {(op.started, op.k_block): op for op in partition.stamped}
    for (place, stamp), time in tile.passes.items():
        op = by_stamp.get((stamp, place % copies)) or by_stamp.get((stamp, 0))
        after = tile.after.get((place, stamp))
        if op is not None and after is not None and after > time:
            yield Bar(row, begin + time, begin + after, op.op, place // copies - op.stage)


def _medians(verified: VerifiedSchedule, trace: Mapping[str, Any]) -> Picture:
    """The medians of an iteration, the rows of what was measured alone."""
    picture, start = measured_picture(trace), verified.schedule.prediction.start
    kept = [number for number, row in enumerate(picture.rows) if row.kind == "measured"]
    bars = [
        Bar(kept.index(bar.row), start + bar.begin, start + bar.end, bar.op, label=bar.label)
        for bar in picture.bars
        if bar.row in kept
    ]
    rows = tuple(Row(picture.rows[number].name.removesuffix(" measured"), "role") for number in kept)
    total = max((bar.end for bar in bars), default=1.0)
    return Picture(rows, tuple(bars), (), (), total, (0.0, total))
