"""What `inspect` shows of a range: its kernels, where the switches are, and time and loss by extent."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from wsopt.ranges.document import RangeRecord
from wsopt.report.layout import counted, wrapped

_BAR = 40
_ROWS = 28
"""Lines of the curve, about."""


def range_text(record: RangeRecord) -> str:
    """The report of a build of several kernels."""
    c = record.certificate
    lines = [
        f"{record.name} on {record.machine}: {counted(len(record.kernels), 'kernel')} for {_ranges(record)}",
        "",
    ]
    lines += [*_kernels(record), "", *wrapped(_verdict(record)), ""]
    if c.rejected:
        lines += [*wrapped("The compiler rejected: " + "; ".join(c.rejected)), ""]
    if record.skipped:
        lines += [*wrapped(f"Skipped for lack of time: {'; '.join(record.skipped)}."), ""]
    lines += [*_switches(record), "", *_curve(record)]
    return "\n".join(lines) + "\n"


def _ranges(record: RangeRecord) -> str:
    firsts = zip(*record.certificate.searched, strict=True)
    return ", ".join(
        f"{name} {min(first):,} to {ends[-1]:,}"
        for (name, ends), first in zip(record.ends.items(), firsts, strict=True)
    )


def _kernels(record: RangeRecord) -> Iterator[str]:
    yield "kernel  found at       cells  structure"
    for number, member in enumerate(record.kernels):
        home = ", ".join(f"{extent:,}" for extent in member.home.values())
        yield f"{number:6}  {home:13}  {record.serves.count(number):5}  {member.structure}"


def _verdict(record: RangeRecord) -> str:
    c = record.certificate
    kinds = " that give a row the same bits" if c.deterministic else ""
    most = f"{counted(c.most, 'kernel')}{kinds}"
    what = "proved: no choice" if c.worst_proved else "not proved to be the least: a choice"
    has = "has" if c.worst_proved else "may have"
    told = (
        f"Predicted loss against the best known schedule of each extent: at most {c.worst_loss:.2%}, "
        f"{c.mean_loss:.2%} on the mean ({what} of at most {most} among the near structures {has} a smaller worst "
        "loss). "
    )
    return told + (
        f"All structures were searched at {counted(len(c.searched), 'sample')}, {c.considered:,} in all; "
        f"{c.near:,} were near the best of some sample and priced everywhere, {c.solved:,} of them solved. Between "
        "samples the best known is the least of all near ones', by their bounds."
    )


def _switches(record: RangeRecord) -> Iterator[str]:
    """Intervals that one kernel serves, where there is one dimension; else who serves at the classes' ends."""
    if len(record.ends) > 1:
        switches = record.certificate.switches
        yield f"{switches} of {_pairs(record):,} pairs of neighbouring cells differ in their kernel."
        return
    ((name, ends),) = record.ends.items()
    least, place = min(point[0] for point in record.certificate.searched), 0
    yield f"{name:>15}  kernel  worst loss"
    for kernel, group in itertools.groupby(record.serves):
        count = len([*group])
        worst = max(record.losses[place : place + count])
        yield f"{f'{least:,} to {ends[place + count - 1]:,}':>15}  {kernel:6}  {worst:9.2%}"
        least, place = ends[place + count - 1] + 1, place + count


def _pairs(record: RangeRecord) -> int:
    counts = [len(ends) for ends in record.ends.values()]
    cells = math.prod(counts)
    return sum(cells // count * (count - 1) for count in counts)


def _curve(record: RangeRecord) -> Iterator[str]:
    """Time and loss by extent, along each dimension with the others at their largest."""
    counts = [len(ends) for ends in record.ends.values()]
    worst = max(0.01, *record.losses)
    for dim, (name, ends) in enumerate(record.ends.items()):
        step = math.prod(counts[dim + 1 :])
        first = len(record.serves) - 1 - (counts[dim] - 1) * step
        cells = [first + place * step for place in range(counts[dim])]
        yield f"{name:>9}  kernel  predicted us     best us    loss  0 to {worst:.1%}"
        for place in _shown(ends, [record.losses[c] for c in cells]):
            c, loss = cells[place], record.losses[cells[place]]
            bar = "#" * round(_BAR * loss / worst)
            times = f"{record.predicted_us[c]:12,.2f}  {record.best_us[c]:10,.2f}"
            yield f"{ends[place]:9,}  {record.serves[c]:6}  {times}  {loss:6.2%}  {bar}".rstrip()
        yield ""


def _shown(ends: Sequence[int], losses: Sequence[float]) -> list[int]:
    """Places to show: about evenly by octaves, and of each stretch the one with the greatest loss."""
    if len(ends) <= _ROWS:
        return [*range(len(ends))]
    octave = math.log2(ends[-1] / ends[0] + 1) / _ROWS
    stretches = itertools.groupby(
        range(len(ends)), lambda place: int(math.log2(ends[place] / ends[0]) / octave)
    )
    worst = {max(group, key=lambda place: losses[place]) for _, group in stretches}
    return sorted({0, len(ends) - 1} | worst)
