"""Draws a schedule's loop as an SVG picture: `python docs/pictures/draw.py GRAPH.json -o PICTURE.svg`.

A row for each warp group and one for the tensor core, some initiation intervals long, in the steady state. Bars are
to scale, from the schedule that the solver finds for the graph; the number on a bar is the K-block that it works on.
A bar lasts until the operation's result is there; those of products and of arithmetic end where the next of the same
warp group begins. Slots that are handed back take a few cycles and are left out. Colours are readable on light and on
dark pages.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from pathlib import Path

from wsopt.candidates import Contest
from wsopt.frontend.region import find_region
from wsopt.graph.parse import load_graph
from wsopt.machine import load_machine
from wsopt.program.ids import OpKind
from wsopt.program.program import Item, Unit
from wsopt.report.words import NamedOp, named_ops, operand
from wsopt.schedule.types import Partition, PartitionRole
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.statements import Reduction, Statement

INTERVALS = 2
"""How many initiation intervals are drawn."""
WIDTH, MARGIN, EDGE = 960, 150, 14
"""Pixels of the picture, of the column of names, and to the right of the bars."""
LANE, GAP, BAR = 30, 12, 24
"""Pixels of a lane, between rows, and of a bar's height."""
CHARACTER = 6.6
"""Pixels of a character of a label, on the average."""
TEXT = "#737d88"
KINDS = {
    "copy": ("copy by TMA", "#1a7f64"),
    "product": ("matrix product", "#2f6fba"),
    "arithmetic": ("arithmetic", "#a4551e"),
    "unit": ("tensor core held", "#6b5b95"),
}
"""Kinds of bars: what the picture calls them, and their colours."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from `start` to `end`, in cycles from the picture's left edge; what lies outside of it is cut off."""

    label: str
    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Row:
    """A named row of one or more lanes of bars."""

    name: str
    lanes: tuple[tuple[Bar, ...], ...]


# --- what is drawn --------------------------------------------------------------------------------------


def rows(verified: VerifiedSchedule) -> tuple[Row, ...]:
    """The rows of a schedule's loop: its warp groups, loading first, then the tensor core."""
    ops = named_ops(verified)
    order = sorted(verified.schedule.partitions, key=lambda p: (p.role is not PartitionRole.LOADER, p.name))
    found = [_partition_row(partition, ops, verified) for partition in order]
    return (*(row for row in found if row.lanes), _tensor_row(ops, verified))


def _partition_row(partition: Partition, ops: Sequence[NamedOp], verified: VerifiedSchedule) -> Row:
    own = [one for one in ops if one.placed.partition == partition.name]
    lanes = (
        *_side_by_side(_bars(own, "copy", verified)),
        _in_order(_bars(own, "product", verified)),
        _in_order(_bars(own, "arithmetic", verified)),
    )
    return Row(_role_words(partition), tuple(lane for lane in lanes if lane))


def _role_words(partition: Partition) -> str:
    match partition.role:
        case PartitionRole.LOADER:
            return "loading warp"
        case PartitionRole.CONSUMER if partition.warps == 4:
            return f"warpgroup {partition.index}"
        case _:
            return f"{partition.role.value.replace('_', ' ')} {partition.index}"


_KINDS = {
    OpKind.TMA_LOAD: "copy",
    OpKind.MMA: "product",
    OpKind.ELEMENTWISE: "arithmetic",
    OpKind.RESCALE: "arithmetic",
    OpKind.ACCUMULATE: "arithmetic",
}


def _bars(own: Sequence[NamedOp], kind: str, verified: VerifiedSchedule) -> list[Bar]:
    drawn = (one for one in own if _KINDS.get(one.op.kind) == kind)
    return [bar for one in drawn for bar in _repeated(one, one.op.latency, kind, verified)]


def _side_by_side(bars: Sequence[Bar]) -> tuple[tuple[Bar, ...], ...]:
    """Lanes for bars that overlap: each bar is in the first lane whose bars have ended."""
    lanes: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda bar: bar.start):
        lane = next((lane for lane in lanes if lane[-1].end <= bar.start), None)
        if lane is None:
            lanes.append([bar])
        else:
            lane.append(bar)
    return tuple(map(tuple, lanes))


def _in_order(bars: Sequence[Bar]) -> tuple[Bar, ...]:
    """Bars by their starts, each cut where the next one of its lane begins."""
    ordered = sorted(bars, key=lambda bar: bar.start)
    cut = [replace(bar, end=min(bar.end, after.start)) for bar, after in pairwise(ordered)]
    return (*cut, *ordered[-1:])


def _repeated(named: NamedOp, cycles: int, kind: str, verified: VerifiedSchedule) -> Iterator[Bar]:
    """An operation's bars in every interval that is drawn, and in the one before, whose ends may reach into them."""
    schedule, words = verified.schedule, _words(named, verified)
    first = 1 + max(placed.stage for placed in schedule.placed)
    for interval in range(-1, INTERVALS):
        start = interval * schedule.ii + named.placed.cycle
        iteration = first + interval - named.placed.stage
        if start + cycles > 0:
            number = iteration * schedule.structure.copies + named.op.copy
            yield Bar(words.format(number), start, start + cycles, kind)


def _words(named: NamedOp, verified: VerifiedSchedule) -> str:
    """What an operation is, in a word or two, by the names of the graph; {} is for the number of the K-block."""
    op = named.op
    match op.kind:
        case OpKind.RESCALE:
            return "rescale {}"
        case OpKind.ELEMENTWISE:
            return _arithmetic_words(op.items) + " {}"
        case OpKind.ACCUMULATE:
            return "add sums {}"
        case OpKind.TMA_LOAD:
            owner = verified.program.value(op.output).consumer if op.output else None
            return operand(op) + (" {}" if owner is None else f" {{}} for warpgroup {owner}")
        case _:
            return operand(op) + " {}"


def _arithmetic_words(items: Sequence[Item]) -> str:
    """The exponentials and reductions of a phase of arithmetic; else how many operations it has."""
    found = []
    for item in items:
        if isinstance(item, Statement) and item.primitive.startswith("exp"):
            found.append(item.primitive)
        if isinstance(item, Reduction):
            found.append(f"row {item.kind}")
    return ", ".join(dict.fromkeys(found)) or f"{len(items)} operations"


def _tensor_row(ops: Sequence[NamedOp], verified: VerifiedSchedule) -> Row:
    products = [one for one in ops if one.op.unit is Unit.TENSOR]
    bars = [bar for one in products for bar in _repeated(one, one.op.busy, "unit", verified)]
    return Row("tensor core", (_in_order(bars),))


# --- as SVG ---------------------------------------------------------------------------------------------


def svg(verified: VerifiedSchedule) -> str:
    """The picture of a schedule, ending in a newline."""
    drawn, period = rows(verified), verified.schedule.ii * INTERVALS
    scale = (WIDTH - MARGIN - EDGE) / period
    lines, top = list[str](), 34
    for row in drawn:
        lines += _row_lines(row, top, scale, period)
        top += LANE * len(row.lanes) + GAP
    lines += _axis_lines(verified, top, scale)
    height = top + 34
    title = f"{verified.schedule.name}: the loop of a warp-specialized kernel over {INTERVALS} initiation intervals"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            'font-family="system-ui, sans-serif" font-size="12">',
            f"<title>{escape(title)}</title>",
            f'<clipPath id="bars"><rect x="{MARGIN}" width="{WIDTH - MARGIN - EDGE}" height="{height}"/></clipPath>',
            *_legend_lines(drawn),
            *lines,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, colour: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _legend_lines(drawn: Sequence[Row]) -> list[str]:
    """What the colours are, for those that the picture has."""
    kinds = {bar.kind for row in drawn for lane in row.lanes for bar in lane}
    lines, x = [], float(MARGIN)
    for kind, (told, colour) in KINDS.items():
        if kind in kinds:
            lines.append(f'<rect x="{x:.0f}" y="8" width="12" height="12" rx="2" fill="{colour}"/>')
            lines.append(_text(x + 17, 18, told, TEXT, "start"))
            x += 40 + CHARACTER * len(told)
    return lines


def _row_lines(row: Row, top: int, scale: float, period: int) -> list[str]:
    middle = top + LANE * len(row.lanes) / 2 + 4
    lines = [_text(MARGIN - 12, middle, row.name, TEXT, "end")]
    for place, lane in enumerate(row.lanes):
        y = top + LANE * place + (LANE - BAR) // 2
        ends = [bar.start for bar in lane[1:]] + [period]
        for bar, free in zip(lane, ends, strict=True):
            lines += _bar_lines(bar, free, y, scale, period)
    return lines


def _bar_lines(bar: Bar, free: int, y: int, scale: float, period: int) -> list[str]:
    """A bar with its label inside, or beside it up to the cycle `free`; one that is cut off may go without."""
    x, width = MARGIN + bar.start * scale, (bar.end - bar.start) * scale
    lines = [
        f'<rect x="{x + 0.5:.1f}" y="{y}" width="{width - 1:.1f}" height="{BAR}" rx="3" '
        f'fill="{KINDS[bar.kind][1]}" clip-path="url(#bars)"/>'
    ]
    first, last = max(x, MARGIN), min(x + width, MARGIN + period * scale)
    wanted = CHARACTER * len(bar.label)
    if last - first >= wanted:
        lines.append(_text((first + last) / 2, y + 16, bar.label, "#fff", "middle"))
    elif bar.start >= 0 and (free - bar.end) * scale >= wanted + 6:
        lines.append(_text(x + width + 4, y + 16, bar.label, TEXT, "start"))
    return lines


def _axis_lines(verified: VerifiedSchedule, top: int, scale: float) -> list[str]:
    """A line below the rows with the ends of the initiation intervals, and lines up from them."""
    ii = verified.schedule.ii
    lines = []
    for interval in range(INTERVALS + 1):
        x = MARGIN + interval * ii * scale
        anchor = "start" if interval == 0 else "end" if interval == INTERVALS else "middle"
        label = f"{interval * ii:,} cycles"
        lines.append(
            f'<path d="M{x:.1f} 30V{top + 6}" stroke="{TEXT}" stroke-opacity="0.5" stroke-dasharray="3 3"/>'
        )
        lines.append(_text(x, top + 22, label, TEXT, anchor))
    return lines


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python docs/pictures/draw.py", description=__doc__)
    parser.add_argument("graph", type=Path)
    parser.add_argument("--machine", default="h200")
    parser.add_argument("-o", "--output", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    (found,) = Contest(find_region(load_graph(chosen.graph)), load_machine(chosen.machine)).run()
    chosen.output.write_text(svg(found.verified), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
