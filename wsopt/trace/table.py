"""A trace as a table for people: operations by predicted and measured start and length, and what the stamps cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wsopt.report.layout import clean, table

_HEAD = (
    "operation",
    "scheduled",
    "start",
    "measured",
    "of II",
    "issue",
    "measured",
    "result",
    "measured",
    "waited",
    "what it is",
)
_ALIGN = "<>>>>>>>>><"


def text(document: Mapping[str, Any], width: int = 140) -> str:
    """The table of every partition, in cycles; ends in a newline."""
    lines = [*_head(document)]
    ii = document["schedule"]["ii_cycles"]
    for partition in document["partitions"]:
        lines += ["", *_partition(partition, document, ii, width)]
    return "\n".join([*lines, "", *_notes(document)]) + "\n"


def _head(document: Mapping[str, Any]) -> Iterator[str]:
    card, versions = document["card"], document["versions"]
    yield (
        f"{clean(document['name'])} on {card['device']}, driver {card['driver']}, Triton {versions['triton']}, "
        f"{document['date']}"
    )
    schedule = document["schedule"]
    yield f"{schedule['structure']}; solved for {schedule['machine']}"
    times = document["times_us"]
    yield (
        f"plain {times['plain']['median_us']:,.2f} us, traced {times['traced']['median_us']:,.2f} us: "
        f"the stamps cost {document['cost']:+.1%}"
    )
    difference = document["start_difference"]
    if difference is not None:
        yield f"starts of the consumers' operations are off by {difference:.1%} of II on the median"


def _partition(
    partition: Mapping[str, Any], document: Mapping[str, Any], ii: int, width: int
) -> Iterator[str]:
    schedule, interval = document["schedule"], partition["interval"]
    yield (
        f"{partition['name']}: II {ii:,}, effective {schedule['interval_cycles']:,}, "
        f"as it runs {schedule['as_it_runs_cycles']:,}, measured {_median(interval)}{_spread(interval)}"
        if partition["ops"]
        else f"{partition['name']}"
    )
    if partition["ops"]:
        yield from table(_HEAD, [_row(one, ii) for one in partition["ops"]], _ALIGN, width)
    yield from _tile(partition, schedule)


def _row(one: Mapping[str, Any], ii: int) -> tuple[str, ...]:
    predicted, measured = one["predicted"], one["measured"]
    start = measured["start"]
    off = "" if start is None else f"{(start['median'] - predicted['start']) / ii:+.1%}"
    result = measured["result"]
    return (
        clean(one["op"]),
        f"{predicted['scheduled']:,}",
        f"{predicted['start']:,}",
        _median(start),
        off,
        f"{predicted['issue']:,}",
        _median(measured["issue"]),
        f"{predicted['result']:,}" if result else "",
        _median(result),
        _median(measured["waited"]),
        clean(one["words"]),
    )


def _tile(partition: Mapping[str, Any], schedule: Mapping[str, Any]) -> Iterator[str]:
    """A tile's parts on one line, and the epilogue as predicted beside as measured."""
    parts = partition["tile"]
    if parts:
        yield "  a tile: " + ", ".join(f"{name} {_median(cycles)}" for name, cycles in parts.items())
    subtiles = [cycles["median"] for name, cycles in parts.items() if name.startswith("subtile ")]
    if subtiles:
        yield f"  its epilogue: {schedule['epilogue_cycles']:,} predicted, {sum(subtiles):,.0f} measured"


def _notes(document: Mapping[str, Any]) -> Iterator[str]:
    traced, kernel = document["traced"], document["kernel"]
    yield (
        f"Cycles of the SM, medians over the steady iterations of {traced['launches']} launches, "
        f"{traced['blocks']} blocks, {traced['tiles']} tiles, {traced['k_blocks']} K-blocks."
    )
    yield (
        "Starts count from the partition's first operation of the iteration: scheduled is the schedule's, start what "
        "comes of it as it runs;"
    )
    yield (
        "issue is until the thread comes to the next operation, a result until the wait for it ends, waited what the "
        "thread stood before the operation."
    )
    if any(op["mixed"] for partition in document["partitions"] for op in partition["ops"]):
        yield "Without measured figures: arithmetic that ptxas mixes with the operation before; there it counts."
    if kernel["spills"]:
        yield f"The traced kernel spills ({kernel['spills']} accesses): lengths of arithmetic are too long."


def _median(cycles: Mapping[str, float] | None) -> str:
    return "" if cycles is None else f"{cycles['median']:,.0f}"


def _spread(cycles: Mapping[str, float] | None) -> str:
    return "" if cycles is None else f" ({cycles['lower']:,.0f} to {cycles['upper']:,.0f})"
