"""How far the model is off, by the committed validations and benchmarks: `python tests/docs/docs_errors.py`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import docs_results as results

from wsopt.validate.validation import Point, Validation, load_validation

ROOT = Path(__file__).parents[2]

Chosen = Callable[[Point, float], bool]


def validations() -> list[Validation]:
    """The committed validations."""
    return [load_validation(path) for path in sorted((ROOT / "docs" / "model").glob("*.json"))]


def points() -> list[tuple[Point, float]]:
    """Every schedule measured, each with the least time that was measured of its graph."""
    graphs = [graph for found in validations() for graph in found.graphs]
    return [
        (point, min(one.measured_us for one in graph.points)) for graph in graphs for point in graph.points
    ]


GROUPS: dict[str, Chosen] = {
    "all": lambda point, best: True,
    "first choices": lambda point, best: point.candidate.why == "first choice",
    "within 1.1 of the best of their graph": lambda point, best: point.measured_us < 1.1 * best,
    "1.1 to 1.5 times the best": lambda point, best: 1.1 * best <= point.measured_us < 1.5 * best,
    "1.5 times the best and more": lambda point, best: point.measured_us >= 1.5 * best,
    "up to 25 us": lambda point, best: point.measured_us < 25,
    "25 to 100 us": lambda point, best: 25 <= point.measured_us < 100,
    "100 us and more": lambda point, best: point.measured_us >= 100,
    "persistent blocks": lambda point, best: bool(point.candidate.structure["persistent"]),
    "one tile a block": lambda point, best: not point.candidate.structure["persistent"],
    "tiles of 64 columns": lambda point, best: point.candidate.structure["columns"] == 64,
}
"""Groups of schedules whose errors are told."""


def by_group() -> list[str]:
    """The rows of the table of errors by group."""
    found = points()
    return [
        _line(name, [point.error for point, best in found if chosen(point, best)])
        for name, chosen in GROUPS.items()
    ]


def _line(name: str, errors: Sequence[float]) -> str:
    worst = max(errors, key=abs)
    return (
        f"| {name} | {len(errors)} | {statistics.mean(map(abs, errors)):.1%} | "
        f"{round(statistics.mean(errors), 3) + 0.0:+.1%} | {worst:+.1%} |"
    )


def of_benchmarks() -> list[str]:
    """The rows of the table of errors of benchmarked kernels, against the time in turns and the settled one."""
    rows = {row.name: row for document in results.documents() for row in document.rows}.values()
    lines = []
    for name, times in (
        ("in turns", [row.best_us for row in rows]),
        ("settled", [row.kernel_settled and row.kernel_settled.median_us for row in rows]),
    ):
        pairs = [
            (row.predicted_us, us) for row, us in zip(rows, times, strict=True) if row.predicted_us and us
        ]
        lines.append(_line(name, [predicted / us - 1 for predicted, us in pairs]))
    return lines


def by_graph() -> list[str]:
    """Ranges over graphs: Kendall's tau and regret."""
    graphs = [graph for found in validations() for graph in found.graphs]
    return [
        _range("rank correlation (Kendall's tau)", [graph.tau for graph in graphs], ".2f"),
        _range("the same, of times more than 5 % apart", [graph.tau_apart for graph in graphs], ".2f"),
        _range("regret of the first choice", [graph.regret for graph in graphs], ".1%"),
    ]


def _range(name: str, values: Sequence[float], style: str) -> str:
    parts = (min(values), statistics.median(values), max(values))
    return f"| {name} | " + " | ".join(format(part, style) for part in parts) + " |"


if __name__ == "__main__":
    print("\n".join([*by_group(), "", *of_benchmarks(), "", *by_graph()]))
