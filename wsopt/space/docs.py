"""Makes docs/space.md from committed figures: `python -m wsopt.space.docs FILE -o PAGE`."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from wsopt.exit_status import with_exit_status
from wsopt.program.limit_records import RECORDS, Record
from wsopt.report.layout import counted, joined
from wsopt.space.figures import Figures, Gain, Row, load_figures, mean_ratio

_WIDTH = 118
_INTRODUCTION = """\
# What the space does not hold

This page is made from [`{name}`]({link}) by `python -m wsopt.space.docs`; it is not edited by hand, and the figures
are made by `make space`.

The solver proves the best of the schedules that the model can express. What the emitter cannot write yet is kept
out of the model by constraints and bounds named `emitter.v1`. Each has a record (`program/limit_records.py`), and
an entry below: what it forbids, why, and what the model gains when it is solved without it. A schedule found
without a limit is never emitted: the checker refuses it.

Gains are of the predicted time of the best schedule, before the compiler is asked, on `{machine}`: {graphs},
{date}, OR-Tools {ortools}, wsopt {wsopt}. Nothing was measured. A limit is tried on the graphs that it leaves
something out for. A gain below 0.005 % is nothing. *At most* stands where more was freed than the limit forbids, so
that the gain is no larger than the figure. Each search without a limit had {work:g} units or so of OR-Tools'
deterministic time; {decided}.

In loops that compute values a shorter interval is often no gain: units and threads that contend keep the predicted
time up, whatever the order ([the performance model](performance-model.md#an-iteration)). Entries say so where a
limit costs cycles of the interval alone.

Choices that no structure has are in the certificate of each build (`wsopt inspect`, *Not in the space*), with the
share of the machine that is idle: no split of the contracted axis, no clusters of blocks, no tiles taken at run time,
one block an SM, one kernel a graph, and axes that tiles reach over.
"""


def page(name: str, figures: Figures) -> str:
    """The whole page; `name` is the path of the figures' file as the page's link has it."""
    every = [gain for row in figures.rows for gain in row.gains]
    left = sum(not gain.decided for gain in every)
    head = _INTRODUCTION.format(
        name=Path(name).name,
        link=name,
        machine=figures.machine,
        graphs=counted(len(figures.rows), "graph"),
        date=figures.date,
        ortools=figures.versions["ortools"],
        wsopt=figures.versions["wsopt"],
        work=figures.work,
        decided=f"{left} of {len(every)} were left open" if left else f"all {len(every)} came to their end",
    )
    return "\n".join([head, *_overview(figures), *(line for one in RECORDS for line in _entry(one, figures))])


def _overview(figures: Figures) -> list[str]:
    """A table of all limits: graphs that each is about, the largest gain, and the geometric mean."""
    lines = ["| limit | graphs | most | mean |", "|---|---:|---:|---:|"]
    for record in RECORDS:
        found = figures.of(record.limit)
        link = record.limit.value.lower().replace(" ", "-").replace(",", "")
        cells = [f"[{record.limit}](#{link})", str(len(found)), *_summary(record, found)]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _summary(record: Record, found: Sequence[tuple[Row, Gain]]) -> tuple[str, str]:
    """The largest gain of a limit and the geometric mean over the graphs that it is about, as cells."""
    if not found:
        return "", ""
    most = max(row.share(gain) for row, gain in found)
    if not most:
        return "nothing", "nothing"
    bound = "at most " * record.how.at_most
    return f"{bound}{most:.2%}", f"{bound}{1 - 1 / mean_ratio(found):.2%}"


def _entry(record: Record, figures: Figures) -> list[str]:
    """The entry of a limit."""
    found = figures.of(record.limit)
    nothing = ["*Gain*: no figure; it leaves nothing out for any of these graphs.", ""]
    return [
        f"## {record.limit.value[0].upper()}{record.limit.value[1:]}",
        "",
        *_paragraph(record.forbids),
        *_paragraph(f"*Why*: {record.why}"),
        *_paragraph(f"*Without it*: {record.without}"),
        *(_found(record, found) if found else nothing),
    ]


def _paragraph(text: str) -> list[str]:
    """Lines of a paragraph, and the empty one behind it."""
    return [*textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False), ""]


def _found(record: Record, found: Sequence[tuple[Row, Gain]]) -> Iterator[str]:
    """Lines on what was found for the graphs that a limit is about."""
    gains = [(row, gain) for row, gain in found if row.share(gain)]
    none = len(found) - len(gains)
    bound = "at most " * record.how.at_most
    if gains:
        most = max(row.share(gain) for row, gain in gains)
        yield (
            f"*Gain*: {bound}{most:.2%} on one graph, {1 - 1 / mean_ratio(found):.2%} the geometric mean of "
            f"{counted(len(found), 'graph')}."
        )
        yield ""
        yield f"| graph | us | without it{', at least' * record.how.at_most} | gain |"
        yield "|---|---:|---:|---:|"
        yield from (
            f"| {row.name} | {row.base_us:,.2f} | {gain.best_us:,.2f} | {bound}{row.share(gain):.2%} |"
            for row, gain in sorted(gains, key=lambda one: -one[0].share(one[1]))
        )
        yield ""
    if not gains:
        yield f"*Gain*: nothing on {f'any of {none} graphs' if none > 1 else found[0][0].name}."
        yield ""
    elif none:
        yield f"Nothing on {counted(none, 'other graph')}."
        yield ""
    yield from _intervals(found)
    yield from _open(found)


def _intervals(found: Sequence[tuple[Row, Gain]]) -> Iterator[str]:
    """Where the interval of the best structure is shorter without the limit, and the time is not."""
    shorter = [
        f"{row.name} {row.ii:,} -> {gain.ii:,}"
        for row, gain in found
        if 0 < gain.ii < row.ii and not row.share(gain)
    ]
    if shorter:
        yield from _paragraph(f"The interval alone is shorter, in cycles: {', '.join(shorter)}.")


def _open(found: Sequence[tuple[Row, Gain]]) -> Iterator[str]:
    """Searches that did not come to their end, each with what lifting the limit gains at most."""
    left = [f"{row.name} (at most {row.most(gain):.2%})" for row, gain in found if not gain.decided]
    if left:
        yield from _paragraph(f"Not decided: {joined(left)}.")


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """The command line: 0, or the exit status of what is wrong with an input."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.space.docs", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    name = chosen.file.relative_to(chosen.output.parent).as_posix()
    text = page(name, load_figures(chosen.file))
    chosen.output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
