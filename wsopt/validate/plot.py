"""Draws measured against predicted times as an SVG whose bytes depend on the data alone."""

from __future__ import annotations

import io
from typing import Any

from wsopt.requirements import require_matplotlib
from wsopt.validate.validation import GraphTruth, Validation

_SALT = "wsopt"
_NAMED = 10


def plot_svg(found: Validation) -> str:
    """Measured over predicted microseconds, both logarithmic, a colour a graph, each first choice with a ring.

    Raises RequirementError where matplotlib is not installed.
    """
    require_matplotlib("--plot")
    import matplotlib
    from matplotlib.figure import Figure

    # Names of clip paths are random, and texts depend on fonts, unless told otherwise.
    with matplotlib.rc_context({"svg.hashsalt": _SALT, "svg.fonttype": "none"}):
        figure = Figure(figsize=(7.5, 7.0), layout="constrained")
        axes = figure.add_subplot()
        for number, graph in enumerate(found.graphs):
            _draw(axes, graph, f"C{number % _NAMED}", "o" if number < _NAMED else "s")
        _frame(axes, found)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _draw(axes: Any, graph: GraphTruth, colour: str, marker: str) -> None:
    predicted = [point.candidate.predicted_us for point in graph.points]
    measured = [point.measured_us for point in graph.points]
    label = f"{graph.name}: tau {graph.tau:.2f}, error {graph.error:.0%}, regret {graph.regret:.1%}"
    axes.scatter(predicted, measured, s=18, color=colour, marker=marker, label=label, zorder=3)
    first = graph.first
    axes.scatter(
        [first.candidate.predicted_us],
        [first.measured_us],
        s=110,
        facecolors="none",
        edgecolors=colour,
        zorder=4,
    )


def _frame(axes: Any, found: Validation) -> None:
    times = [time for p in found.points for time in (p.candidate.predicted_us, p.measured_us)]
    ends = [0.85 * min(times), 1.2 * max(times)]
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    axes.plot(ends, ends, color="0.4", linewidth=1, zorder=1)
    axes.fill_between(ends, [0.88 * e for e in ends], [1.12 * e for e in ends], color="0.9", zorder=0)
    axes.set_xlabel("predicted, us")
    axes.set_ylabel("measured, us")
    axes.set_title(f"{len(found.points)} schedules on {found.card.get('device', 'a GPU')}, {found.date[:10]}")
    axes.grid(visible=True, which="major", color="0.92")
    axes.legend(loc="upper left", fontsize=8)
