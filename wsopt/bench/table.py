"""Benchmarks as a table for people, in plain text and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from wsopt.bench.rows import BaselineRow, Document, Row

_FIXED = ("kernel", "us", "spread", "TFLOP/s", "GB/s", "roofline", "error")


def text_table(document: Document) -> str:
    """Columns aligned with blanks, then notes; ends in a newline."""
    cells = _cells(document)
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = []
    for row in cells:
        first, *rest = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *rest]).rstrip())
    return "\n".join([*lines, *notes(document)]) + "\n"


def markdown_table(document: Document) -> str:
    """A GitHub table, then notes as a list; ends in a newline."""
    head, *body = _cells(document)
    rule = ["---", *("---:" for _ in head[1:])]
    lines = ["| " + " | ".join(map(_escaped, row)) + " |" for row in (head, rule, *body)]
    lines += ["", *(f"- {_escaped(note)}" for note in notes(document))]
    return "\n".join(lines).rstrip("\n") + "\n"


def notes(document: Document) -> list[str]:
    """A line for each row that failed, and each baseline that did though it applies to the graph."""
    found = []
    for row in document.rows:
        if row.status != "ok":
            found.append(f"{row.folder}: {row.status}: {row.message}")
        found += [
            f"{row.folder}: {item.name}: {item.reason}"
            for item in row.baselines
            if item.status in ("wrong", "missing", "error")
        ]
    return found


def baseline_names(document: Document) -> tuple[str, ...]:
    """The baselines that have a figure in some row, in the order of their first mention."""
    names = (item.name for row in document.rows for item in row.baselines if item.ratio is not None)
    return tuple(dict.fromkeys(names))


def _cells(document: Document) -> list[list[str]]:
    names = baseline_names(document)
    head = [*_FIXED, *(f"vs {name}" for name in names)]
    return [head, *(_row_cells(row, names) for row in document.rows)]


def _row_cells(row: Row, names: Sequence[str]) -> list[str]:
    ratios = {item.name: _ratio(item) for item in row.baselines}
    if row.kernel is None:
        return [row.folder, row.status.upper(), *("" for _ in range(len(_FIXED) - 2 + len(names)))]
    worst = max((error for _, error in row.errors), default=None)
    timing = row.kernel_graph or row.kernel
    half = (timing.upper_us - timing.lower_us) / 2 / timing.median_us
    return [
        row.folder,
        f"{timing.median_us:.1f}" if row.status == "ok" else row.status.upper(),
        f"±{100 * half:.1f} %",
        _number(row.tflops, ".0f"),
        _number(row.gbs, ".0f"),
        _number(row.roofline and 100 * row.roofline, ".0f", " %"),
        _number(worst, ".1e"),
        *(ratios.get(name, "") for name in names),
    ]


def _ratio(item: BaselineRow) -> str:
    if item.ratio is None:
        return "" if item.status == "inapplicable" else item.status
    settled = "" if item.settled_ratio is None else f" / {item.settled_ratio:.3f}"
    if item.graph_ratio is None:
        return f"{item.ratio:.3f}{settled}"
    return f"{item.graph_ratio:.3f}{settled} ({item.ratio:.3f})"


def _number(value: float | None, style: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{style}}{unit}"


def _escaped(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
