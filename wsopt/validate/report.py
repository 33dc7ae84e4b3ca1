"""A validation as text: a line for each graph, the worst predictions by parts, and parts that go with errors."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from wsopt.validate.statistics import kendall_tau
from wsopt.validate.validation import GraphTruth, Point, Validation

PARTS = ("start", "fill", "main", "epilogue", "tail", "power")
_WORST = 8
_WIDTH = 150
_SUSPECT = 0.25
HEADS = (
    "graph",
    "schedules",
    "range us",
    "tau",
    "apart",
    "error",
    "bias",
    "regret",
    "first us",
    "best us",
    "baseline us",
)


def graph_cells(graph: GraphTruth) -> list[str]:
    """The cells of a graph's line, in the order of `HEADS`."""
    times = [point.measured_us for point in graph.points]
    bias = sum(point.error for point in graph.points) / len(graph.points)
    baseline = graph.baseline
    return [
        graph.name,
        str(len(graph.points)),
        f"{min(times):.1f} - {max(times):.1f}",
        *("-" if math.isnan(tau) else f"{tau:.2f}" for tau in (graph.tau, graph.tau_apart)),
        f"{graph.error:.1%}",
        f"{bias:+.1%}",
        f"{graph.regret:.1%}",
        f"{graph.first.measured_us:.2f}",
        f"{min(times):.2f}",
        f"{baseline.median_us:.2f} ({baseline.candidate})" if baseline and baseline.median_us else "-",
    ]


def shares(point: Point) -> dict[str, float]:
    """Share of each part in a schedule's predicted cycles."""
    parts = point.candidate.parts
    total = float(parts["cycles"])
    return {name: float(parts[name]) / total for name in PARTS}


def suspects(points: Sequence[Point]) -> list[tuple[str, float]]:
    """Parts whose share goes with the error, and how closely (Kendall's tau), the closest first.

    A part that is counted too dear has a positive figure: the more of it, the more the prediction exceeds
    the time.
    """
    errors = [point.error for point in points]
    found = [(name, kendall_tau([shares(p)[name] for p in points], errors)) for name in PARTS]
    found += [("columns of a tile", kendall_tau([_field(p, "columns") for p in points], errors))]
    found += [("slots of the ring", kendall_tau([float(p.candidate.depth) for p in points], errors))]
    clear = [(name, tau) for name, tau in found if abs(tau) >= _SUSPECT]
    return sorted(clear, key=lambda item: -abs(item[1]))


def _field(point: Point, name: str) -> float:
    return float(point.candidate.structure[name])


def worst(found: Validation) -> list[Point]:
    """The schedules whose predictions are off the most."""
    return sorted(found.points, key=lambda point: -abs(point.error))[:_WORST]


def report_text(found: Validation) -> str:
    """The whole report."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEADS, title=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for graph in found.graphs:
        table.add_row(*graph_cells(graph))
    out = io.StringIO()
    console = Console(file=out, width=_WIDTH, no_color=True)
    console.print(f"{found.machine} against {found.card.get('device', 'a GPU')}, {found.date}")
    console.print(table)
    lines = [
        f"{len(found.points)} schedules of {len(found.graphs)} graphs: mean relative error {found.error:.1%}"
    ]
    lines += _suspect_lines(found)
    lines += ["", "the worst predictions:", *(line for point in worst(found) for line in point_lines(point))]
    lines += _failed_lines(found)
    return out.getvalue() + "\n".join(lines) + "\n"


def _suspect_lines(found: Validation) -> list[str]:
    told = [f"{name} ({tau:+.2f})" for name, tau in suspects(found.points)]
    return [f"errors go with: {', '.join(told)}"] if told else []


def _failed_lines(found: Validation) -> list[str]:
    lines = [
        f"{graph.name}/{row.candidate}: {row.status}: {row.message}"
        for graph in found.graphs
        for row in graph.failed
    ]
    refused = sum(len(graph.made.refused) for graph in found.graphs)
    lines += [f"{refused} chosen structures have no kernel"] if refused else []
    return ["", *lines] if lines else []


def point_lines(point: Point) -> list[str]:
    """One schedule in two lines: its structure and times, and the parts of its prediction."""
    one, parts = point.candidate, point.candidate.parts
    cycles_us = float(parts["sm_us"]) / float(parts["cycles"])
    made_of = ", ".join(f"{name} {float(parts[name]) * cycles_us:.1f}" for name in PARTS)
    return [
        f"  {point.error:+.1%}  {point.graph}/{one.name}: predicted {one.predicted_us:.1f}, measured "
        f"{point.measured_us:.1f} us, bound by {parts['bound_by']}; {one.what}",
        f"          us: {made_of}; device memory {float(parts['dram_us']):.1f}, L2 {float(parts['l2_us']):.1f}",
    ]
